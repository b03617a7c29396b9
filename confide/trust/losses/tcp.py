"""Regression of the true class probability."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import InputError
from confide.core.shapes import PerSample
from confide.trust.losses.family import trust_loss


@trust_loss(
    "tcp",
    paper="Corbière et al., 2019, arXiv:1910.04851",
    target="p_true",
    corners=({"weighting": 1.0},),
    ranges={"weighting": (0.0, 1e6)},
)
def tcp(
    z: PerSample,
    p_true: PerSample,
    *,
    weighting: float = 1.0,
    correct: Tensor | None = None,
    p_max: Tensor | None = None,
) -> PerSample:
    """True class probability, (sigmoid(z) - p_y)^2 with p_y of the frozen classifier.

    Args:
        weighting: factor of misclassified samples, which `correct` names. Default: every released configuration.
        correct: 0 or 1 per sample, needed for a weighting other than 1.
        p_max: the classifier's largest probability; given, the target is the ratio p_y / p_max.
    """
    target = p_true if p_max is None else p_true / p_max
    values = (torch.sigmoid(z) - target).square()
    if weighting == 1.0:
        return values
    if correct is None:
        raise InputError("a weighting of misclassified samples needs correct=..., one 0 or 1 per sample")
    return values * torch.where(correct > 0, torch.ones_like(z), torch.full_like(z, weighting))
