"""MMCE: maximum mean calibration error."""

from confide.core.kernels import mmce_of
from confide.core.shapes import Labels, Logits, Scalar
from confide.core.simplex import simplex_statistics
from confide.penalties.family import penalty


@penalty(
    "mmce",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"kernel_width": 0.01}, {"sqrt": True}),
    ranges={"kernel_width": (1e-4, 1e6)},
)
def mmce(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, sqrt: bool = False) -> Scalar:
    """MMCE, (1/n^2) sum_ij (o_i - c_i)(o_j - c_j) exp(-|c_i - c_j| / width), exact in O(n log n).

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        sqrt: take the root of the definition; off in the released code, since the root has an infinite slope at 0.
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_of(statistics.p_max, correct, kernel_width, sqrt)
