"""Is confidence right for the rows in sight? What they say and how often they are right, with what chance would show;
their reliability curve and risk-coverage; which classes are taken for which, and how sure of it; slices that are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtr

from confide.explorer.layout import Missing
from confide.explorer.projection import MapClusters
from confide.explorer.queries import Query, QueryRunner, SampleDatabase, StageTable
from confide.explorer.samples import Column
from confide.metrics.influence import Influence, Spread, mean_interval, spread_of
from confide.metrics.view import Design
from confide.numerics.binning import width_bin_of, width_edges
from confide.numerics.binomial import EXACT_BELOW, binomial_quantiles, count_tails, matched_binomial, right_tails
from confide.results import LEVEL, TAILS, Z
from confide.types import AnyArray, Flags, Floats, Indices

if TYPE_CHECKING:
    from confide.evaluation import Slice

RELIABILITY_BINS = 15
RISK_POINTS = 100
MOST_COUNTED = 2000
"""Samples whose errors are counted one by one for the exact law of their number."""
BY_LABEL = ("label", "outcome", "loss", "tag", "cells")
"""Filters that look at the label: they choose right and wrong samples apart, so that calibration cannot be judged."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Samples of one bin of confidence, (low, high], and the 95 % band of their accuracy under calibration."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float
    band_low: float
    band_high: float


@dataclass(frozen=True)
class RowReliability:
    """Confidence against accuracy of the rows in sight."""

    n: int
    confidence: float
    accuracy: float
    low: float
    high: float
    """Of confidence minus accuracy, 95 %."""
    chance: float
    """A calibrated model's gap lies within plus or minus this in 95 % of draws."""
    p_value: float
    verdict: str
    """`over`, `under`, `chance` (the gap is within it), `unclear` (its interval holds 0) or `chosen` (by the label)."""
    by_label: tuple[str, ...]
    """Titles of the filters that look at the label."""
    bins: tuple[ReliabilityBin, ...]
    risk: tuple[tuple[float, float, float], ...]
    """Share accepted, their error rate, the confidence that the least sure of them has."""
    units: int | None = None
    """How many were drawn, where several rows were drawn as one."""


@dataclass(frozen=True)
class ConfusedPair:
    """Samples of one class that are taken for another, and how sure the model is of it on average."""

    label: int
    prediction: int
    count: int
    confidence: float


@dataclass(frozen=True)
class Confusion:
    """The classes with most errors, and all pairs among them; further pairs are left to the filters."""

    classes: tuple[tuple[int, str | None], ...]
    pairs: tuple[ConfusedPair, ...]
    right: tuple[int, ...]
    """Right samples by class, in the order of `classes`."""
    wrong: int
    num_classes: int


CELLS = 1024
"""Cells of a bin: they rank confidence more finely than a page can show."""
GROUPS = 2 * RELIABILITY_BINS
Cells = NDArray[np.int32]


def confidence_cells(sure: Floats, right: Flags, known: Flags | None = None) -> Cells:
    """(bin, right or wrong, cell of the bin) as one number a row; the last number for rows of which it is not known."""
    place = width_bin_of(sure, RELIABILITY_BINS)
    cell = ((sure * RELIABILITY_BINS - place) * CELLS).astype(np.int32).clip(0, CELLS - 1)
    cells = (2 * place + right).astype(np.int32) * CELLS + cell
    return cells if known is None else np.where(known, cells, np.int32(GROUPS * CELLS))


@dataclass(frozen=True)
class ConfidenceSums:
    """What reliability is computed from: counts by bin, outcome and cell; sums of powers of confidence by bin, outcome.

    Those of rows that are left out can be subtracted.
    """

    count: Floats
    powers: Floats

    @classmethod
    def of(cls, sure: Floats, cells: Cells) -> ConfidenceSums:
        """Of samples and their cells."""
        count = np.bincount(cells, minlength=GROUPS * CELLS + 1)[:-1].astype(np.float64)
        group, square = cells // CELLS, sure * sure
        powers = [np.bincount(group, w, minlength=GROUPS + 1)[:-1] for w in (sure, square, square * sure)]
        return cls(
            count.reshape(RELIABILITY_BINS, 2, CELLS),
            np.array(powers, dtype=np.float64).reshape(3, RELIABILITY_BINS, 2),
        )

    def __sub__(self, other: ConfidenceSums) -> ConfidenceSums:
        return ConfidenceSums(self.count - other.count, self.powers - other.powers)


