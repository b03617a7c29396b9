"""Binary focal loss of correctness."""

import torch
from torch.nn import functional

from confide.core.shapes import PerSample
from confide.trust.losses.family import trust_loss

RELEASED_EPSILON = 1e-7


@trust_loss(
    "binary_focal",
    paper="Lin et al., 2017, arXiv:1708.02002; Luo et al., 2021, arXiv:2110.00054 (baseline)",
    target="correct",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 5.0, "alpha": 0.25}, {"form": "released"}),
    ranges={"gamma": (0.0, 100.0), "alpha": (0.0, 1e6)},
    choices={"form": ("paper", "released")},
)
def binary_focal(
    z: PerSample, correct: PerSample, *, gamma: float = 2.0, alpha: float = 1.0, form: str = "paper"
) -> PerSample:
    """Binary focal, -alpha (1 - p_t)^gamma log p_t with p_t = sigmoid(z) where correct, 1 - sigmoid(z) where wrong.

    Args:
        gamma: how fast sure samples fade; 0 is binary cross-entropy.
        alpha: factor of all samples; ConfidNet's focal is gamma 5, alpha 0.25.
        form: `released` reproduces the broadcast of the paper's code, where every z meets every target of the batch.
    """
    if form == "released":
        share = correct.mean()
        p = torch.sigmoid(z)
        positive = -((1 - p) ** gamma) * torch.log(p + RELEASED_EPSILON)
        negative = -(p**gamma) * torch.log(1 - p + RELEASED_EPSILON)
        return alpha * (share * positive + (1 - share) * negative)
    signed = torch.where(correct > 0, z, -z)
    # log(1 - p_t) = logsigmoid(-signed): the power stays smooth where p_t rounds to 1.
    return -alpha * torch.exp(gamma * functional.logsigmoid(-signed)) * functional.logsigmoid(signed)
