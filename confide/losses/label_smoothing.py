"""Label smoothing."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "label_smoothing",
    paper="Szegedy et al., 2016, arXiv:1512.00567",
    corners=({"smoothing": 0.0}, {"smoothing": 1.0}),
    ranges={"smoothing": (0.0, 1.0)},
    soft=True,
)
def label_smoothing(logits: Logits, labels: Labels, *, smoothing: float = 0.05) -> PerSample:
    """Cross-entropy against (1 - e) onehot + e / c, that is -(1 - e) log p_y - e mean_k log p_k.

    Args:
        smoothing: e, the mass spread over all classes, the true one included; 0 is cross-entropy. Default: CIFAR-10
            of Wang et al., 2021; CIFAR-100 there: 0.09.
    """
    whole = fused(logits, labels, "mean_log_p", a=1 - smoothing, b=-smoothing)
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true mean_log_p")
    return -(1 - smoothing) * statistics.log_p_true - smoothing * statistics.mean_log_p
