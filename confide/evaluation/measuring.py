"""Numbers of one set of samples: values, one bootstrap and one null for all of them, rows of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.predictions import Predictions
from confide.core.registry import Method
from confide.core.results import Measurement
from confide.evaluation.groups import Grouping, facts_for_means, group_means
from confide.metrics.family import METRICS, label_of, note_of, value_of
from confide.metrics.resampling import Null, Statistic, bootstrap, interval_from, nulls, whole_interval, whole_null
from confide.metrics.view import Base, View

MOST_FOR_SLOW = 5_000
COSTLY_RESAMPLES = 200  # of sweep and smooth ECE, which are searches themselves

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """One number to compute: a metric with its options, and the name of its score."""

    method: Method
    options: dict[str, Any]
    score: str | None = None

    @property
    def calibration(self) -> bool:
        return bool(self.method.facts["kind"] == "calibration")

    @property
    def whole(self) -> bool:
        """Needs all probabilities again for every resample, so it has no bootstrap here."""
        return bool(self.method.facts.get("whole"))

    @property
    def costly(self) -> bool:
        """Takes far longer than a sorted score's metrics, so it gets fewer resamples."""
        return bool(self.method.facts.get("costly"))

    def __call__(self, view: View) -> float:
        return value_of(self.method, view, self.options)


@dataclass(frozen=True)
class Tag:
    """What the rows of one evaluation have in common."""

    model: str
    stage: str
    split: str | None


def lacking(method: Method, predictions: Predictions) -> str:
    """Why a metric cannot be computed from these predictions; empty where it can."""
    if method.word in ("nll", "brier") and predictions.facts.nll is None:
        return "needs all probabilities"
    if method.facts.get("whole") and predictions.top1 is not None:
        return "needs all probabilities"
    table = method.word == "classwise_ece" and predictions.given_table is not None
    if method.facts.get("whole") and predictions.given is not None and not table:
        return "needs all probabilities in memory"
    if method.facts.get("slow") and len(predictions) > MOST_FOR_SLOW:
        return f"takes n x n steps, and there are more than {MOST_FOR_SLOW:,} samples; ask for it by its name"
    return ""


def measurements(
    base: Base, asked: Sequence[Asked], tag: Tag, seed: int, resamples: int, groups: Sequence[Grouping] = ()
) -> list[Measurement]:
    """All measurements of one set of samples; one bootstrap and one null serve them all."""
    view = View(base)
    values = [a(view) for a in asked]
    means = [group_means(view, g) for g in groups]
    if not resamples:
        rows = [row_of(a, v, base.n, tag) for a, v in zip(asked, values, strict=True)]
        return rows + [m for g, v in zip(groups, means, strict=True) for m in mean_rows(base, g, v, None, tag)]
    draws = resampled(base, asked, seed, resamples, groups)
    tests = calibration_tests(
        base, [(a, v) for a, v in zip(asked, values, strict=True) if a.calibration], seed, resamples
    )
    rows = []
    for a, value in zip(asked, values, strict=True):
        null = tests.get(id(a))
        if a.whole:
            bounds = whole_interval(a.method, base.predictions, a.options, value, null, seed)
        else:
            bounds = interval_from(a.method, value, base.n, draws.rows[id(a)], null, draws.factor)
        rows.append(row_of(a, value, base.n, tag, bounds, null))
    for grouping, mean in zip(groups, means, strict=True):
        rows += mean_rows(base, grouping, mean, draws.rows[id(grouping)], tag, draws.factor)
    return rows


@dataclass(frozen=True)
class Draws:
    """Bootstrap draws by the identity of what was asked, and the factor of their spread."""

    rows: dict[int, Floats]
    factor: float