def row_reliability(runner: QueryRunner, query: Query) -> RowReliability | None:
    """Reliability of the rows that fit; None where it is not known what is right, or how sure the model is."""
    model = query.model_stage
    if model is None or not {"confidence", "outcome"} <= set(model.columns):
        return None
    sure, cells = _known_cells(runner.database, model)
    chosen = runner.rows(query)
    sums = ConfidenceSums.of(sure.take(chosen.rows), cells.take(chosen.rows))
    if chosen.inverted:
        whole = runner.database.derived(("confidence sums", model.table), lambda: ConfidenceSums.of(sure, cells))
        sums = whole - sums
    if not sums.count.any():
        return None
    by_label, units = _by_label(runner, query), runner.database.units()
    if units is not None:
        rows = np.flatnonzero(runner.fits(query) & (cells < GROUPS * CELLS))
        right = cells.take(rows) // CELLS % 2
        spread = _unit_spread(sure.take(rows) - right, units.take(rows))
        number = len(np.unique(units.take(rows)))
        return replace(reliability_of(sums, by_label, spread=spread), units=number)
    few = sure[runner.fits(query) & (cells < GROUPS * CELLS)] if sums.count.sum() <= MOST_COUNTED else None
    return reliability_of(sums, by_label, few)


def _unit_spread(gaps: Floats, units: Indices) -> Spread:
    """How far the mean of confidence less correctness spreads where rows of a unit were drawn as one."""
    design = Design(clusters=units)
    if design.single:  # one image says nothing of another
        return Spread(math.inf, 1.0, 1.0)
    return spread_of(Influence(gaps - gaps.mean()), design)


def _known_cells(database: SampleDatabase, model: StageTable) -> tuple[Floats, Cells]:
    """Confidence, 0 where it is not known, and the cells of all rows."""

    def compute() -> tuple[Floats, Cells]:
        hits, sure = database.codes(model.columns["outcome"]), database.values(model.columns["confidence"])
        known = (hits > 0) & np.isfinite(sure)
        sure = np.where(known, sure, 0.0)
        return sure, confidence_cells(sure, hits == 2, known)

    return database.derived(("cells", model.table), compute)


def _by_label(runner: QueryRunner, query: Query) -> tuple[str, ...]:
    """Titles of the filters that look at the label."""
    keys = dict.fromkeys(f.key for f in query.filters if looks_at_label(runner, f.key))
    return tuple(query.columns[key].inside if key in query.columns else key for key in keys)


def looks_at_label(runner: QueryRunner, key: str) -> bool:
    """Whether a filter on this key chooses by the label, also indirectly."""
    from confide.difficulty.base import looks_at_labels
    from confide.difficulty.label_errors import LABEL_COLUMNS

    if key == "difficulty":
        return looks_at_labels(str(runner.database.samples.method))
    return key in BY_LABEL or key.removeprefix("c.") in LABEL_COLUMNS


def reliability_of(
    sums: ConfidenceSums, by_label: tuple[str, ...] = (), few: Floats | None = None, spread: Spread | None = None
) -> RowReliability:
    """Reliability from sums.

    Args:
        by_label: titles of the filters that look at the label.
        few: the confidences, where they are few enough to count errors one by one.
        spread: of the gap, where several rows were drawn as one; what chance shows is widened as the gap is.
    """
    first, second, third = (float(power.sum()) for power in sums.powers)
    n, right = int(sums.count.sum()), int(sums.count[:, 1].sum())
    gap, noise = (first - right) / n, max(first - second, 0.0)
    variance = (second - 2 * float(sums.powers[0, :, 1].sum()) + right) / n - gap * gap
    alone, effect = Spread(max(variance, 0.0) / max(n - 1, 1), max(n - 1.0, 1.0), n), 1.0
    if spread is not None and math.isinf(spread.variance):
        effect = float(n)
    elif spread is not None and alone.variance > 0:
        effect = math.sqrt(max(spread.variance / alone.variance, 1.0))
    low, high = (max(min(end, 1.0), -1.0) for end in mean_interval(gap, spread or alone))
    chance = min(Z * math.sqrt(noise) / n * effect, 1.0)
    if spread is not None:
        error = chance / Z
        tails = (0.5, 0.5) if error == 0 or effect == n else (float(ndtr(-gap / error)), float(ndtr(gap / error)))
    elif few is not None:
        tails = right_tails(right, few)
    elif noise >= EXACT_BELOW:
        tails = count_tails(right, first, noise, first - 3 * second + 2 * third)
    else:
        tails = _rare_tails(n - right, n - first, noise)
    p_value = min(1.0, 2 * min(tails))
    verdict = "over" if gap > 0 else "under"
    if p_value >= LEVEL:
        verdict = "chance"
    elif low * high <= 0:
        verdict = "unclear"
    if by_label:
        verdict = "chosen"
    bins, risk = _bins(sums, effect), _risk(sums)
    return RowReliability(n, first / n, right / n, low, high, chance, p_value, verdict, by_label, bins, risk)


