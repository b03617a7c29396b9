"""Entropy regularisation (confidence penalty)."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "entropy_regularization",
    paper="Pereyra et al., 2017, arXiv:1701.06548",
    corners=({"alpha": 0.0}, {"alpha": 1.0}),
    ranges={"alpha": (0.0, 1e6)},
    soft=True,
)
def entropy_regularization(logits: Logits, labels: Labels, *, alpha: float = 0.1) -> PerSample:
    """Cross-entropy less alpha times the entropy of the prediction, -log p_y - alpha H(p), natural logarithm.

    Args:
        alpha: how much spread is rewarded; 0 is cross-entropy. Default: the ImageNet baseline of Cui et al., 2023.
    """
    whole = fused(logits, labels, "entropy", b=-alpha)
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true entropy")
    return -statistics.log_p_true - alpha * statistics.entropy
