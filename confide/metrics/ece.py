"""Expected calibration error."""

from __future__ import annotations

import math

import numpy as np

from confide.core.binning import bin_of, interpolated_edges, order_edges, split_edges
from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.view import BinSums, View

NORMS = (1, 2, "max", "mean")
EDGES = ("rank", "interpolated", "order", "midpoint")


def binned_error(sums: BinSums, norm: int | str) -> float:
    """Gap between mean confidence and accuracy over the bins: weighted mean, root mean square, largest, plain mean."""
    check_choice(norm, NORMS, "norm")
    full = sums.count > 0
    count = sums.count[full]
    gaps = np.abs(sums.confidence[full] - sums.correct[full])
    if norm == 1:
        return float(gaps.sum() / count.sum())
    if norm == 2:
        return float(np.sqrt((gaps**2 / count).sum() / count.sum()))
    return float((gaps / count).max() if norm == "max" else (gaps / count).mean())


def mass_sums(view: View, bins: int, edges: str) -> tuple[BinSums, float]:
    """Sums per equal-mass bin between edges that never part ties, and the share of samples that lie in a bin."""
    sure, hit = view.top()
    if edges == "order":
        index = bin_of(sure, order_edges(sure, bins), closed="left")
    else:
        index = bin_of(sure, interpolated_edges(sure, bins) if edges == "interpolated" else split_edges(sure, bins))
    # Interpolated edges start at the smallest confidence and leave out what lies on it.
    inside = sure > sure[0] if edges == "interpolated" else np.ones(len(sure), dtype=bool)
    index, sure, hit = index[inside], sure[inside], hit[inside]
    count = np.bincount(index, minlength=bins).astype(np.float64)
    confidence, correct = (np.bincount(index, v, minlength=bins).astype(np.float64) for v in (sure, hit))
    return BinSums(count, confidence, correct), float(inside.mean())


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
        {"norm": "mean"},
        {"closed": "left"},
        {"binning": "mass", "edges": "interpolated"},
        {"binning": "mass", "edges": "order"},
        {"binning": "mass", "edges": "midpoint"},
    ),
)
def ece(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    norm: int | str = 1,
    closed: str = "right",
    edges: str = "rank",
) -> float:
    """Expected calibration error, sum over bins of n_b / n |mean confidence - accuracy|; empty bins count 0.

    Args:
        bins: how many; more bins see finer errors but also more noise. Default: Guo et al., 2017.
        binning: `width` for equal widths; `mass` for equal counts by rank, floor(i * bins / n), where ties are split
            in the order given (the one metric that depends on it).
        norm: 1 for the mean gap, 2 for the root of the mean squared gap, `max` for the largest gap of a bin, `mean` for
            the mean over bins that each count the same (Neumann et al., 2018: average calibration error).
        closed: the side on which an equal-width bin holds its edge: `right` for (low, high], `left` for [low, high).
        edges: where equal-mass bins end. `rank` as above; the others, which other packages use, never part ties:
            `interpolated` between neighbours (Mukhoti et al., 2020; leaves out the smallest confidence), `order` at
            samples, [low, high); `midpoint` halfway between the parts (Kumar et al., 2019).
    """
    check_choice(edges, EDGES, "edges")
    if edges == "rank":
        return binned_error(view.bins(binning, bins, closed), norm)
    check_choice(binning, ("mass",), "binning (with edges)")
    sums, share = mass_sums(view, bins, edges)
    if not sums.count.any():
        return 0.0
    # A sample left out counts as one without a gap in the means over samples.
    return binned_error(sums, norm) * (share if norm == 1 else math.sqrt(share) if norm == 2 else 1.0)
