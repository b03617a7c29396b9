"""Is confidence right for the rows in sight? What they say and how often they are right, with what chance would show;
their reliability curve and risk-coverage; which classes are taken for which, and how sure of it; slices that are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc

from confide.explorer.queries import Query, QueryRunner, StageTable
from confide.explorer.samples import Column
from confide.numerics.binning import width_bin_of, width_edges
from confide.numerics.binomial import EXACT_BELOW, right_tails
from confide.results import LEVEL, TAILS, Z
from confide.types import AnyArray, Floats, Indices

RELIABILITY_BINS = 15
RISK_POINTS = 100
MOST_COUNTED = 2000
"""Samples whose errors are counted one by one for the exact law of their number."""
BY_LABEL = ("label", "outcome", "loss", "verdict", "suggested", "runner_up", "tag", "cells")
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


def row_reliability(runner: QueryRunner, query: Query) -> RowReliability | None:
    """Reliability of the rows that fit; None where it is not known what is right, or how sure the model is."""
    model = query.model_stage
    if model is None or not {"confidence", "outcome"} <= set(model.columns):
        return None
    hits = runner.database.codes(model.columns["outcome"])
    confidence = runner.database.values(model.columns["confidence"])
    rows = np.flatnonzero(runner.fits(query) & (hits > 0))
    sure, right = confidence[rows], (hits[rows] == 2).astype(np.float64)
    known = np.isfinite(sure)
    if not known.all():
        sure, right = sure[known], right[known]
    if not len(sure):
        return None
    return _reliability(sure, right, by_label=_by_label(runner, query))


def _by_label(runner: QueryRunner, query: Query) -> tuple[str, ...]:
    """Titles of the filters that look at the label."""
    keys = dict.fromkeys(f.key for f in query.filters if looks_at_label(runner, f.key))
    return tuple(query.columns[key].title.lower() if key in query.columns else key for key in keys)


def looks_at_label(runner: QueryRunner, key: str) -> bool:
    """Whether a filter on this key chooses by the label, also indirectly."""
    if key != "difficulty":
        return key in BY_LABEL
    from confide.difficulty.base import DIFFICULTY

    method = runner.database.samples.method
    return method not in DIFFICULTY or DIFFICULTY.get(method).spec.labels


def _reliability(sure: Floats, right: Floats, by_label: tuple[str, ...]) -> RowReliability:
    from confide.metrics.influence import Spread, mean_interval

    n, mean, hits = len(sure), float(sure.mean()), float(right.mean())
    gap = mean - hits
    residual = sure - right
    spread = float(residual @ residual) / n - gap * gap
    low, high = mean_interval(gap, Spread(max(spread, 0.0) / max(n - 1, 1), max(n - 1.0, 1.0), n))
    noise = float(sure @ (1 - sure))
    p_value = min(1.0, 2 * min(_tails(int(right.sum()), sure, noise)))
    verdict = "over" if gap > 0 else "under"
    if p_value >= LEVEL:
        verdict = "chance"
    elif low * high <= 0:
        verdict = "unclear"
    if by_label:
        verdict = "chosen"
    return RowReliability(
        n,
        mean,
        hits,
        low,
        high,
        Z * math.sqrt(noise) / n,
        p_value,
        verdict,
        by_label,
        _bins(sure, right),
        _risk(sure, right),
    )


def _tails(right: int, sure: Floats, noise: float) -> tuple[float, float]:
    """P(at most so many right) and P(at least so many) under calibration; quick also where errors are few of many."""
    if len(sure) <= MOST_COUNTED or noise >= EXACT_BELOW:
        return right_tails(right, sure)
    # Rare errors among many: the binomial law of the same mean and variance.
    expected, wrong = float((1 - sure).sum()), len(sure) - right
    trials = max(1.0, round(expected / max(1 - noise / expected, 1e-9))) if expected > 0 else 1.0
    rate = min(expected / trials, 1.0)
    return (1.0 if not wrong else float(bdtrc(wrong - 1, trials, rate))), float(bdtr(wrong, trials, rate))


def _bins(sure: Floats, right: Floats) -> tuple[ReliabilityBin, ...]:
    """Bins of equal width with the band of a calibrated model, as the report draws them."""
    from confide.metrics.resampling import bernoulli_sums
    from confide.random import generator

    bins = RELIABILITY_BINS
    code = width_bin_of(sure, bins)
    count = np.bincount(code, minlength=bins)[:bins].astype(np.float64)
    confidence, hits, noise = (
        np.asarray(np.bincount(code, weights, minlength=bins)[:bins], dtype=np.float64)
        for weights in (sure, right, sure * (1 - sure))
    )
    full = np.maximum(count, 1)
    ends = confidence / full + np.array([[-Z], [Z]]) * np.sqrt(np.maximum(noise, 0)) / full
    few = np.flatnonzero((count > 0) & (noise <= 100))  # a sum with a larger variance is normal
    if len(few):
        wrong = bernoulli_sums((count - confidence)[few], noise[few], generator(0, "reliability band"), 1000)
        ends[:, few] = np.quantile(1 - wrong / count[few], TAILS, axis=0)
    ends = np.clip(ends, 0, 1)
    edges = width_edges(bins)
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


def _risk(sure: Floats, right: Floats) -> tuple[tuple[float, float, float], ...]:
    """Error rate of the most confident against their share, at steps that hold whole ties of confidence."""
    n = len(sure)
    # Ranks by a fine histogram: a sort of a million would take ten times as long.
    fine = 1 << 16
    code = ((1 - sure) * (fine - 1)).astype(np.int64).clip(0, fine - 1)
    accepted = np.cumsum(np.bincount(code, minlength=fine))
    errors = np.cumsum(np.bincount(code, 1 - right, minlength=fine))
    steps = np.unique(np.searchsorted(accepted, np.linspace(n / RISK_POINTS, n, RISK_POINTS).round().clip(1)))
    return tuple(
        (float(accepted[k] / n), float(errors[k] / accepted[k]), float(1 - k / (fine - 1))) for k in steps.tolist()
    )


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
    right = np.bincount(labels[fits & (hits == 2)], minlength=width)
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
NO_SLICE = ("split", "outcome", "label", "confidence", "loss", "suggested", "runner_up", "changes")
"""Columns that make no slices: the label's own, and what confidence itself is judged by."""


