"""Models and stages side by side: the table, and where the rows differ."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from markupsafe import Markup

from confide.report.draw import PHONE, THIRD, Canvas, Figure, FigureTable, Scale, table, tick_text, ticks
from confide.report.view import EvaluationView
from confide.report.words import (
    code,
    count,
    interval,
    p_value,
    score_name,
    shorten,
    shown,
    unit_word,
    value_texts,
    value_words,
    within,
)
from confide.results import ComparedRow, Comparison, Measurement, MetricInfo


@dataclass(frozen=True)
class TableCell:
    """A value with its interval and what chance would show; bold only if the paired tests say so."""

    value: str
    interval: str = ""
    chance: str = ""
    best: bool = False


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

    columns: tuple[MetricInfo, ...]
    groups: tuple[StageRows, ...]
    bold: bool
    tested: bool
    figures: tuple[Figure, ...]
    tables: tuple[tuple[str, FigureTable], ...] = ()

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return self.figures

    @property
    def by_chance(self) -> bool:
        """Whether some error has its chance level beside it."""
        return any(cell.chance for group in self.groups for row in group.rows for cell in row.cells)


def models_section(view: EvaluationView) -> ModelsSection:
    """The table of models and stages with its small dot plots."""
    metrics, headline = view.columns("models"), view.columns("headline")
    errors = [info for info in headline if info.kind == "calibration"]
    groups = tuple(
        StageRows(view.stage_title(stage), rows) for stage in view.stages if (rows := _rows(view, stage, metrics))
    )
    bold = any(cell.best for group in groups for row in group.rows for cell in row.cells)
    dots = [info for info in headline if info not in errors[1:]]
    figures = tuple(_dot_plot(view, info) for info in dots) if len(view.models) * len(view.stages) > 1 else ()
    return ModelsSection(
        tuple(metrics), groups, bold, bool(view.evaluation.comparisons), figures, tuple(_tables(view, metrics))
    )


def _rows(view: EvaluationView, stage: str, metrics: list[MetricInfo]) -> tuple[ModelRow, ...]:
    present = [m for m in view.models if any(view.find(info.word, m, stage) for info in metrics)]
    winners = [view.best(info.word, [ComparedRow(m, stage) for m in present]) for info in metrics]
    rows = []
    for model in present:
        cells = tuple(
            _cell(view.find(info.word, model, stage), info, winner == ComparedRow(model, stage))
            for info, winner in zip(metrics, winners, strict=True)
        )
        rows.append(ModelRow(model, view.colour(model), view.stage_note(model, stage), cells))
    return tuple(rows)


def _cell(measured: Measurement | None, info: MetricInfo, best: bool) -> TableCell:
    if measured is None:
        return TableCell("–")
    chance = f"chance ≤ {shown(info, measured.chance_high)}" if measured.chance_high is not None else ""
    spread = "" if measured.sd is None else f" ± {shown(info, measured.sd)}"
    return TableCell(shown(info, measured.value) + spread, interval(info, measured), chance, best)


def _tables(view: EvaluationView, columns: list[MetricInfo]) -> list[tuple[str, FigureTable]]:
    """What the main table has no room for: paired tests, further metrics, groups."""
    tests = [_test(view.info(c.metric), c) for c in view.evaluation.comparisons]
    main = {info.word for info in columns}
    whole = [m for m in view.measurements if m.group is None and not (m.metric in main and m.plain)]
    number, groups = _groups(view)
    header = ("Metric", "a", "b", "b minus a", "95\u202f% interval", "p", "p, Holm-corrected", "Better")
    tables = [
        (f"Paired tests ({len(tests)})", table(header, tests)),
        (f"Further metrics ({len(whole)})", _measured(view, whole)),
        (f"By group ({count(number)}), widest gap first", groups),
    ]
    return [(title, t) for title, t in tables if t.rows]


def _test(info: MetricInfo, c: Comparison) -> tuple[str, ...]:
    unit = "pts" if info.unit == "%" else info.unit  # a difference of percentages is in points
    difference = f"{shown(info, c.difference, sign=True)} {unit}".strip(), interval(info, c)
    better = str(c.winner or "not told apart")
    return info.title, str(c.a), str(c.b), *difference, p_value(c.p_value), p_value(c.p_holm), better


def _texts(info: MetricInfo, m: Measurement | None) -> tuple[str, str]:
    """A value with its unit, and its interval with what chance would show of an error."""
    value, ends = value_texts(info, m)
    if m is None or m.chance_high is None:
        return value, ends
    return value, "; ".join(filter(None, [ends, f"chance ≤ {shown(info, m.chance_high)}"]))


def _measured(view: EvaluationView, rows: list[Measurement]) -> FigureTable:
    texts = []
    for m in (m for m in rows if math.isfinite(m.value)):
        info = view.info(m.metric)
        texts.append((m.model, view.stage_phrase(m.stage), info.title, m.score or "", *_texts(info, m), count(m.n)))
    return table(("Model", "Stage", "Metric", "Score", "Value", "95\u202f% interval", "n"), texts)


def _groups(view: EvaluationView) -> tuple[int, FigureTable]:
    """How many groups there are, and a row for each of a model at a stage, with every metric measured by group."""
    by_group: dict[tuple[str, str, str], dict[tuple[str, str], Measurement]] = {}
    for m in view.measurements:
        if m.group is not None and m.group_kind != "slice" and math.isfinite(m.value):
            ranked_by = "" if m.plain else score_name(str(m.score))
            by_group.setdefault((m.model, m.stage, m.group), {})[m.metric, ranked_by] = m
    # One row a group: what ranks by another score than confidence has columns of its own, after the others.
    measured_words = dict.fromkeys(words for measured in by_group.values() for words in measured)
    columns = sorted(measured_words, key=lambda words: (words[1], view.info(words[0]).tables.get("groups", 99)))
    infos = {words: view.info(words[0]) for words in columns}
    order = sorted(by_group, key=lambda key: -abs(m.value) if (m := by_group[key].get(("confidence_gap", ""))) else 1)
    rows = []
    for key in order:
        model, stage, group = key
        measured = by_group[key]
        texts = [text for words, info in infos.items() for text in _texts(info, measured.get(words))]
        size = next(iter(measured.values())).n
        rows.append((group, model, view.stage_phrase(stage), count(size), *texts))
    header = ["Group", "Model", "Stage", "n"]
    for (_, ranked_by), info in infos.items():
        header += [f"{info.title}, by {ranked_by}" if ranked_by else info.title, "95\u202f% interval"]
    filled = [any(row[k] for row in rows) for k in range(len(header))]
    chosen = [[text for text, has in zip(row, filled, strict=True) if has] for row in (header, *rows)]
    return len(rows), replace(table(chosen[0], chosen[1:]), sortable=True)


def _dot_plot(view: EvaluationView, info: MetricInfo) -> Figure:
    """Dots with whiskers: hollow as trained, filled after calibration; only of errors the axis starts at 0."""
    # Before and after only: with several calibrators the table has the rest.
    stages = [s for s in (view.before, view.after) if s]
    dots = [(m, s, x) for m in view.models for s in stages if (x := view.find(info.word, m, s))]
    limits = [m.chance_high for _, _, m in dots if m.chance_high is not None]
    ends = [info.scale * v for _, _, m in dots for v in (m.value, m.low, m.high) if math.isfinite(v)]
    ends += [info.scale * limit for limit in limits]
    marks = ticks(0 if info.kind == "calibration" else min(ends), max(ends), 5)
    rows = [(m, view.stage_phrase(s), *_texts(info, x)) for m, s, x in dots]
    alt = f"Dot plot of {info.title} by model and stage: {rows[0][0]}, {rows[0][1]}, has {rows[0][2]}."
    unit = unit_word(info)
    start = "" if marks[0] == 0 else f"; axis starts at {tick_text(marks[0], marks)}"
    return Figure(
        info.word,
        _dot_title(view, info),
        f"{unit + ', ' if unit else ''}{info.better} is better{start}{_limits_words(info, limits)}",
        _dots(view, dots, info, marks, PHONE).render(alt),
        table(("Model", "Stage", info.title, "95\u202f% interval"), rows),
        wide=_dots(view, dots, info, marks, THIRD).render(alt),
        level=4,
    )


def _limits_words(info: MetricInfo, limits: list[float]) -> str:
    """What chance would show of a calibration error, which has a tick in the drawing."""
    if info.kind != "calibration":
        return ""
    return f"; ticks: by chance up to {shown(info, max(limits))}" if limits else "; chance level not measured"


def _dots(
    view: EvaluationView, dots: list[tuple[str, str, Measurement]], info: MetricInfo, marks: list[float], width: int
) -> Canvas:
    height = 12 + sum(22 + 11 * sum(dot[0] == m for dot in dots) for m in view.models)
    canvas = Canvas(width, height + 24)
    scale = Scale(marks[0], marks[-1], 5, width - 9)
    canvas.ticks_x(scale, marks, height + 18, grid=0)
    canvas.line(5, height + 2, width - 9, height + 2, "ax")
    y = 12.0
    for model in view.models:
        canvas.text(5, y, shorten(model, width - 20), "l")
        y += 12
        colour = view.colour(model)
        for _, stage, m in [dot for dot in dots if dot[0] == model]:
            fill = "ho" if stage == view.before and view.after is not None else f"f{colour}"
            chance = ""
            if m.chance_high is not None:
                limit = scale.clip(info.scale * m.chance_high)
                canvas.line(limit, y - 5, limit, y + 5, "tk")
                chance = f", by chance up to {shown(info, m.chance_high)}"
            canvas.whisker(scale, y, m, info.scale, colour)
            canvas.dot(scale.clip(info.scale * m.value), y, f"{fill} k{colour}", 4.2, 1.8)
            words = f"{model}, {view.when(stage)}: {value_words(info, m)}{chance}"
            canvas.value(scale.clip(info.scale * m.value), y, words)
            y += 11
        y += 10
    return canvas


def _dot_title(view: EvaluationView, info: MetricInfo) -> str | Markup:
    metric = info.word
    rows = [ComparedRow(m, view.final) for m in view.models if view.find(metric, m, view.final)]
    winner = view.best(metric, rows)
    if winner:
        return Markup("{} has the best {}").format(code(winner.model), within(info.title))
    stages = ComparedRow(view.focus, view.after), ComparedRow(view.focus, view.before)
    if len(view.models) == 1 and view.after and view.beats(metric, *stages):
        phrase = view.stage_phrase(view.after)
        return f"{phrase[0].upper()}{phrase[1:]} improves {within(info.title)}"
    after = [m for model in view.models if view.after and (m := view.find(metric, model, view.after))]
    if info.kind == "calibration" and after and all(m.within_chance for m in after):
        every = " of every model" if len(after) > 1 else ""
        return f"{info.title}{every} is within chance {view.when(str(view.after))}"
    tested = [c for c in view.evaluation.comparisons if c.metric == metric and c.a in rows and c.b in rows]
    if len(rows) > 1 and len(tested) == len(rows) * (len(rows) - 1) // 2 and not any(c.better for c in tested):
        number = sum(c.metric == metric for c in view.evaluation.comparisons)
        return f"{info.title} {view.when(view.final)}: no difference survives correction for {number} tests"
    return info.title