def _rare_tails(wrong: int, expected: float, noise: float) -> tuple[float, float]:
    """P(at most so many right) and P(at least) where errors are rare among many: the binomial law of their moments."""
    trials, rate = matched_binomial(np.array(expected), np.array(noise))
    return (1.0 if not wrong else float(bdtrc(wrong - 1, trials, rate))), float(bdtr(wrong, trials, rate))


def _bins(sums: ConfidenceSums, effect: float) -> tuple[ReliabilityBin, ...]:
    """Bins of equal width with the band of a calibrated model, as the report draws them, so much wider."""
    count, hits = sums.count.sum((1, 2)), sums.count[:, 1].sum(1)
    confidence, square = sums.powers[:2].sum(2)
    noise = np.maximum(confidence - square, 0.0)
    full = np.maximum(count, 1)
    ends = confidence / full + np.array([[-Z], [Z]]) * np.sqrt(noise) / full
    few = np.flatnonzero((count > 0) & (noise <= 100))  # a sum with a larger variance is normal
    wrong = binomial_quantiles(*matched_binomial((count - confidence)[few], noise[few]), TAILS)
    ends[:, few] = 1 - wrong[::-1] / count[few]
    ends = np.clip(confidence / full + (ends - confidence / full) * effect, 0, 1)
    edges = width_edges(RELIABILITY_BINS)
    return tuple(
        ReliabilityBin(
            float(edges[k]),
            float(edges[k + 1]),
            int(count[k]),
            float(confidence[k] / full[k]),
            float(hits[k] / full[k]),
            float(ends[0, k]),
            float(ends[1, k]),
        )
        for k in np.flatnonzero(count)
    )


def _risk(sums: ConfidenceSums) -> tuple[tuple[float, float, float], ...]:
    """Error rate of the most confident against their share, at steps that hold whole cells of confidence."""
    wrong, right = (sums.count[:, k].ravel()[::-1] for k in (0, 1))
    accepted, errors = np.cumsum(wrong + right), np.cumsum(wrong)
    n = accepted[-1]
    steps = np.unique(np.searchsorted(accepted, np.linspace(n / RISK_POINTS, n, RISK_POINTS).round().clip(1)))
    share, risk = accepted[steps] / n, errors[steps] / accepted[steps]
    least_sure = 1 - (steps + 1) / len(accepted)
    return tuple(zip(share.tolist(), risk.tolist(), least_sure.tolist(), strict=True))


MAX_CONFUSED = 20
"""Classes of the matrix; of more, those with most errors."""


def confusion(runner: QueryRunner, query: Query) -> Confusion | None:
    """Which classes are taken for which, among the rows that fit all filters but those on label and prediction."""
    model = query.model_stage
    if model is None or "label" not in query.columns or "prediction" not in query.columns:
        return None
    fits = runner.fits(query, ("label", "prediction", "outcome"))
    labels, predictions = (runner.database.codes(query.columns[key]) for key in ("label", "prediction"))
    hits = runner.database.codes(model.columns["outcome"])
    samples = runner.database.samples
    errors = np.flatnonzero(fits & (hits == 1) & (labels > 0) & (predictions > 0))
    width = samples.num_classes + 1
    pairs, place = np.unique(labels[errors].astype(np.int64) * width + predictions[errors], return_inverse=True)
    counts = np.bincount(place, minlength=len(pairs))
    sums = _sure_of(runner, model, errors, place, len(pairs))
    true, taken = pairs // width - 1, pairs % width - 1
    involved = np.bincount(np.concatenate((true, taken)), np.tile(counts, 2), minlength=1)
    worst = np.argsort(-involved, kind="stable")[: min(MAX_CONFUSED, int((involved > 0).sum()))]
    shown = sorted(worst.tolist())
    if samples.num_classes <= MAX_CONFUSED:
        shown = list(range(samples.num_classes))
    right = np.bincount(labels.take(np.flatnonzero(fits & (hits == 2))), minlength=width)
    both_shown = np.isin(true, shown) & np.isin(taken, shown)
    return Confusion(
        tuple((k, samples.name_of(k)) for k in shown),
        tuple(
            ConfusedPair(int(true[k]), int(taken[k]), int(counts[k]), float(sums[k] / counts[k]))
            for k in np.flatnonzero(both_shown)
        ),
        tuple(int(right[k + 1]) for k in shown),
        len(errors),
        samples.num_classes,
    )


def _sure_of(runner: QueryRunner, model: StageTable, rows: Indices, place: Indices, length: int) -> Floats:
    """Sums of confidence by group of rows."""
    column = model.columns.get("confidence")
    if column is None:
        return np.full(length, np.nan)
    return np.asarray(np.bincount(place, runner.database.values(column)[rows], minlength=length), dtype=np.float64)


# Slices whose confidence is wrong beyond chance, each with the filters that show its samples.

