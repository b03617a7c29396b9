"""Margin penalty on logits."""

from confide.core.shapes import Labels, Logits, Scalar
from confide.core.simplex import simplex_statistics
from confide.penalties.family import penalty


@penalty(
    "mbls",
    paper="Liu et al., 2022, The Devil is in the Margin, arXiv:2111.15430",
    corners=({"margin": 0.0}, {"margin": 2.0}),
    ranges={"margin": (0.0, 1e6)},
)
def mbls(logits: Logits, labels: Labels, *, margin: float = 10.0) -> Scalar:
    """Margin penalty, mean over samples and classes of max(0, max_j z_j - z_k - margin).

    Args:
        margin: how far below the largest a logit may lie for free. Default: released code.
    """
    excess = simplex_statistics(logits, labels, "excess", margin=margin).excess
    return excess.mean() if len(excess) else excess.sum()
