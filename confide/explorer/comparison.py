"""Two models on the same samples: which is right, which is surer, where they disagree, and what of it is chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from confide.checks import InputError
from confide.explorer.queries import CELLS, COMPARISONS, Query, QueryRunner, StageTable
from confide.explorer.samples import stage_title
from confide.types import Flags, Floats, Indices

MAX_DOTS = 1500
"""Beyond so many disagreements their density is drawn, not each."""
DENSITY = 25
"""Cells of the density on a side."""
MAX_PAIRS = 60
SURER = 0.1
"""By so much a model must be surer than the other to be counted as surer."""


@dataclass(frozen=True)
class PredictedClass:
    """What one model predicts for a sample."""

    name: str | None
    confidence: float
    right: bool


@dataclass(frozen=True)
class ComparedSample:
    """A sample with the predictions of both models."""

    row: int
    id: str
    label: str | None
    predictions: tuple[PredictedClass, PredictedClass]


@dataclass(frozen=True)
class GapChange:
    """Confidence and accuracy of both models, and by how much the gap of the second is larger, with its interval."""

    confidence: tuple[float, float]
    accuracy: tuple[float, float]
    change: float
    low: float
    high: float
    surer_wrong: tuple[int, int]
    """Samples where the first (the second) model is wrong and surer than the other by ten points or more."""


@dataclass(frozen=True)
class ModelComparison:
    """The two by two of right and wrong, dots or density of the disagreements, and pairs of the chosen cells."""

    stage_title: str | None
    n: int
    cells: Mapping[str, int]
    disagree: int
    p: float | None
    gap: GapChange | None
    dots: tuple[tuple[int, float, float, int], ...]
    """Row, confidence of both, and which is right: 1, 2, or 0 for neither; none where there are too many."""
    density: tuple[tuple[int, int, int, int, int], ...]
    """Column, row, and how many of its samples neither, the first, the second has right; where dots are too many."""
    chosen: int
    """Samples of the chosen cells and the brushed area."""
    pairs: tuple[ComparedSample, ...]
    left_aside: tuple[str, ...]


@dataclass(frozen=True)
class Area:
    """A brushed area of the scatter: the confidence of the first model and of the second."""

    low: float
    high: float
    other_low: float
    other_high: float


WHOLE = Area(0.0, 1.0, 0.0, 1.0)


def compare_models(runner: QueryRunner, query: Query, cells: tuple[str, ...], area: Area = WHOLE) -> ModelComparison:
    """Compare the two models of a query on its samples.

    Filters that depend on a model (prediction, outcome, confidence ...) are left aside, so that neither is favoured.
    """
    from confide.evaluation.compare import mcnemar

    first, second = query.model_stage, query.compared_with
    if first is None or second is None:
        raise InputError("a comparison needs two models; name the second with with=MODEL")
    if first.table == second.table:
        raise InputError("a comparison needs two different models, got the same twice")
    for model in (first, second):
        if not {"confidence", "outcome"} <= set(model.columns):
            raise InputError("a comparison needs labels and the confidence of both models, but they are not known")
    bad = [cell for cell in cells if cell not in CELLS]
    if bad:
        raise InputError(f"cells must be of {', '.join(CELLS)} (r right, w wrong), got '{bad[0]}'")
    database, of_models = runner.database, set(first.columns)
    hits = [database.codes(model.columns["outcome"]) for model in (first, second)]
    rows = np.flatnonzero(runner.fits(query, of_models | COMPARISONS) & (hits[0] > 0) & (hits[1] > 0))
    right, units = [hit[rows] == 2 for hit in hits], database.units()
    units = None if units is None else units.take(rows)
    sure = [database.values(model.columns["confidence"])[rows] for model in (first, second)]
    in_cell = {name: (right[0] == bool(a)) & (right[1] == bool(b)) for name, (a, b) in CELLS.items()}
    grid = {name: int(np.count_nonzero(member)) for name, member in in_cell.items()}
    disagree = _disagreements(runner, first, second, rows)
    inside = (sure[0] >= area.low) & (sure[0] <= area.high)
    inside &= (sure[1] >= area.other_low) & (sure[1] <= area.other_high)
    chosen = np.flatnonzero(inside & np.logical_or.reduce([in_cell[cell] for cell in cells] or [~inside & inside]))
    apart = np.abs(sure[0] - sure[1])[chosen]
    shown = chosen[np.lexsort((chosen, -apart))[:MAX_PAIRS]] if len(chosen) <= 100_000 else _largest(chosen, apart)
    who = np.where(right[0], 1, np.where(right[1], 2, 0))
    few = len(disagree) <= MAX_DOTS
    return ModelComparison(
        stage_title=stage_title(first.stage),
        n=len(rows),
        cells=grid,
        disagree=len(disagree),
        p=mcnemar(grid["rw"], grid["wr"]) if units is None else _unit_test(right, units),
        gap=_gap_change(sure, [r.astype(np.float64) for r in right], units),
        dots=tuple(
            (int(rows[k]), round(float(sure[0][k]), 4), round(float(sure[1][k]), 4), int(who[k])) for k in disagree
        )
        if few
        else (),
        density=() if few else _density(sure[0][disagree], sure[1][disagree], who[disagree]),
        chosen=len(chosen),
        pairs=_pairs(runner, query, rows[shown].tolist()),
        left_aside=tuple(sorted({f.key for f in query.filters} & of_models)),
    )


def _largest(chosen: Indices, apart: Floats) -> Indices:
    """The places with the largest differences, without sorting all."""
    top = np.argpartition(-apart, MAX_PAIRS)[:MAX_PAIRS]
    return np.asarray(chosen[top[np.argsort(-apart[top], kind="stable")]])


def _disagreements(runner: QueryRunner, first: StageTable, second: StageTable, rows: Indices) -> Indices:
    """Places of rows where the models predict different classes or, of unknown classes, differ in outcome."""
    key = "prediction" if "prediction" in first.columns and "prediction" in second.columns else "outcome"
    codes = [runner.database.codes(model.columns[key])[rows] for model in (first, second)]
    return np.flatnonzero(codes[0] != codes[1])


def _unit_test(right: list[Flags], units: Indices) -> float | None:
    """Two-sided p-value of the difference in accuracy where several rows were drawn as one, by Student's t."""
    from scipy import stats

    from confide.metrics.influence import Influence, spread_of
    from confide.metrics.view import Design

    change, design = right[1].astype(np.float64) - right[0], Design(clusters=units)
    if not change.any():
        return None
    if design.single:
        return 1.0
    mean = float(change.mean())
    spread = spread_of(Influence(change - mean), design)
    return float(2 * stats.t.sf(abs(mean) / np.sqrt(spread.variance), spread.freedom)) if spread.variance > 0 else 1.0


