"""Largest class probability."""

from __future__ import annotations

import torch

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.untrained import Untrained, untrained_facts


def largest_probability(predictions: Predictions) -> PerSample:
    """max_k p_k of every sample in float64: float32 would tie all that round to 1."""
    return torch.from_numpy(predictions.facts.sureness())


@TRUST.add(
    "mcp",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    **untrained_facts(largest_probability, scale="probability", threshold=0.5),
)
def mcp(predictions: Predictions | None = None, features: FeatureRows | None = None) -> Untrained:
    """Maximum class probability, max_k p_k: the baseline every other predictor must beat."""
    return Untrained(largest_probability)