FIFTHS = (0.2, 0.4, 0.6, 0.8)
ON_MAP = Column("lasso", "cluster of the map", "", "lasso")
NO_SLICE = ("split", "outcome", "label", "confidence", "loss", "suggested", "runner_up", "changes")
"""Columns that make no slices: the label's own, and what confidence itself is judged by."""


@dataclass(frozen=True)
class SliceFilter:
    """A slice: its filters, and confidence against accuracy on the half of its samples that did not choose it."""

    filters: Mapping[str, str]
    names: Mapping[str, str | None]
    """Of the classes and clusters among them."""
    n: int
    confidence: float
    accuracy: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class SliceFilters:
    """The slices, the clearest first, and how many were looked at."""

    slices: tuple[SliceFilter, ...]
    candidates: int
    attributes: tuple[str, ...]


@dataclass(frozen=True)
class _Attribute:
    """A column as words to slice by, and the filter that each word stands for."""

    column: Column
    index: Indices
    filters: tuple[str, ...]


def slice_filters(
    runner: QueryRunner, query: Query, clusters: MapClusters | None = None
) -> SliceFilters | Missing | None:
    """Slices of the rows in the splits of a query, by `find_slices`; None where nothing can be sliced or judged.

    What looks at the label is left out: a calibrated model too has gaps there; clusters of the map are looked at where
    they are known. Missing where several rows were drawn as one.
    """
    from confide.evaluation import find_slices
    from confide.predictions import Predictions

    model, samples = query.model_stage, runner.database.samples
    if model is None or not {"confidence", "outcome"} <= set(model.columns):
        return None
    if samples.unit is not None:
        unit = samples.columns[samples.unit].title
        why = f"They count samples drawn one by one, but those of one '{unit}' were drawn together."
        return Missing("Slices", why, "")
    hits, sure = (runner.database.codes(model.columns["outcome"]), runner.database.values(model.columns["confidence"]))
    splits = [f.key for f in query.filters if f.key != "split"]
    rows = np.flatnonzero(runner.fits(query, splits) & (hits > 0) & np.isfinite(sure))
    attributes = [a for column in query.columns.values() if (a := _attribute(runner, column, rows)) is not None]
    if clusters is not None and len(rows) and clusters.index[rows].min() >= 0:
        attributes.append(_Attribute(ON_MAP, clusters.index[rows], clusters.lassos))
    if not attributes or not len(rows):
        return None
    columns: dict[str, AnyArray] = {f"a{k}": np.array(a.filters)[a.index] for k, a in enumerate(attributes)}
    report = find_slices(Predictions.from_pairs(hits[rows] == 2, sure[rows], **columns), by=list(columns))
    conditions = [{attributes[int(what[1:])].column: value for what, value in s.conditions} for s in report.slices]

    def named(column: Column, value: str) -> str | None:
        """What a class or a cluster is called."""
        if clusters is not None and column is ON_MAP:
            return f"cluster {clusters.lassos.index(value) + 1} of the map"
        return samples.name_of(int(value))

    def slice_of(own: Slice, chosen: Mapping[Column, str]) -> SliceFilter:
        filters = {column.key: value for column, value in chosen.items()}
        of_names = [column for column in chosen if column is ON_MAP or (column.kind == "class" and chosen[column])]
        names = {column.key: named(column, chosen[column]) for column in of_names}
        return SliceFilter(filters, names, own.n, own.confidence, own.accuracy, own.low, own.high, own.p_holm)

    slices = tuple(slice_of(own, chosen) for own, chosen in zip(report.slices, conditions, strict=True))
    return SliceFilters(slices, report.candidates, tuple(a.column.inside for a in attributes))


def _attribute(runner: QueryRunner, column: Column, rows: Indices) -> _Attribute | None:
    """A column's values, or its fifths where it is of numbers; None for what makes no slices."""
    if column.key in NO_SLICE or column.kind == "text" or looks_at_label(runner, column.key):
        return None
    if column.kind == "number":
        values = runner.database.values(column)[rows]
        if not np.isfinite(values).all():
            return None
        edges = np.unique(np.quantile(values, FIFTHS))
        # The ends of a filter belong to it: a fifth begins just above the one below.
        lows = ["", *(repr(float(np.nextafter(edge, np.inf))) for edge in edges)]
        highs = [*(repr(float(edge)) for edge in edges), ""]
        spans = tuple(f"{low}..{high}" for low, high in zip(lows, highs, strict=True))
        return _Attribute(column, np.searchsorted(edges, values, side="left"), spans)
    codes = runner.database.codes(column)[rows].astype(np.intp)
    count = runner.database.samples.num_classes if column.kind == "class" else len(column.values)
    words = [str(k) for k in range(count)] if column.kind == "class" else list(column.values)
    return _Attribute(column, codes, ("", *words)) if 1 < len(np.unique(codes)) <= 1000 else None
