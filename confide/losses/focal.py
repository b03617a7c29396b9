"""Focal loss."""

from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, one_minus_p, simplex_statistics
from confide.losses.family import loss


@loss(
    "focal",
    paper="Lin et al., 2017, arXiv:1708.02002; Mukhoti et al., 2020, arXiv:2002.09437",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 5.0}, {"detach_weight": True}),
    ranges={"gamma": (0.0, 100.0)},
)
def focal(logits: Logits, labels: Labels, *, gamma: float = 3.0, detach_weight: bool = False) -> PerSample:
    """Focal loss, -(1 - p_y)^gamma log p_y.

    Args:
        gamma: how fast sure samples fade; 0 is cross-entropy. Default: FL-3 of Mukhoti et al.
        detach_weight: no gradient through (1 - p_y)^gamma, as in the code of Wang et al., 2021; the value is the same.
    """
    whole = fused(logits, labels, "focal", a=gamma, detach=detach_weight)
    if whole is not None:
        return whole
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return focal_of(log_p, gamma, detach_weight)


def focal_of(log_p: PerSample, gamma: float | Tensor, detach_weight: bool = False) -> PerSample:
    """Focal loss of given log-probabilities; gamma may differ by sample."""
    weight = one_minus_p(log_p) ** gamma
    return -(weight.detach() if detach_weight else weight) * log_p
