"""Models and stages side by side: the table, and where the rows differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.report.draw import PHONE, THIRD, Canvas, Figure, FigureTable, Scale, table, tick_text, ticks
from confide.report.view import PLAIN_SCORES, EvaluationView
from confide.report.words import (
    CHANCE,
    MAIN_COLUMNS,
    Term,
    between,
    code,
    count,
    fixed,
    p_value,
    shorten,
    stage_phrase,
    stage_title,
    term,
)
from confide.results import ComparedRow, Comparison, Measurement


@dataclass(frozen=True)
class TableCell:
    """A value with its interval; bold only if the paired tests say so."""

    value: str
    interval: str = ""
    best: bool = False
    faint: bool = False


@dataclass(frozen=True)
class ModelRow:
    """A model at one stage."""

    model: str
    colour: str
    note: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class StageRows:
    """Rows of one stage."""

    title: str
    rows: tuple[ModelRow, ...]


@dataclass(frozen=True)
class ModelsSection:
    """What the section shows."""

    columns: tuple[Term, ...]
    groups: tuple[StageRows, ...]
    bold: bool
    tested: bool
    figures: tuple[Figure, ...]
    tables: tuple[tuple[str, FigureTable], ...] = ()


def models_section(view: EvaluationView) -> ModelsSection:
    """The table of models and stages with its small dot plots."""
    metrics = [m for m in MAIN_COLUMNS if any(view.find(m, a, s) for a in view.models for s in view.stages)]
    chance_of = next((m for m in ("ece_mass", "ece") if m in metrics and _has_chance(view, m)), None)
    groups = tuple(
        StageRows(stage_title(stage), rows) for stage in view.stages if (rows := _rows(view, stage, metrics, chance_of))
    )
    columns = [c for m in metrics for c in ([term(m), _chance_term()] if m == chance_of else [term(m)])]
    bold = any(cell.best for group in groups for row in group.rows for cell in row.cells)
    dots = [m for m in ("accuracy", "nll", "ece_mass" if "ece_mass" in metrics else "ece") if m in metrics]
    figures = tuple(_dot_plot(view, m) for m in dots) if len(view.models) * len(view.stages) > 1 else ()
    return ModelsSection(
        tuple(columns), groups, bold, bool(view.evaluation.comparisons), figures, tuple(_tables(view, metrics))
    )


def _has_chance(view: EvaluationView, metric: str) -> bool:
    return any(m.metric == metric and m.chance is not None for m in view.measurements)


def _chance_term() -> Term:
    return Term("By chance", "pts", 100, 1, "", CHANCE)


def _rows(view: EvaluationView, stage: str, metrics: list[str], chance_of: str | None) -> tuple[ModelRow, ...]:
    present = [m for m in view.models if any(view.find(metric, m, stage) for metric in metrics)]
    winners = {metric: view.best(metric, [ComparedRow(m, stage) for m in present]) for metric in metrics}
    rows = []
    for model in present:
        cells: list[TableCell] = []
        for metric in metrics:
            found = view.find(metric, model, stage)
            cells.append(_cell(found, term(metric), winners[metric] == ComparedRow(model, stage)))
            if metric == chance_of:
                cells.append(_chance_cell(found))
        rows.append(ModelRow(model, view.colour(model), view.stage_note(model, stage), tuple(cells)))
    return tuple(rows)


def _cell(found: Measurement | None, kind: Term, best: bool) -> TableCell:
    if found is None:
        return TableCell("–")
    interval = between(found.low, found.high, kind.digits, kind.scale)
    return TableCell(fixed(kind.scale * found.value, kind.digits), interval, best)


def _chance_cell(found: Measurement | None) -> TableCell:
    if found is None or found.chance is None:
        return TableCell("–", faint=True)
    bound = f"≤ {fixed(100 * found.chance_high, 1)}" if found.chance_high is not None else ""
    return TableCell(fixed(100 * found.chance, 1), bound, faint=True)


def _tables(view: EvaluationView, shown: list[str]) -> list[tuple[str, FigureTable]]:
    """What the main table has no room for: paired tests, further metrics, groups."""
    tests = [
        (term(c.metric).title, str(c.a), str(c.b), *_difference(c), p_value(c.p_value), p_value(c.p_holm), _better(c))
        for c in view.evaluation.comparisons
    ]
    whole = [m for m in view.measurements if m.group is None and not (m.metric in shown and m.score in PLAIN_SCORES)]
    groups = [m for m in view.measurements if m.group is not None]
    columns = ("Metric", "a", "b", "b minus a", "95\u202f% interval", "p", "p, Holm-corrected", "Better")
    found = [
        (f"Paired tests ({len(tests)})", table(columns, tests)),
        (f"Further metrics ({len(whole)})", _measured(whole, "Score")),
        (f"By group ({len(groups)})", _measured(groups, "Group")),
    ]
    return [(title, t) for title, t in found if t.rows]


def _difference(c: Comparison) -> tuple[str, str]:
    kind = term(c.metric)
    value = fixed(kind.scale * c.difference, kind.digits, sign=True)
    unit = "pts" if kind.unit == "%" else kind.unit  # a difference of percentages is in points
    return f"{value} {unit}".strip(), between(c.low, c.high, kind.digits, kind.scale)


def _better(c: Comparison) -> str:
    return str(c.winner or "not told apart")


def _measured(rows: list[Measurement], extra: str) -> FigureTable:
    shown = [m for m in rows if math.isfinite(m.value)]
    return table(
        ("Model", "Stage", "Metric", extra, "Value", "95\u202f% interval", "n"),
        [
            (
                m.model,
                stage_phrase(m.stage),
                term(m.metric).title,
                (m.group if extra == "Group" else m.score) or "",
                _with_unit(m),
                _interval(m),
                count(m.n),
            )
            for m in shown
        ],
    )


def _with_unit(m: Measurement) -> str:
    kind = term(m.metric)
    return f"{fixed(kind.scale * m.value, kind.digits)} {kind.unit}".strip()


def _interval(m: Measurement) -> str:
    return between(m.low, m.high, term(m.metric).digits, term(m.metric).scale)


def _dot_plot(view: EvaluationView, metric: str) -> Figure:
    """Dots with whiskers: hollow as trained, filled after calibration; the axis need not start at 0."""
    kind = term(metric)
    # Before and after only: with several calibrators the table has the rest.
    stages = [s for s in (view.before, view.after) if s]
    found = [(m, s, x) for m in view.models for s in stages if (x := view.find(metric, m, s))]
    ends = [kind.scale * v for _, _, m in found for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(0 if metric.startswith("ece") else min(ends), max(ends), 5)
    rows = [(m, stage_phrase(s), _with_unit(x), _interval(x)) for m, s, x in found]
    alt = f"Dot plot of {kind.title} by model and stage: {rows[0][0]}, {rows[0][1]}, has {rows[0][2]}."
    unit = {"%": "Per cent", "pts": "Points"}.get(kind.unit, kind.unit.capitalize())
    start = "" if marks[0] == 0 else f"; axis starts at {tick_text(marks[0], marks)}"
    return Figure(
        metric,
        _dot_title(view, metric, kind),
        f"{unit + ', ' if unit else ''}{kind.better} is better{start}",
        _dots(view, found, kind.scale, marks, PHONE).render(alt),
        table(("Model", "Stage", kind.title, "95\u202f% interval"), rows),
        wide=_dots(view, found, kind.scale, marks, THIRD).render(alt),
        level=4,
    )


def _dots(
    view: EvaluationView, found: list[tuple[str, str, Measurement]], by: float, marks: list[float], width: int
) -> Canvas:
    height = 12 + sum(22 + 11 * sum(f[0] == m for f in found) for m in view.models)
    canvas = Canvas(width, height + 24)
    scale = Scale(marks[0], marks[-1], 5, width - 9)
    canvas.ticks_x(scale, marks, height + 18, grid=0)
    canvas.line(5, height + 2, width - 9, height + 2, "ax")
    y = 12.0
    for model in view.models:
        canvas.text(5, y, shorten(model, width - 20), "l")
        y += 12
        for _, stage, m in [f for f in found if f[0] == model]:
            _whisker(
                canvas, scale, y, m, by, view.colour(model), hollow=stage == view.before and view.after is not None
            )
            y += 11
        y += 10
    return canvas


def _dot_title(view: EvaluationView, metric: str, kind: Term) -> str | Markup:
    rows = [ComparedRow(m, view.final) for m in view.models if view.find(metric, m, view.final)]
    winner = view.best(metric, rows)
    if winner:
        return Markup("{} has the best {}").format(code(winner.model), kind.title)
    if (
        len(view.models) == 1
        and view.after
        and view.beats(metric, ComparedRow(view.focus, view.after), ComparedRow(view.focus, view.before))
    ):
        return f"{stage_phrase(view.after)} improves {kind.title}".capitalize().replace(kind.title.lower(), kind.title)
    found = [m for model in view.models if view.after and (m := view.find(metric, model, view.after))]
    if metric.startswith("ece") and found and all(m.chance_high is not None and m.value < m.chance_high for m in found):
        return f"After {stage_phrase(str(view.after))}, {'all are' if len(found) > 1 else 'it is'} within chance"
    tested = [c for c in view.evaluation.comparisons if c.metric == metric and c.a in rows and c.b in rows]
    if len(rows) > 1 and len(tested) == len(rows) * (len(rows) - 1) // 2 and not any(c.better for c in tested):
        return f"{kind.title}: no model is told apart"
    return kind.title


def _whisker(canvas: Canvas, scale: Scale, y: float, m: Measurement, by: float, colour: str, hollow: bool) -> None:
    if m.has_interval:
        canvas.line(scale.clip(by * m.low), y, scale.clip(by * m.high), y, f"k{colour}", 1.5)
    fill = "ho" if hollow else f"f{colour}"
    canvas.dot(scale.clip(by * m.value), y, f"{fill} k{colour}", 4.2, 1.8)
