"""Models and stages side by side: the table, and where the rows differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Measurement
from confide.report.figure import Figure, table
from confide.report.glossary import CHANCE, MAIN_COLUMNS, Term, term
from confide.report.svg import THIRD, Canvas, Scale, tick_text, ticks
from confide.report.view import View
from confide.report.words import between, code, fixed, shorten, stage_phrase, stage_title


@dataclass(frozen=True)
class Cell:
    """A value with its interval; bold only if the paired tests say so."""

    value: str
    interval: str = ""
    best: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Row:
    """A model at one stage."""

    model: str
    colour: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Group:
    """Rows of one stage."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Models:
    """What the section shows."""

    columns: tuple[Term, ...]
    groups: tuple[Group, ...]
    bold: bool
    tested: bool
    figures: tuple[Figure, ...]
    rest: object = None


def models_section(view: View) -> Models:
    """The table of models and stages with its small dot plots."""
    metrics = [m for m in MAIN_COLUMNS if any(view.find(m, a, s) for a in view.models for s in view.stages)]
    chance_of = next((m for m in ("ece_mass", "ece") if m in metrics and _has_chance(view, m)), None)
    groups = tuple(
        Group(stage_title(stage), rows) for stage in view.stages if (rows := _rows(view, stage, metrics, chance_of))
    )
    columns = [c for m in metrics for c in ([term(m), _chance_term()] if m == chance_of else [term(m)])]
    bold = any(cell.best for group in groups for row in group.rows for cell in row.cells)
    dots = [m for m in ("accuracy", "nll", "ece_mass" if "ece_mass" in metrics else "ece") if m in metrics]
    figures = tuple(_dot_plot(view, m) for m in dots) if len(view.models) * len(view.stages) > 1 else ()
    return Models(tuple(columns), groups, bold, bool(view.evaluation.comparisons), figures, _rest(view, metrics))


def _has_chance(view: View, metric: str) -> bool:
    return any(m.metric == metric and m.chance is not None for m in view.measurements)


def _chance_term() -> Term:
    return Term("By chance", "pts", 100, 1, "", CHANCE)


def _rows(view: View, stage: str, metrics: list[str], chance_of: str | None) -> tuple[Row, ...]:
    present = [m for m in view.models if any(view.find(metric, m, stage) for metric in metrics)]
    winners = {metric: view.best(metric, [f"{m}/{stage}" for m in present]) for metric in metrics}
    rows = []
    for model in present:
        cells: list[Cell] = []
        for metric in metrics:
            found = view.find(metric, model, stage)
            cells.append(_cell(found, term(metric), winners[metric] == f"{model}/{stage}"))
            if metric == chance_of:
                cells.append(_chance_cell(found))
        rows.append(Row(model, view.colour(model), view.stage_note(model, stage), tuple(cells)))
    return tuple(rows)


def _cell(found: Measurement | None, kind: Term, best: bool) -> Cell:
    if found is None:
        return Cell("–")
    interval = between(found.low, found.high, kind.digits, kind.scale)
    return Cell(fixed(kind.scale * found.value, kind.digits), interval, best)


def _chance_cell(found: Measurement | None) -> Cell:
    if found is None or found.chance is None:
        return Cell("–", faint=True)
    bound = f"≤ {fixed(100 * found.chance_high, 1)}" if found.chance_high is not None else ""
    return Cell(fixed(100 * found.chance, 1), bound, faint=True)


def _rest(view: View, shown: list[str]) -> object:
    """Every further measurement of the whole split, as a data table."""
    rows = [
        (m.model, stage_phrase(m.stage), term(m.metric).title, m.score or "", _with_unit(m), _interval(m))
        for m in view.measurements
        if m.group is None and math.isfinite(m.value) and not (m.metric in shown and m.score in (None, "msp"))
    ]
    return table(("Model", "Stage", "Metric", "Score", "Value", "95 % interval"), rows) if rows else None


def _with_unit(m: Measurement) -> str:
    kind = term(m.metric)
    return f"{fixed(kind.scale * m.value, kind.digits)} {kind.unit}".strip()


def _interval(m: Measurement) -> str:
    return between(m.low, m.high, term(m.metric).digits, term(m.metric).scale)


def _dot_plot(view: View, metric: str) -> Figure:
    """Dots with whiskers: hollow as trained, filled after calibration; the axis need not start at 0."""
    kind = term(metric)
    found = [(m, s, x) for m in view.models for s in view.stages if (x := view.find(metric, m, s))]
    ends = [kind.scale * v for _, _, m in found for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(min(ends), max(ends), 5)
    if metric.startswith("ece"):
        marks = ticks(0, max(ends), 5)
    height = 12 + sum(22 + 11 * len([1 for f in found if f[0] == m]) for m in view.models)
    canvas = Canvas(THIRD, height + 24)
    scale = Scale(marks[0], marks[-1], 5, THIRD - 9)
    canvas.ticks_x(scale, marks, height + 18, grid=0)
    canvas.line(5, height + 2, THIRD - 9, height + 2, "ax")
    y = 12.0
    for model in view.models:
        canvas.text(5, y, shorten(model, THIRD - 20), "l")
        y += 12
        for _, stage, m in [f for f in found if f[0] == model]:
            _whisker(
                canvas, scale, y, m, kind.scale, view.colour(model), hollow=stage == "raw" and view.after is not None
            )
            y += 11
        y += 10
    rows = [(m, stage_phrase(s), _with_unit(x), _interval(x)) for m, s, x in found]
    alt = f"Dot plot of {kind.title} by model and stage, from {rows[0][2]} for {rows[0][0]} {rows[0][1]}."
    unit = f"{kind.unit}, " if kind.unit else ""
    start = "" if marks[0] == 0 else f"; axis starts at {tick_text(marks[0], marks)}"
    return Figure(
        metric,
        _dot_title(view, metric, kind),
        f"{unit}{kind.better} is better{start}".capitalize() if unit != "pts, " else f"Points, lower is better{start}",
        canvas.render(alt),
        table(("Model", "Stage", kind.title, "95 % interval"), rows),
        level=4,
    )


def _dot_title(view: View, metric: str, kind: Term) -> str | Markup:
    rows = [f"{m}/{view.final}" for m in view.models if view.find(metric, m, view.final)]
    winner = view.best(metric, rows)
    if winner:
        return Markup("{} has the best {}").format(code(winner.rsplit("/", 1)[0]), kind.title)
    if len(view.models) == 1 and view.after and view.beats(metric, f"{view.focus}/{view.after}", f"{view.focus}/raw"):
        return f"{stage_phrase(view.after)} improves {kind.title}".capitalize().replace(kind.title.lower(), kind.title)
    tested = [c for c in view.evaluation.comparisons if c.metric == metric and c.a in rows and c.b in rows]
    if len(rows) > 1 and len(tested) == len(rows) * (len(rows) - 1) // 2 and not any(c.better for c in tested):
        return f"{kind.title}: no model is told apart"
    return kind.title


def _whisker(canvas: Canvas, scale: Scale, y: float, m: Measurement, by: float, colour: str, hollow: bool) -> None:
    if math.isfinite(m.low) and math.isfinite(m.high):
        canvas.line(scale.clip(by * m.low), y, scale.clip(by * m.high), y, f"k{colour}", 1.5)
    fill = "ho" if hollow else f"f{colour}"
    canvas.dot(scale.clip(by * m.value), y, f"{fill} k{colour}", 4.2, 1.8)
