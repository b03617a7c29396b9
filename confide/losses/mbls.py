"""Margin-based label smoothing."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "mbls",
    paper="Liu et al., 2022, The Devil is in the Margin, arXiv:2111.15430",
    corners=({"alpha": 0.0}, {"margin": 0.0}, {"margin": 2.0}),
    ranges={"alpha": (0.0, 1e6), "margin": (0.0, 1e6)},
    soft=True,
)
def mbls(logits: Logits, labels: Labels, *, alpha: float = 0.1, margin: float = 10.0) -> PerSample:
    """Margin-based label smoothing, -log p_y + alpha mean_k max(0, max_j z_j - z_k - margin).

    Args:
        alpha: how much distances beyond the margin cost. Default: released code.
        margin: how far below the largest a logit may lie for free. Default: released code.
    """
    whole = fused(logits, labels, "excess", b=alpha, margin=margin)
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true excess", margin=margin)
    return -statistics.log_p_true + alpha * statistics.excess
