"""Steep slope loss."""

import math

import torch

from confide.core.shapes import PerSample
from confide.trust.losses.family import trust_loss


@trust_loss(
    "steep_slope",
    paper="Luo et al., 2021, Learning to Predict Trustworthiness with Steep Slope Loss, arXiv:2110.00054",
    target="correct",
    corners=({"alpha_pos": 0.1, "alpha_neg": 10.0}, {"alpha_pos": 6.0, "alpha_neg": 10.0}),
    ranges={"alpha_pos": (1e-6, 80.0), "alpha_neg": (1e-6, 80.0)},
)
def steep_slope(z: PerSample, correct: PerSample, *, alpha_pos: float = 1.0, alpha_neg: float = 3.0) -> PerSample:
    """Steep slope, exp(-a_pos z/(1+|z|)) - exp(-a_pos) where correct, exp(a_neg z/(1+|z|)) - exp(-a_neg) where wrong.

    Trustworthy iff z > 0. Differs from eq. 8: both exponents have the opposite sign there, which would push correct
    samples to z = -infinity; these are the signs of the released code.

    Args:
        alpha_pos: slope for correct samples. Default: ViT of the paper; ResNet there: 2.
        alpha_neg: slope for wrong samples. Default: ViT of the paper; ResNet there: 5.
    """
    slide = z / (1 + z.abs())
    positive = torch.exp(-alpha_pos * slide) - math.exp(-alpha_pos)
    negative = torch.exp(alpha_neg * slide) - math.exp(-alpha_neg)
    return correct * positive + (1 - correct) * negative
