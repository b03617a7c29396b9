"""Calibration errors of the confidence: ECE, MCE, debiased ECE, ECE by monotonic sweep, smooth ECE."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from confide.checks import check_choice, check_range
from confide.metrics.base import Variant, calibration_metric
from confide.metrics.view import View
from confide.numerics.binning import (
    BinSums,
    bin_of,
    interpolated_edges,
    mass_bin_of_rank,
    order_edges,
    split_edges,
    width_edges,
)
from confide.types import Floats

# Expected calibration error.

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
    return BinSums.of(index, bins, sure, hit), float(inside.mean())


@calibration_metric(
    "ece",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602; Guo et al., 2017, arXiv:1706.04599",
    title="ECE, equal width",
    short="ECE width",
    meaning="Average gap between confidence and accuracy over bins of equal width.",
    tables={"core": 5, "models": 5, "headline": 4, "summary": 4, "calibrated": 4, "shift": 3},
    variants=(
        Variant(
            "ece_mass",
            {"binning": "mass"},
            title="ECE, equal mass",
            short="ECE mass",
            meaning="Average gap between confidence and accuracy over bins that hold equally many samples.",
            tables={"core": 6, "models": 4, "headline": 3, "summary": 5, "calibrated": 5, "groups": 3},
        ),
    ),
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

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.ece(predictions, bins=2)), 3)
        0.1
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


@calibration_metric(
    "mce",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602",
    title="MCE",
    meaning="The largest gap between confidence and accuracy in any bin; bins with few samples make it noisy.",
    binned=True,
    corners=({"bins": 1}, {"binning": "mass"}, {"closed": "left"}),
)
def mce(view: View, *, bins: int = 15, binning: str = "width", closed: str = "right") -> float:
    """Maximum calibration error, max over non-empty bins of |mean confidence - accuracy|.

    Args:
        bins: how many. Default: as for the expected calibration error.
        binning: `width` or `mass`.
        closed: the side on which an equal-width bin holds its edge.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.mce(predictions, bins=2)), 3)
        0.1
    """
    return binned_error(view.bins(binning, bins, closed), "max")


# Debiased calibration error.

DRAWS = 1000


def bin_means(sure: Floats, hit: Floats, bins: int, binning: str) -> tuple[Floats, Floats, Floats]:
    """Count, mean confidence and accuracy of every non-empty bin."""
    edges = width_edges(bins) if binning == "width" else split_edges(sure, bins)
    sums = BinSums.of(bin_of(sure, edges), len(edges) - 1, sure, hit)
    full = sums.count > 0
    count = sums.count[full]
    return count, sums.confidence[full] / count, sums.correct[full] / count


def debiased_square(sure: Floats, hit: Floats, bins: int, binning: str) -> float:
    """Sum of n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)]; bins with one sample count 0."""
    count, confidence, accuracy = bin_means(sure, hit, bins, binning)
    noise = accuracy * (1 - accuracy) / np.maximum(count - 1, 1)
    terms = np.where(count >= 2, (confidence - accuracy) ** 2 - noise, 0.0)
    return float((count * terms).sum() / len(sure))


def debiased_mean(sure: Floats, hit: Floats, bins: int, binning: str) -> float:
    """2 x plug-in - its mean over accuracies redrawn as N(A_b, A_b (1 - A_b) / n_b); the draws are always the same."""
    count, confidence, accuracy = bin_means(sure, hit, bins, binning)
    weight = count / len(sure)
    plain = float((weight * np.abs(confidence - accuracy)).sum())
    spread = np.sqrt(accuracy * (1 - accuracy) / count)
    drawn = np.random.default_rng(0).normal(size=(DRAWS, len(count))) * spread + accuracy
    return 2 * plain - float((weight * np.abs(confidence - drawn)).sum(axis=1).mean())


@calibration_metric(
    "debiased_ece",
    paper="Kumar et al., 2019, arXiv:1909.10155",
    title="Debiased ECE",
    meaning="The root mean squared gap between confidence and accuracy, with the part owed to chance taken off.",
    corners=({"binning": "width"}, {"norm": 1}, {"of": "classes"}, {"bins": 1}, {"bins": 1000}),
    debiased=True,
)
def debiased_ece(view: View, *, bins: int = 15, binning: str = "mass", norm: int = 2, of: str = "top") -> float:
    """Debiased error, sqrt(max(0, sum_b n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)])).

    Args:
        bins: how many; equal-mass ones have their edges between neighbouring samples, and equal edges merge.
        binning: `mass` or `width`. Default: the choice of the paper.
        norm: 2 for the formula above; 1 for the mean gap less its noise, by 1,000 fixed normal draws (may be below 0).
        of: `top` for the confidence, `classes` for every class's probability (mean over classes before the root).

    Example:
        >>> predictions = confide.Predictions.from_top1([1, 1, 0, 0], [1, 1, 1, 1], [0.9, 0.8, 0.6, 0.5])
        >>> round(float(confide.metrics.debiased_ece(predictions, bins=2)), 3)
        0.403
    """
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(norm, (1, 2), "norm")
    check_choice(of, ("top", "classes"), "of")
    check_range(bins, "bins", 1)
    pairs = view.class_columns() if of == "classes" else [view.top()]
    if norm == 1:
        values = [debiased_mean(sure, hit, bins, binning) for sure, hit in pairs]
        return float(np.mean(values))
    squares = [max(0.0, debiased_square(sure, hit, bins, binning)) for sure, hit in pairs]
    return float(np.sqrt(np.mean(squares)))


# Calibration error with as many bins as keep accuracy monotone.


def sweep_sums(sure: Floats, hit: Floats, bins: int, binning: str) -> BinSums:
    """Sums per bin of rank floor(i * bins / n), or of value floor(c * bins)."""
    if binning == "mass":
        index = mass_bin_of_rank(len(sure), bins)
    else:
        index = np.minimum((sure * bins).astype(np.intp), bins - 1)
    return BinSums.of(index, bins, sure, hit)


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
        if not monotone(sweep_sums(sure, hit, bins, binning)):
            return bins - 1
    return max(n - 1, 1)


@calibration_metric(
    "sweep_ece",
    paper="Roelofs et al., 2022, arXiv:2012.08668",
    title="ECE sweep",
    meaning="The calibration error with the most bins that still show accuracy rising with confidence.",
    corners=({"binning": "width"}, {"norm": 2}),
    costly=True,
)
def sweep_ece(view: View, *, binning: str = "mass", norm: int | str = 1) -> float:
    """ECE by monotonic sweep: bins grow from 2 until an accuracy falls below that of the bin before.

    Args:
        binning: `mass` for bins by rank, `width` for floor(c * bins). Default: the choice of the paper.
        norm: 1, 2 or `max`. Differs from the paper's 2, so that the value compares with other calibration errors.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.sweep_ece(predictions)), 3)
        0.167
    """
    check_choice(binning, ("width", "mass"), "binning")
    sure, hit = view.top()
    return binned_error(sweep_sums(sure, hit, most_bins(sure, hit, binning), binning), norm)


# Smooth calibration error.

SMALLEST_GRID, LARGEST_GRID = 1 << 12, 1 << 18
POINTS_PER_WIDTH = 24


def spread_on_grid(sure: Floats, residual: Floats, cells: int) -> Floats:
    """Residuals shared out linearly between the two grid points beside each confidence."""
    place = sure * cells
    left = np.minimum(place.astype(np.intp), cells - 1)
    part = place - left
    lower = np.bincount(left, residual * (1 - part), minlength=cells + 1)
    return np.asarray(lower + np.bincount(left + 1, residual * part, minlength=cells + 1))


class Smoother:
    """The integral of |smoothed residual| for any width; reflection at 0 and 1 is exact in cosine space."""

    def __init__(self, sure: Floats, residual: Floats, cells: int) -> None:
        from scipy.fft import dct

        self.transform = partial(dct, type=1)
        masses = spread_on_grid(sure, residual, cells)
        masses[[0, -1]] *= 2
        self.spectrum = self.transform(masses) / 2
        self.frequencies = (np.pi * np.arange(cells + 1)) ** 2 / 2
        self.cells = cells

    def error(self, width: float) -> float:
        """smECE at that kernel width."""
        curve = np.abs(self.transform(self.spectrum * np.exp(-self.frequencies * width**2)))
        return float((curve.sum() - (curve[0] + curve[-1]) / 2) / self.cells)

    def excess(self, width: float) -> float:
        """How far the error lies above the width; falls, and is 0 at the answer."""
        return self.error(width) - width


def smooth_error(sure: Floats, residual: Floats) -> float:
    """The width at which the smoothed error equals the width itself; residuals sum to the weights' scale."""
    from scipy.optimize import brentq

    cells = SMALLEST_GRID
    while True:
        smoother = Smoother(sure, residual, cells)
        smallest = POINTS_PER_WIDTH / cells
        if smoother.error(smallest) > smallest:
            return float(brentq(smoother.excess, smallest, 1.0 + 1e-9, xtol=1e-10))
        if cells >= LARGEST_GRID:
            return min(smoother.error(smallest), smallest)
        cells *= 4


@calibration_metric(
    "smooth_ece",
    paper="Blasiok & Nakkiran, 2023, arXiv:2309.12236",
    title="Smooth ECE",
    meaning="The calibration error without bins, smoothed at the scale of the error itself.",
    costly=True,
)
def smooth_ece(view: View) -> float:
    """Smooth ECE, the width s at which the integral of |mean of (c_i - o_i) K_s(t, c_i)| over t equals s.

    K_s is a Gaussian of width s reflected at 0 and 1. Errors below 1e-4 are bounded, not resolved.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.smooth_ece(predictions)), 3)
        0.171
    """
    sure, wrong, weights = view.weighted_top()
    residual = (sure - ~wrong) * weights / view.n
    return smooth_error(sure, residual)
