"""Weighted MMCE."""

from confide.core.kernels import mmce_weighted_of
from confide.core.shapes import Labels, Logits, Scalar
from confide.core.simplex import simplex_statistics
from confide.penalties.family import penalty


@penalty(
    "mmce_weighted",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"kernel_width": 0.01}, {"form": "released"}),
    ranges={"kernel_width": (1e-4, 1e6)},
    choices={"form": ("paper", "released")},
)
def mmce_weighted(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, form: str = "paper") -> Scalar:
    """Weighted MMCE, sqrt(A/m^2 + B/m'^2 - 2D/(m m') + 1e-10) over correct and wrong samples; 0 if one kind is absent.

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        form: `released` divides every term by its number of pairs twice, as the public code does: far smaller, and
            the smaller the larger the batch. A weight tuned for one form means nothing for the other.
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_weighted_of(statistics.p_max, correct, kernel_width, form)
