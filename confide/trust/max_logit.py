"""Largest logit."""

from __future__ import annotations

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.untrained import Untrained, need_real_logits, untrained_facts


def largest_logit(predictions: Predictions) -> PerSample:
    """max_k z_k of every sample."""
    need_real_logits(predictions, "max_logit")
    return predictions.facts.need("max_logit")


@TRUST.add("max_logit", paper="Hendrycks et al., 2022, arXiv:1911.11132", **untrained_facts(largest_logit))
def max_logit(predictions: Predictions | None = None, features: FeatureRows | None = None) -> Untrained:
    """Largest logit, max_k z_k; compare within one model only, and never from probabilities."""
    return Untrained(largest_logit)
