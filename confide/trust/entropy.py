"""Negative entropy of the predicted distribution."""

from __future__ import annotations

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.untrained import Untrained, untrained_facts


def negative_entropy(predictions: Predictions) -> PerSample:
    """sum_k p_k log p_k of every sample, natural logarithm."""
    return -predictions.facts.need("entropy")


@TRUST.add("entropy", paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136", **untrained_facts(negative_entropy))
def entropy(predictions: Predictions | None = None, features: FeatureRows | None = None) -> Untrained:
    """Negative entropy, sum_k p_k log p_k: 0 where one class has all, -log c where all are equal."""
    return Untrained(negative_entropy)
