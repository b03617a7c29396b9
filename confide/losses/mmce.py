"""Cross-entropy with MMCE."""

from confide.core.kernels import mmce_of
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.losses.family import loss


@loss(
    "mmce",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"weight": 0.0}, {"kernel_width": 0.01}, {"sqrt": True}),
    ranges={"weight": (0.0, 1e6), "kernel_width": (1e-4, 1e6)},
    batch=True,
)
def mmce(
    logits: Logits, labels: Labels, *, weight: float = 2.0, kernel_width: float = 0.4, sqrt: bool = False
) -> PerSample:
    """Cross-entropy plus weight times the batch's MMCE, -log p_y + w MMCE; the penalty alone is `penalties.mmce`.

    Args:
        weight: w, of the penalty.
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        sqrt: take the root of the definition; off in the released code, since the root has an infinite slope at 0.
    """
    statistics = simplex_statistics(logits, labels, "log_p_true p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return -statistics.log_p_true + weight * mmce_of(statistics.p_max, correct, kernel_width, sqrt)
