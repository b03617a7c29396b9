"""PolyLoss, first order."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "poly1",
    paper="Leng et al., 2022, arXiv:2204.12511",
    corners=({"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": 6.0}),
    ranges={"epsilon": (-1.0, 1e6)},
    soft=True,
)
def poly1(logits: Logits, labels: Labels, *, epsilon: float = 1.0) -> PerSample:
    """Poly-1, -log p_y + epsilon (1 - p_y); soft labels enter p_y too, p_t = sum_k q_k p_k.

    Args:
        epsilon: how much the first Taylor term is changed; 0 is cross-entropy. Default: the common port; the paper
            recommends 2 for ImageNet.
    """
    whole = fused(logits, labels, "poly", b=epsilon)
    if whole is not None:
        return whole
    if labels.ndim == 2:
        statistics = simplex_statistics(logits, labels, "log_p_true p_true")
        return -statistics.log_p_true + epsilon * (1 - statistics.p_true)
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return -log_p - epsilon * log_p.expm1()