def resampled(base: Base, asked: Sequence[Asked], seed: int, resamples: int, groups: Sequence[Grouping]) -> Draws:
    """One bootstrap for all that is quick, another with fewer resamples for what is a search itself."""
    light = [a for a in asked if not a.whole and not a.costly]
    statistics: list[Statistic] = [*light, *(partial(group_means, grouping=g) for g in groups)]
    drawn, factor = bootstrap(base, statistics, resamples=resamples, seed=seed)
    rows = {id(a): drawn[k] for k, a in enumerate(light)}
    begin = len(light)
    for grouping in groups:
        size = len(grouping.names) * len(facts_for_means(base.predictions))
        rows[id(grouping)] = drawn[begin : begin + size]
        begin += size
    costly = [a for a in asked if not a.whole and a.costly]
    if costly:
        drawn, factor = bootstrap(base, costly, resamples=min(resamples, COSTLY_RESAMPLES), seed=seed)
        rows |= {id(a): drawn[k] for k, a in enumerate(costly)}
    return Draws(rows, factor)


def calibration_tests(
    base: Base, asked: Sequence[tuple[Asked, float]], seed: int, resamples: int
) -> dict[int, Null | None]:
    """The null of every calibration error, by the identity of what was asked."""
    found: dict[int, Null | None] = {}
    for costly, draws in ((False, resamples), (True, min(resamples, COSTLY_RESAMPLES))):
        some = [a for a, _ in asked if not a.whole and a.costly == costly]
        drawn = nulls(base, [(a.method, a.options) for a in some], resamples=draws, seed=seed) if some else []
        found |= {id(a): null for a, null in zip(some, drawn, strict=True)}
    for a, value in asked:
        if a.whole:
            found[id(a)] = whole_null(a.method, base.predictions, a.options, value, seed)
    return found


def row_of(
    asked: Asked,
    value: float,
    n: int,
    tag: Tag,
    bounds: tuple[float, float] | None = None,
    null: Null | None = None,
    group: str | None = None,
) -> Measurement:
    """A row of the table."""
    return Measurement(
        metric=label_of(asked.method, asked.options),
        value=value,
        n=n,
        split=tag.split,
        stage=tag.stage,
        group=group,
        model=tag.model,
        score=asked.score,
        chance=null.mean if null else None,
        chance_high=null.high if null else None,
        p_value=null.p_value if null else None,
        note=note_of(asked.method, asked.options, n) if bounds else None,
        bounds=bounds or (math.nan, math.nan),
    )


def mean_rows(
    base: Base, grouping: Grouping, values: Floats, draws: Floats | None, tag: Tag, factor: float = 1.0
) -> list[Measurement]:
    """Rows of the means in every group that has samples."""
    words = facts_for_means(base.predictions)
    sizes, rows = grouping.sizes, []
    for group, size in enumerate(sizes):
        if not size:
            continue
        for k, word in enumerate(words):
            place = group * len(words) + k
            value = float(values[place])
            asked = Asked(METRICS.get(word), {})
            bounds = None
            if draws is not None:
                bounds = interval_from(asked.method, value, int(size), draws[place], None, factor)
            rows.append(row_of(asked, value, int(size), tag, bounds, group=grouping.label(group)))
    return rows


def group_measurements(
    predictions: Predictions, grouping: Grouping, asked: Sequence[Asked], tag: Tag, seed: int, resamples: int
) -> list[Measurement]:
    """Every metric within every group; what the means already show is not repeated."""
    rows = []
    for group, size in enumerate(grouping.sizes):
        if not size:
            continue
        chosen = np.flatnonzero(grouping.index == group)
        base = Base(predictions.take(chosen))
        part = [restricted(a, chosen) for a in asked if not lacking(a.method, base.predictions)]
        found = measurements(base, part, tag, seed, resamples)
        rows += [replace(m, group=grouping.label(group)) for m in found]
    return rows


def restricted(asked: Asked, rows: NDArray[np.intp]) -> Asked:
    """The same for some samples: a score given as a vector is cut alike."""
    score = asked.options.get("score")
    if score is None or isinstance(score, str):
        return asked
    array = score.detach().cpu().numpy() if hasattr(score, "detach") else np.asarray(score)
    return Asked(asked.method, {**asked.options, "score": array[rows]}, asked.score)
