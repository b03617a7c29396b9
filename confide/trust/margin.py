"""Lead of the predicted class over the runner-up."""

from __future__ import annotations

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.untrained import Untrained, untrained_facts


def probability_margin(predictions: Predictions) -> PerSample:
    """p_(1) - p_(2) of every sample."""
    return predictions.facts.need("margin")


@TRUST.add("margin", paper="Scheffer et al., 2001, doi:10.1007/3-540-44816-0_31", **untrained_facts(probability_margin))
def margin(predictions: Predictions | None = None, features: FeatureRows | None = None) -> Untrained:
    """Softmax margin, p_(1) - p_(2): largest probability minus the second largest."""
    return Untrained(probability_margin)
