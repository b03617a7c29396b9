"""Expected calibration error."""

from __future__ import annotations

import numpy as np

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.view import BinSums, View

NORMS = (1, 2, "max")


def binned_error(sums: BinSums, norm: int | str) -> float:
    """Gap between mean confidence and accuracy over the bins: weighted mean, root mean square, or largest."""
    check_choice(norm, NORMS, "norm")
    full = sums.count > 0
    count = sums.count[full]
    gaps = np.abs(sums.confidence[full] - sums.correct[full])
    if norm == 1:
        return float(gaps.sum() / count.sum())
    if norm == 2:
        return float(np.sqrt((gaps**2 / count).sum() / count.sum()))
    return float((gaps / count).max())


@metric(
    "ece",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602; Guo et al., 2017, arXiv:1706.04599",
    better="lower",
    range=(0.0, 1.0),
    meaning="How far confidence is from accuracy, on average over bins of confidence.",
    kind="calibration",
    binned=True,
    corners=(
        {"bins": 1},
        {"bins": 1000},
        {"binning": "mass"},
        {"binning": "mass", "bins": 1000},
        {"norm": 2},
        {"norm": "max"},
        {"closed": "left"},
    ),
)
def ece(view: View, *, bins: int = 15, binning: str = "width", norm: int | str = 1, closed: str = "right") -> float:
    """Expected calibration error, sum over bins of n_b / n |mean confidence - accuracy|; empty bins count 0.

    Args:
        bins: how many; more bins see finer errors but also more noise. Default: Guo et al., 2017.
        binning: `width` for equal widths; `mass` for equal counts by rank, floor(i * bins / n), where ties are split
            in the order given (the one metric that depends on it).
        norm: 1 for the mean gap, 2 for the root of the mean squared gap, `max` for the largest gap of a bin.
        closed: the side on which an equal-width bin holds its edge: `right` for (low, high], `left` for [low, high).
    """
    return binned_error(view.bins(binning, bins, closed), norm)
