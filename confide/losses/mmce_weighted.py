"""Cross-entropy with weighted MMCE."""

from confide.core.kernels import mmce_weighted_of
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.losses.family import loss


@loss(
    "mmce_weighted",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"weight": 0.0}, {"kernel_width": 0.01}, {"form": "released"}),
    ranges={"weight": (0.0, 1e6), "kernel_width": (1e-4, 1e6)},
    choices={"form": ("paper", "released")},
    batch=True,
)
def mmce_weighted(
    logits: Logits, labels: Labels, *, weight: float = 2.0, kernel_width: float = 0.4, form: str = "paper"
) -> PerSample:
    """Cross-entropy plus weight times weighted MMCE, -log p_y + w MMCE_w; `penalties.mmce_weighted` is the penalty.

    Args:
        weight: w, of the penalty. Default: the tables of Mukhoti et al., 2020, made with the released form.
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        form: `released` divides every term by its number of pairs twice, as the public code does; do not carry a
            weight over from one form to the other.
    """
    statistics = simplex_statistics(logits, labels, "log_p_true p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return -statistics.log_p_true + weight * mmce_weighted_of(statistics.p_max, correct, kernel_width, form)
