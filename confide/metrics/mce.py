"""Maximum calibration error."""

from __future__ import annotations

from confide.metrics.ece import binned_error
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "mce",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602",
    better="lower",
    range=(0.0, 1.0),
    meaning="The largest gap between confidence and accuracy in any bin; bins with few samples make it noisy.",
    kind="calibration",
    binned=True,
    corners=({"bins": 1}, {"binning": "mass"}, {"closed": "left"}),
)
def mce(view: View, *, bins: int = 15, binning: str = "width", closed: str = "right") -> float:
    """Maximum calibration error, max over non-empty bins of |mean confidence - accuracy|.

    Args:
        bins: how many. Default: as for the expected calibration error.
        binning: `width` or `mass`.
        closed: the side on which an equal-width bin holds its edge.
    """
    return binned_error(view.bins(binning, bins, closed), "max")
