"""Calibration error with as many bins as keep accuracy monotone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.core.binning import mass_bin_of_rank
from confide.core.door import check_choice
from confide.metrics.ece import binned_error
from confide.metrics.family import metric
from confide.metrics.view import BinSums, View

Floats = NDArray[np.float64]


def sums_of(sure: Floats, hit: Floats, bins: int, binning: str) -> BinSums:
    """Sums per bin of rank floor(i * bins / n), or of value floor(c * bins)."""
    if binning == "mass":
        index = mass_bin_of_rank(len(sure), bins)
    else:
        index = np.minimum((sure * bins).astype(np.intp), bins - 1)
    return BinSums(
        np.bincount(index, minlength=bins).astype(np.float64),
        np.asarray(np.bincount(index, sure, minlength=bins), dtype=np.float64),
        np.asarray(np.bincount(index, hit, minlength=bins), dtype=np.float64),
    )


def monotone(sums: BinSums) -> bool:
    """Whether accuracy never falls from one non-empty bin to the next."""
    full = sums.count > 0
    accuracy = sums.correct[full] / sums.count[full]
    return bool((np.diff(accuracy) >= 0).all())


def most_bins(sure: Floats, hit: Floats, binning: str) -> int:
    """The last number of bins before accuracy is first not monotone; at most n - 1."""
    n = len(sure)
    if bool((np.diff(hit) >= 0).all()):
        return max(n - 1, 1)  # errors rank lowest: monotone for any number of bins
    for bins in range(2, n):
        if not monotone(sums_of(sure, hit, bins, binning)):
            return bins - 1
    return max(n - 1, 1)


@metric(
    "sweep_ece",
    paper="Roelofs et al., 2022, arXiv:2012.08668",
    better="lower",
    range=(0.0, 1.0),
    meaning="The calibration error with the most bins that still show accuracy rising with confidence.",
    kind="calibration",
    corners=({"binning": "width"}, {"norm": 2}),
    costly=True,
)
def sweep_ece(view: View, *, binning: str = "mass", norm: int | str = 1) -> float:
    """ECE by monotonic sweep: bins grow from 2 until an accuracy falls below that of the bin before.

    Args:
        binning: `mass` for bins by rank, `width` for floor(c * bins). Default: the choice of the paper.
        norm: 1, 2 or `max`. Differs from the paper's 2, so that the value compares with other calibration errors.
    """
    check_choice(binning, ("width", "mass"), "binning")
    sure, hit = view.top()
    return binned_error(sums_of(sure, hit, most_bins(sure, hit, binning), binning), norm)
