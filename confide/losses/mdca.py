"""Cross-entropy with MDCA."""

from confide.core.batch_terms import class_mean_gap
from confide.core.class_means import log_p_and_class_means
from confide.core.shapes import Labels, Logits, PerSample
from confide.losses.family import loss


@loss(
    "mdca",
    paper="Hebbalaguppe et al., 2022, A Stitch in Time Saves Nine, arXiv:2203.13834",
    corners=({"weight": 0.0}, {"weight": 10.0}),
    ranges={"weight": (0.0, 1e6)},
    batch=True,
)
def mdca(logits: Logits, labels: Labels, *, weight: float = 1.0) -> PerSample:
    """Cross-entropy plus weight times MDCA, -log p_y + (w/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]|.

    Args:
        weight: of the penalty. Default: released code.
    """
    log_p, means = log_p_and_class_means(logits, labels)
    return -log_p + weight * class_mean_gap(means, labels)