@dataclass(frozen=True)
class SliceFilter:
    """A slice: its filters, and confidence against accuracy on the half of its samples that did not choose it."""

    filters: Mapping[str, str]
    names: Mapping[str, str | None]
    """Of the classes among them."""
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


def slice_filters(runner: QueryRunner, query: Query) -> SliceFilters | None:
    """Slices of the rows in the splits of a query, by `find_slices`; None where nothing can be sliced or judged.

    What looks at the label is left out: a calibrated model too has gaps there.
    """
    from confide.evaluation import find_slices
    from confide.predictions import Predictions

    model = query.model_stage
    if model is None or not {"confidence", "outcome"} <= set(model.columns):
        return None
    hits, sure = (runner.database.codes(model.columns["outcome"]), runner.database.values(model.columns["confidence"]))
    splits = [f.key for f in query.filters if f.key != "split"]
    rows = np.flatnonzero(runner.fits(query, splits) & (hits > 0) & np.isfinite(sure))
    attributes = [a for column in query.columns.values() if (a := _attribute(runner, column, rows)) is not None]
    if not attributes or not len(rows):
        return None
    columns: dict[str, AnyArray] = {f"a{k}": np.array(a.filters)[a.index] for k, a in enumerate(attributes)}
    report = find_slices(Predictions.from_pairs(hits[rows] == 2, sure[rows], **columns), by=list(columns))
    conditions = [{attributes[int(what[1:])].column: value for what, value in s.conditions} for s in report.slices]
    name = runner.database.samples.name_of
    return SliceFilters(
        tuple(
            SliceFilter(
                {column.key: value for column, value in chosen.items()},
                {column.key: name(int(value)) for column, value in chosen.items() if column.kind == "class" and value},
                s.n,
                s.confidence,
                s.accuracy,
                s.low,
                s.high,
                s.p_holm,
            )
            for s, chosen in zip(report.slices, conditions, strict=True)
        ),
        report.candidates,
        tuple(a.column.title for a in attributes),
    )


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
