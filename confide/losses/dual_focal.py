"""Dual focal loss."""

import torch

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "dual_focal",
    paper="Tao et al., 2023, arXiv:2305.13665",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 6.1}, {"form": "released"}, {"form": "released", "gamma": 0.5}),
    ranges={"gamma": (0.0, 100.0)},
    choices={"form": ("paper", "released")},
)
def dual_focal(logits: Logits, labels: Labels, *, gamma: float = 5.0, form: str = "paper") -> PerSample:
    """Dual focal, -(1 - p_y + p_j)^gamma log p_y with p_j the largest probability of another class.

    Args:
        gamma: how fast clear wins fade; 0 is cross-entropy. Default: ResNet-50 on CIFAR-10 and CIFAR-100.
        form: `released` takes p_j as the largest probability strictly below p_y (0 if there is none), as the public
            code does; the two differ on misclassified samples and exact ties only.
    """
    whole = fused(logits, labels, "dual" if form == "paper" else "dual_released", a=gamma)
    if whole is not None:
        return whole
    rival = "p_other" if form == "paper" else "p_below"
    statistics = simplex_statistics(logits, labels, ("log_p_true", rival))
    log_p = statistics.log_p_true
    base = -torch.expm1(log_p) + statistics.values[rival]
    # At p_y = 1 and p_j = 0 the power has an infinite slope for gamma < 1.
    return -(base.clamp_min(torch.finfo(log_p.dtype).tiny) ** gamma) * log_p
