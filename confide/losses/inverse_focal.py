"""Inverse focal loss."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss

RELEASED_CLAMP = 1e-9


@loss(
    "inverse_focal",
    paper="Wang et al., 2021, Rethinking Calibration of Deep Neural Networks, NeurIPS",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 3.5}, {"form": "released"}),
    ranges={"gamma": (0.0, 100.0)},
    choices={"form": ("paper", "released")},
)
def inverse_focal(logits: Logits, labels: Labels, *, gamma: float = 2.0, form: str = "paper") -> PerSample:
    """Inverse focal, -(1 + p_y)^gamma log p_y: sure samples count more.

    Above gamma 3.59 the loss rises with p_y near 0.28, so that learning can turn round there.

    Args:
        gamma: how much sure samples gain; 0 is cross-entropy. Default: ResNet-50 on CIFAR-10 (Zhou et al., 2025).
        form: `released` clamps p_y inside the weight to [1e-9, 1 - 1e-9], as the public code does.
    """
    whole = fused(logits, labels, "inverse", a=gamma) if form == "paper" else None
    if whole is not None:
        return whole
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    p_true = log_p.exp()
    if form == "released":
        p_true = p_true.clamp(RELEASED_CLAMP, 1 - RELEASED_CLAMP)
    return -((1 + p_true) ** gamma) * log_p
