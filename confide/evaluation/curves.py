"""Curves of an evaluation: reliability, risk-coverage, confidence and difficulty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED_FLOAT64, rows_in
from confide.metrics.calibration import Binned, Smoother
from confide.metrics.intervals import unit_effect
from confide.metrics.resampling import bernoulli_sums, null_from
from confide.metrics.view import MetricSamples, Sorted, View, score_values, sort_with_order
from confide.numerics.arrays import searched, taken
from confide.numerics.binning import binned_error, binned_errors, mass_starts, width_edges
from confide.numerics.binomial import wilson_interval
from confide.random import generator
from confide.results import TAILS, Curve, Z
from confide.types import AnyArray, Floats, Indices

MOST_POINTS = 300
RELIABILITY_BINS = (10, 15, 20)
Origin: TypeAlias = Mapping[str, str]
"""What a curve belongs to: its model, stage and split, by the names of its fields."""
NO_ORIGIN: Origin = MappingProxyType({})


def all_curves(
    view: View, scores: Mapping[str, AnyArray], difficulty: Floats | None, bands: bool, seed: int, origin: Origin
) -> list[Curve]:
    """Every curve that these samples allow, for the plain confidence and the other scores."""
    curves = [
        reliability(view, binning, bins, bands, seed, origin)
        for binning in ("width", "mass")
        for bins in RELIABILITY_BINS
    ]
    curves.append(smooth_reliability(view, bands, origin))
    curves += [risk_coverage(view, score, name, bands, origin) for name, score in scores.items()]
    curves.append(histogram(view, "msp", None, origin))
    others = [(name, score) for name, score in scores.items() if name not in ("msp", "entropy")]
    curves += [histogram(view, score, name, origin) for name, score in others]
    if difficulty is not None:
        curves += difficulty_curves(difficulty, view.base.wrong, view.weights, origin)
    return curves


def reliability(view: View, binning: str, bins: int, bands: bool, seed: int, origin: Origin = NO_ORIGIN) -> Curve:
    """Mean confidence and accuracy per bin, with the 95 % band of a perfectly calibrated model, and what that model
    would show of the calibration error in these bins.
    """
    base, sums = view.base, view.bins(binning, bins)
    full = sums.count > 0
    count = np.where(full, sums.count, 1)
    confidence = np.where(full, sums.confidence / count, np.nan)
    accuracy = np.where(full, sums.correct / count, np.nan)
    edges = width_edges(bins) if binning == "width" else _mass_edges(base, bins)
    columns = {"low": edges[:-1], "high": edges[1:], "confidence": confidence, "accuracy": accuracy}
    columns["count"] = sums.count
    if not bands:
        columns |= {"band_low": np.full(bins, np.nan), "band_high": np.full(bins, np.nan)}
        return Curve.of(f"reliability_{binning}", columns, **origin)
    low, high, drawn = _bands(view, binning, bins, seed)
    null = null_from(binned_error(sums, 1), drawn)
    columns |= {"band_low": low, "band_high": high, "chance": np.full(bins, null.mean)}
    columns |= {"chance_high": np.full(bins, null.high), "p_value": np.full(bins, null.p_value)}
    return Curve.of(f"reliability_{binning}", columns, **origin)


def _mass_edges(base: MetricSamples, bins: int) -> Floats:
    places = base.n - 1 - np.minimum(mass_starts(base.n, bins), base.n - 1)  # from the most confident on
    return np.asarray(base.sorted_there("msp").at(places), dtype=np.float64)


DRAWS = 1000


def _bands(view: View, binning: str, bins: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """If correctness were Bernoulli(confidence): 2.5 % and 97.5 % of the accuracy in each bin, from the lowest, and
    draws of the calibration error over the bins.
    """
    base, rng = view.base, generator(seed, "reliability band")
    if view.weights is not None or base.design.clusters is not None:
        part = Binned.of(view, bins, binning)
        gaps, count = part.chance_gaps(DRAWS, rng)
        full = np.where(count > 0, count, 1.0)
        low, high = np.quantile((part.sums(part.sure) - gaps) / full, TAILS, axis=0)
        low, high = (np.where(count > 0, np.clip(end, 0, 1), np.nan) for end in (low, high))
        return low, high, binned_errors(gaps, count, 1)
    at = base.positions(binning, bins, "right")[::-1]  # positions from the most confident on
    starts = base.n - at
    sure, variance = (-np.diff(base.sums_of(name, at)) for name in ("confidence", "variance"))
    variance = np.maximum(variance, 0.0)
    count = np.diff(starts).astype(np.float64)
    full = np.maximum(count, 1)
    ends = sure / full + np.array([[-Z], [Z]]) * np.sqrt(variance) / full
    gaps = rng.standard_normal((DRAWS, bins)) * np.sqrt(variance)
    few = np.flatnonzero((count > 0) & (variance <= 100))  # a sum with a larger variance is normal
    if len(few):
        wrong = bernoulli_sums((count - sure)[few], variance[few], rng, DRAWS)
        ends[:, few] = np.quantile(1 - wrong / count[few], TAILS, axis=0)
        gaps[:, few] = np.minimum(wrong, count[few]) - (count - sure)[few]
    low, high = np.where(count > 0, np.clip(ends, 0, 1), np.nan)
    return low, high, binned_errors(gaps, count, 1)


SMOOTH_CELLS = 4000
SMOOTH_AT = np.union1d(np.linspace(0, 1, 101), np.linspace(0.8, 1, 101).round(3))
"""Where the curve without bins is kept: every point of confidence, and every fifth of one from 80 % on."""
SMOOTH_PLACES = np.rint(SMOOTH_AT * SMOOTH_CELLS).astype(np.intp)
FEWEST_SMOOTHED = 15


def smooth_reliability(view: View, bands: bool, origin: Origin = NO_ORIGIN) -> Curve:
    """Accuracy against confidence t without bins: t minus the mean of confidence minus correctness around t.

    The mean is weighted by a Gaussian kernel, reflected at 0 and 1, of width n^(-1/3) / 2, at least 0.005. Residuals
    are smoothed and not the accuracy itself, so that a calibrated model's curve lies on the diagonal at every width.
    The band holds it at 95 of 100 confidences on average; points with too few samples around them, and those that no
    sample reaches, are left out.
    """
    masses, worth = _grid_masses(view, bands)
    worth /= unit_effect(view) ** 2
    width = max(0.5 * worth ** (-1 / 3), 0.005)
    mass, pull = Smoother(masses[:2]).at(SMOOTH_PLACES, width)
    # As many samples of equal weight would leave the same noise.
    count = 2 * math.sqrt(math.pi) * width * mass
    reached = np.flatnonzero(masses[0])
    enough = (count >= FEWEST_SMOOTHED) & (reached[0] <= SMOOTH_PLACES) & (reached[-1] >= SMOOTH_PLACES)
    sure_at, mass = SMOOTH_AT[enough], mass[enough]
    columns = {"confidence": sure_at, "accuracy": np.clip(sure_at - pull[enough] / mass, 0, 1), "count": count[enough]}
    columns["width"] = np.full(len(sure_at), width)
    if bands:
        if view.base.design.clusters is None:
            noise = _squared_kernel(masses[2], width)[SMOOTH_PLACES][enough]
            half = Z * np.sqrt(np.maximum(noise, 0)) / mass
        else:
            half = _unit_band(view, SMOOTH_PLACES[enough], columns["accuracy"], width)
        columns |= {"band_low": np.clip(sure_at - half, 0, 1), "band_high": np.clip(sure_at + half, 0, 1)}
    return Curve.of("reliability_smooth", columns, **origin)


def _grid_masses(view: View, bands: bool) -> tuple[Floats, float]:
    """Sums of weight, residual and, for bands, variance of the samples nearest to each grid point; and how many samples
    of equal weight there are.

    Samples are sorted, so that without weights these are differences of the running sums that bins are made of.
    """
    base = view.base
    if view.weights is not None:
        sure, wrong, weights = view.weighted_top()
        place = np.rint(sure * SMOOTH_CELLS).astype(np.intp)
        parts = (weights, weights * (sure - ~wrong), weights**2 * sure * (1 - sure))
        masses = np.array([np.bincount(place, part, minlength=SMOOTH_CELLS + 1) for part in parts])
        return masses, float(weights.sum()) ** 2 / float(weights @ weights)
    starts = _cell_starts(base.sorted_there("msp"))
    at = base.n - np.concatenate(([0], starts, [base.n]))  # positions from the most confident on
    count, errors, confidence = view.sums_before(at)
    sums = [count, confidence - count + errors]
    if bands:
        sums.append(base.sums_of("variance", at))
    return -np.diff(sums), float(base.n)


def _unit_band(view: View, places: Indices, accuracy: Floats, width: float) -> Floats:
    """Half the band of a curve at grid points, from what every unit that was drawn adds to it.

    Residuals are taken from the curve itself, so that it is the noise of a calibrated model and not its error. At each
    point the units are worth k = (sum w)^2 / sum w^2 of equal weight (Kish, 1965); t with k - 1 degrees of freedom.
    """
    from scipy.sparse import csr_array
    from scipy.special import stdtrit

    clusters, weights = view.base.design.clusters, np.ones(view.base.n) if view.weights is None else view.weights
    assert clusters is not None
    unit = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    sure, at = view.base.vector("sureness"), places / SMOOTH_CELLS
    residual = weights * (view.base.vector("correct") - np.interp(sure, at, accuracy))
    where = unit, np.rint(sure * SMOOTH_CELLS).astype(np.intp)
    shape = int(unit.max()) + 1, SMOOTH_CELLS + 1
    grid = np.linspace(0, 1, SMOOTH_CELLS + 1)[:, None]
    kernel = sum(np.exp(-(((grid - mirrored) / width) ** 2) / 2) for mirrored in (at, -at, 2 - at))
    noise, mass, squares = np.zeros((3, len(at)))
    sums, masses = (csr_array((values, where), shape=shape) for values in (residual, weights))
    together = rows_in(CACHED_FLOAT64, len(at))
    for first in range(0, shape[0], together):
        part = slice(first, first + together)
        of_units = masses[part] @ kernel
        noise += ((sums[part] @ kernel) ** 2).sum(axis=0)
        mass += of_units.sum(axis=0)
        squares += (of_units**2).sum(axis=0)
    worth = np.maximum(mass**2 / squares, 1 + 1e-9)
    return np.asarray(stdtrit(worth - 1, TAILS[1]) * np.sqrt(noise * worth / (worth - 1)) / mass)


SMOOTH_EDGES = (np.arange(1, SMOOTH_CELLS + 1) - 0.5) / SMOOTH_CELLS
MANY_IN_CELLS = 1 << 15
"""Of more samples it takes longer to find the cell of each than where each cell begins."""


def _cell_starts(ordered: Sorted) -> Indices:
    """The first of the rising confidences that lies above each edge between grid points, or on it."""
    if len(ordered) > MANY_IN_CELLS or isinstance(ordered.stored, Tensor):
        return ordered.below(SMOOTH_EDGES, closed=False)
    rising = ordered.values[::-1]
    place = np.multiply(rising, SMOOTH_CELLS, dtype=np.float64)
    cell = np.rint(place)
    place -= cell
    cells = cell.astype(np.intp)
    near = np.flatnonzero(np.abs(place, out=place) > 0.499999)  # rounding could put these beside an edge
    cells[near] = np.searchsorted(SMOOTH_EDGES, rising[near], side="right")
    return np.cumsum(np.bincount(cells, minlength=SMOOTH_CELLS + 1))[:-1]


def _squared_kernel(masses: Floats, width: float) -> Floats:
    """Masses on the grid, each spread by the square of the reflected kernel."""
    # A squared Gaussian of width s is one of width s / sqrt 2, over 2 s sqrt pi.
    spread = Smoother(masses).curve(width / math.sqrt(2)) / (2 * math.sqrt(math.pi) * width)
    grid = np.linspace(0, 1, len(masses))
    for end in (0.0, 1.0):
        # Near an end a sample and its mirror image count together: twice their product.
        near = np.exp(-(((grid - end) / width) ** 2))
        spread += 2 * float(masses @ near) * near / (2 * math.pi * width**2)
    return spread


@lru_cache(maxsize=4)
def _spaced_ranks(n: int) -> Indices:
    """At most 300 ranks from the first to the last; both scores of an evaluation ask for the same."""
    return np.unique(np.linspace(1, n, MOST_POINTS).round().astype(np.intp)) - 1


def risk_coverage(view: View, score: Any, name: str, bands: bool, origin: Origin = NO_ORIGIN) -> Curve:
    """Error rate among accepted samples against their share, at no more than 300 thresholds, the last accepts all.

    Its band is Wilson's 95 % interval at each threshold alone.
    """
    base = view.base
    ranks, ordered = view.ranks(score), base.sorted_there(score)
    at = _spaced_ranks(base.n)
    if ordered.has_ties:
        segment = searched(ordered.reached, at, "right")
        at = np.unique(np.where(taken(ordered.tied, segment), taken(ordered.reached, segment) - 1, at))
    accepted = at + 1.0
    if (weights := view.in_order(ordered)) is not None:
        accepted = np.cumsum(weights)[at]
    errors = ranks.errors_at(accepted)
    risk = errors / accepted
    columns = {"coverage": accepted / ranks.n, "risk": risk, "threshold": ordered.at(at)}
    if bands:
        draws = _draws_accepted(view, score, at, risk)
        ends = [wilson_interval(*pair, Z) for pair in zip(risk.tolist(), draws.tolist(), strict=True)]
        columns["risk_low"], columns["risk_high"] = np.array(ends).T.round(6)  # to draw: a report holds every digit
    return Curve.of("risk_coverage", columns, score=name, **origin)


def _draws_accepted(view: View, score: Any, at: Indices, risk: Floats) -> Floats:
    """How many independent samples of equal weight the accepted ones up to each position are worth.

    Weighted ones are worth (sum w)^2 / sum w^2 (Kish, 1965). Where units were drawn, the error rate varies as its sums
    over units do: sum_u (E_u - risk A_u)^2 / A^2, with the weights accepted A_u and wrong E_u of every unit.
    """
    base, clusters = view.base, view.base.design.clusters
    if view.weights is None and clusters is None:
        return at.astype(np.float64) + 1
    ordered = sort_with_order(score_values(base.predictions, base.rows_of(score)), base.wrong)
    assert ordered.order is not None
    weights = np.ones(base.n) if view.weights is None else view.weights[ordered.order]
    total = np.cumsum(weights)[at]
    alone = total**2 / np.cumsum(weights**2)[at]
    if clusters is None:
        return np.asarray(alone)
    wrong = weights * ordered.wrong
    unit = clusters[ordered.order]
    before, wrong_before = (_sums_before(unit, values) for values in (weights, wrong))
    squares = np.cumsum(weights * (2 * before + weights))[at]
    errors = np.cumsum(wrong * (2 * wrong_before + wrong))[at]
    both = np.cumsum(weights * wrong_before + wrong * before + weights * wrong)[at]
    variance = np.maximum(errors - 2 * risk * both + risk**2 * squares, 0.0) / total**2
    # Between units whose samples are all alike and samples that were drawn one by one.
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = np.where(variance > 0, risk * (1 - risk) / variance, 0.0)
    return np.asarray(np.clip(draws, total**2 / squares, alone))


def _sums_before(unit: Indices, values: Floats) -> Floats:
    """For every place the sum of the earlier values of its own unit."""
    order = np.argsort(unit, kind="stable")
    running = np.cumsum(values[order]) - values[order]
    first = np.flatnonzero(np.diff(unit[order], prepend=unit[order[0]] - 1))
    sums = np.empty_like(running)
    sums[order] = running - np.repeat(running[first], np.diff(first, append=len(order)))
    return sums


def histogram(view: View, score: Any, name: str | None, origin: Origin = NO_ORIGIN, bins: int = 20) -> Curve:
    """How many right and wrong samples have which confidence or score; bins are (low, high]."""
    ordered, ranks = view.base.sorted_there(score), view.ranks(score)
    edges, (largest, smallest) = width_edges(bins), ordered.at(np.array([0, -1]))
    if name is not None and not (smallest >= 0 and largest <= 1):
        edges = np.linspace(smallest, largest if largest > smallest else smallest + 1, bins + 1)
    below = ordered.below(edges[1:-1], closed=True)
    above = np.concatenate(([len(ordered)], len(ordered) - below, [0])).astype(np.float64)
    if (weights := view.in_order(ordered)) is not None:
        above = np.append(0.0, np.cumsum(weights))[above.astype(np.intp)]
    errors = ranks.errors_at(above)
    wrong = -np.diff(errors)
    right = -np.diff(above) - wrong
    columns = {"low": edges[:-1], "high": edges[1:], "right": right, "wrong": wrong}
    return Curve.of("confidence_histogram", columns, score=name, **origin)


def difficulty_curves(
    difficulty: Floats,
    wrong: NDArray[np.bool_],
    weights: Floats | None = None,
    origin: Origin = NO_ORIGIN,
    groups: int = 10,
) -> list[Curve]:
    """How difficulty is spread, and the error rate in each tenth of it with Wilson's interval."""
    order = np.argsort(difficulty, kind="stable")
    starts = np.unique(mass_starts(len(order), min(groups, len(order))))
    rows = []
    for begin, end in pairwise(starts):
        part = order[begin:end]
        own = np.ones(len(part)) if weights is None else weights[part]
        rate = float(wrong[part] @ own / own.sum())
        ends = difficulty[part[0]], difficulty[part[-1]]
        rows.append((*ends, rate, *wilson_interval(rate, float(own.sum() ** 2 / (own @ own)), Z), len(part)))
    names = ("low", "high", "error", "error_low", "error_high", "count")
    counts, edges = np.histogram(difficulty, bins=30, weights=weights)
    return [
        Curve.of("error_by_difficulty", dict(zip(names, zip(*rows, strict=True), strict=True)), **origin),
        Curve.of("difficulty_histogram", {"low": edges[:-1], "high": edges[1:], "count": counts}, **origin),
    ]
