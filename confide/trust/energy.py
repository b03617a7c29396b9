"""Free energy of the logits."""

from __future__ import annotations

import torch

from confide.core.door import check_range
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.untrained import Untrained, need_real_logits, untrained_facts


def negative_energy(predictions: Predictions, temperature: float = 1.0) -> PerSample:
    """T log sum_k exp(z_k / T) of every sample."""
    logits = need_real_logits(predictions, "energy")
    if temperature == 1.0:
        return predictions.facts.need("energy")
    # Half precision has no room for a logit of 700 over a temperature of 0.01.
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return temperature * torch.logsumexp(wide / temperature, dim=1)


@TRUST.add(
    "energy",
    paper="Liu et al., 2020, arXiv:2010.03759",
    corners=({"temperature": 0.01}, {"temperature": 100.0}),
    **untrained_facts(negative_energy),
)
def energy(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, temperature: float = 1.0
) -> Untrained:
    """Energy confidence, T log sum_k exp(z_k / T); compare within one model only, and never from probabilities.

    Args:
        temperature: near 0 it is the largest logit; large values weigh all classes. Default: the choice of the paper.
    """
    check_range(temperature, "temperature", 0, low_open=True)
    return Untrained(negative_energy, {"temperature": temperature})
