"""Which bin a confidence falls into, and what the bins of confidence hold; nobody else knows.

Bins are (low, high] and the first also holds 0; `closed="left"` gives [low, high) and the last also holds 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from confide.checks import check_choice, check_range
from confide.types import Floating, Floats, Indices

MOST_BINS = 1_000_000
"""More edges than samples tell apart."""


def width_edges(bins: int) -> NDArray[np.float64]:
    """Edges of equal-width bins on [0, 1]."""
    check_range(bins, "bins", 1)
    return _width_edges(bins).copy()


@lru_cache(maxsize=16)
def _width_edges(bins: int) -> NDArray[np.float64]:
    """An evaluation asks for the same few a dozen times, and np.linspace takes as long as a small metric."""
    return np.linspace(0.0, 1.0, bins + 1)


def bin_of(values: Floating, edges: Floating, closed: str = "right") -> Indices:
    """Index of the bin of every value, by comparison with the edges; values outside fall into the end bins."""
    check_choice(closed, ("right", "left"), "closed")
    # searchsorted on the inner edges: side="left" counts edges < value, so a value on an edge stays below it.
    # Edges in the dtype of the values: a float32 confidence of 0.6 lies on the edge 9/15, not above it.
    kind = np.asarray(values).dtype
    inner = edges[1:-1].astype(kind) if kind.kind == "f" else edges[1:-1]
    return np.searchsorted(inner, values, side="left" if closed == "right" else "right")


def mass_bin_of_rank(n: int, bins: int, weights: Floats | None = None) -> Indices:
    """Bin of the i-th smallest of n values in equal-mass bins by rank: floor(i * bins / n).

    With weights, from the smallest value on, the rank is the weight of all smaller values, in units of the mean weight.
    """
    check_range(bins, "bins", 1)
    if weights is not None:
        return np.searchsorted(mass_starts(n, bins)[1:-1], ranks_of_weights(weights), side="right")
    return (np.arange(n, dtype=np.int64) * bins // max(n, 1)).astype(np.intp)


def ranks_of_weights(weights: Floats) -> Floats:
    """The weight before each sample, in units of the mean weight: 0, 1, 2, ... where all are equal."""
    before = (np.cumsum(weights) - weights) * (len(weights) / weights.sum())
    # What rounding left beside a whole number is on it.
    whole = np.round(before)
    return np.asarray(np.where(np.abs(before - whole) < 1e-9 * len(weights), whole, before), dtype=np.float64)


def mass_starts(n: int, bins: int) -> Indices:
    """First rank of every equal-mass bin and n at the end: bin b holds ranks ceil(b n / bins) up to the next."""
    check_range(bins, "bins", 1)
    return (-(-np.arange(bins + 1, dtype=np.int64) * n // bins)).astype(np.intp)


def split_edges(values: Floating, bins: int, weights: Floats | None = None) -> NDArray[np.float64]:
    """Edges halfway between the parts of the sorted values cut into equal counts; equal edges merge, the last is 1.

    With weights the parts weigh the same, as nearly as no sample being cut allows.
    """
    check_range(bins, "bins", 1)
    rising, n = np.sort(values), len(values)
    if weights is None:
        parts = [part for part in np.array_split(rising, bins) if len(part)]
    else:
        size, more = divmod(n, bins)
        starts = np.arange(1, bins) * size + np.minimum(np.arange(1, bins), more)
        ranks = ranks_of_weights(weights[np.argsort(values, kind="stable")])
        parts = [part for part in np.split(rising, np.searchsorted(ranks, starts)) if len(part)]
    between = [(before[-1] + after[0]) / 2 for before, after in pairwise(parts)]
    return np.concatenate(([0.0], np.unique([*between, 1.0])))


def width_bin_of(values: Floating, bins: int, closed: str = "right") -> Indices:
    """The same as `bin_of` with equal widths, quicker for many values: only those close to an edge are compared."""
    edges = width_edges(bins)
    if bins > 1000 or len(values) < 1000:
        return bin_of(values, edges, closed)
    place = values * values.dtype.type(bins)
    index = place.astype(np.intp)
    place -= index
    place -= values.dtype.type(0.5)
    # Float32 rounds the place by at most 1e-4; further from an edge than that, its whole part is the bin.
    near = np.flatnonzero(np.abs(place, out=place) > 0.4998)
    index[near] = bin_of(values[near], edges, closed)
    return index


def interpolated_edges(values: Floating, bins: int, weights: Floats | None = None) -> NDArray[np.float64]:
    """Edges at ranks b n / bins of the sorted values, linear between neighbours, the last at the largest value."""
    check_range(bins, "bins", 1)
    n = len(values)
    ranks = np.arange(n) if weights is None else ranks_of_weights(weights[np.argsort(values, kind="stable")])
    return np.asarray(np.interp(np.linspace(0, n, bins + 1), ranks, np.sort(values)), dtype=np.float64)


def order_edges(values: Floating, bins: int, weights: Floats | None = None) -> NDArray[np.float64]:
    """Edges that are values themselves: those at ranks floor(b (n - 1) / bins)."""
    check_range(bins, "bins", 1)
    places = np.linspace(0, len(values) - 1, bins + 1).astype(np.intp)
    if weights is not None:
        ranks = ranks_of_weights(weights[np.argsort(values, kind="stable")])
        places = np.searchsorted(ranks, places, side="right") - 1
        places[-1] = len(values) - 1
    return np.asarray(np.sort(values)[places], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class BinSums:
    """Per bin of confidence, from the lowest: how many samples, their confidences, how many were correct."""

    count: NDArray[np.float64]
    confidence: NDArray[np.float64]
    correct: NDArray[np.float64]

    @classmethod
    def of(
        cls, index: Indices, bins: int, confidence: Floating, correct: Floating, weights: Floats | None = None
    ) -> BinSums:
        """The sums of samples whose bins are known."""
        parts = (None, confidence, correct) if weights is None else (weights, confidence * weights, correct * weights)
        return cls(*(np.bincount(index, values, minlength=bins).astype(np.float64) for values in parts))


NORMS = (1, 2, "max", "mean")


def binned_error(sums: BinSums, norm: int | str) -> float:
    """Gap between mean confidence and accuracy over the bins: weighted mean, root mean square, largest, plain mean."""
    return float(binned_errors((sums.confidence - sums.correct)[None], sums.count, norm)[0])


def binned_errors(gaps: Floats, count: Floats, norm: int | str) -> Floats:
    """The same of every row of summed gaps, of as many samples a bin."""
    check_choice(norm, NORMS, "norm")
    full = count > 0
    gaps, count = np.abs(gaps[:, full]), count[full]
    if norm == 1:
        return np.asarray(gaps.sum(axis=1) / count.sum())
    if norm == 2:
        return np.asarray(np.sqrt((gaps**2 / count).sum(axis=1) / count.sum()))
    shares = gaps / count
    return np.asarray(shares.max(axis=1) if norm == "max" else shares.mean(axis=1))


def calibration_error(
    confidence: Floating,
    correct: Floating | NDArray[np.bool_],
    bins: int = 15,
    binning: str = "width",
    weights: Floats | None = None,
) -> float:
    """Expected calibration error of arrays, sum over bins of |sum of (confidence - correct)| / n.

    It is `binned_error` of norm 1, which needs no counts; `metrics.ece` gives it of a record, with intervals, a test.
    """
    if binning == "mass":
        order = np.argsort(confidence, kind="stable")
        confidence, correct = confidence[order], correct[order]
        weights = None if weights is None else weights[order]
        index = mass_bin_of_rank(len(confidence), bins, weights)
    else:
        index = bin_of(confidence, width_edges(bins))
    gaps, total = confidence - correct, float(len(confidence) if weights is None else weights.sum())
    sums = np.bincount(index, gaps if weights is None else gaps * weights, minlength=bins)
    return float(np.abs(sums).sum() / max(total, 1e-300))