def _gap_change(sure: list[Floats], right: list[Floats], units: Indices | None = None) -> GapChange | None:
    from confide.metrics.influence import Influence, mean_interval, spread_of
    from confide.metrics.view import Design

    design = Design(clusters=units)
    if len(sure[0]) < 2 or design.single:
        return None
    change = (sure[1] - right[1]) - (sure[0] - right[0])
    mean = float(change.mean())
    low, high = mean_interval(mean, spread_of(Influence(change - mean), design))
    ahead = sure[1] - sure[0]
    return GapChange(
        (float(sure[0].mean()), float(sure[1].mean())),
        (float(right[0].mean()), float(right[1].mean())),
        mean,
        low,
        high,
        (int(((ahead <= -SURER) & (right[0] == 0)).sum()), int(((ahead >= SURER) & (right[1] == 0)).sum())),
    )


def _density(first: Floats, second: Floats, who: Indices) -> tuple[tuple[int, int, int, int, int], ...]:
    """Counts of the disagreements on a grid of both confidences."""
    at = [np.minimum((values * DENSITY).astype(np.int64), DENSITY - 1) for values in (first, second)]
    counts = np.bincount((at[0] * DENSITY + at[1]) * 3 + who, minlength=3 * DENSITY**2).reshape(-1, 3)
    full = np.flatnonzero(counts.sum(axis=1))
    return tuple((int(k // DENSITY), int(k % DENSITY), *map(int, counts[k])) for k in full)  # type: ignore[misc]


def _pairs(runner: QueryRunner, query: Query, rows: list[int]) -> tuple[ComparedSample, ...]:
    """The samples of some rows with what both models predict."""
    database, name = runner.database, runner.database.samples.name_of
    models = [model for model in (query.model_stage, query.compared_with) if model is not None]
    ids = database.samples.table.column("id")

    def predicted(model: StageTable, row: int) -> PredictedClass:
        column = model.columns.get("prediction")
        label = None if column is None else int(database.codes(column)[row]) - 1
        sure = float(database.values(model.columns["confidence"])[row])
        return PredictedClass(name(label), sure, bool(database.codes(model.columns["outcome"])[row] == 2))

    return tuple(
        ComparedSample(
            row,
            ids[row].as_py(),
            name(database.samples.label_of(row)),
            (predicted(models[0], row), predicted(models[1], row)),
        )
        for row in rows
    )
