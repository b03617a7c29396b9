"""Training: curves by epoch, and AdaFocal's gamma per bin over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from markupsafe import Markup

from confide.report.draw import PHONE, THIRD, Canvas, Empty, Figure, Scale, table, ticks
from confide.report.view import EvaluationView
from confide.report.words import code, fixed, unit_word
from confide.results import SEED_BAND, Curve, MetricInfo

SPLITS = {"train": "Training", "val": "Validation"}
ORDER = ("train_loss", "loss", "val_loss", "val_nll", "val_ece", "ece", "val_accuracy", "accuracy", "train_accuracy")
NOT_SHOWN = ("epoch", "seconds", "time", "learning_rate")
BY_CHANCE = "_by_chance"
"""Ending of the column beside a calibration error: what a perfectly calibrated model would show."""
MOST_PANELS = 6


@dataclass(frozen=True)
class LoggedLine:
    """One quantity of one model: (epoch, value), and the lowest and highest of its seeds where there are several.

    `chance` is what a perfectly calibrated model would show of a calibration error.
    """

    model: str
    points: list[tuple[float, float]]
    chance: list[tuple[float, float]]
    lowest: list[tuple[float, float]]
    highest: list[tuple[float, float]]


@dataclass(frozen=True)
class TrainingSection:
    """What the section shows."""

    models: tuple[tuple[str, str], ...] = ()
    panels: tuple[Figure, ...] = ()
    gammas: tuple[Figure, ...] = ()
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return (*self.panels, *self.gammas)


def training_section(view: EvaluationView) -> TrainingSection:
    """A panel per logged quantity with all models, then gammas."""
    curves = [c for c in view.curves("training") if "epoch" in c.columns]
    gammas = tuple(_gammas(c) for c in view.curves("gammas") if len(c.columns) > 1)
    if not (curves or gammas):
        why = view.why_missing("training") or "This evaluation holds no training log."
        return TrainingSection(empty=Empty("No training log", why, "confide train DATA --loss focal --out runs/mine"))
    logged = (name for c in curves for name in c.columns if not name.endswith((*SEED_BAND, BY_CHANCE)))
    names = dict.fromkeys(name for name in logged if name not in NOT_SHOWN)
    order = sorted(names, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))
    panels = tuple(f for name in order if (f := _panel(view, curves, name)))[:MOST_PANELS]
    models = tuple((m, view.colour(m)) for m in dict.fromkeys(c.model for c in curves) if m in view.drawn)
    return TrainingSection(models, panels, gammas)


def logged_info(view: EvaluationView, name: str) -> MetricInfo:
    """What is told of a column of the training log: `val_nll` is the NLL of the validation samples, and so on."""
    split, _, word = name.rpartition("_") if name.startswith(("train_", "val_")) else ("", "", name)
    if word == "loss":
        return MetricInfo(name, f"{SPLITS[split or 'train']} loss", unit="nats")
    if word in view.evaluation.metrics:
        info = view.info(word)
        return replace(info, title=f"{info.title}, {SPLITS[split or 'val'].lower()}")
    return MetricInfo(name, name.replace("_", " ").capitalize())


def _panel(view: EvaluationView, curves: list[Curve], name: str) -> Figure | None:
    info = logged_info(view, name)
    lines = []
    for c in (c for c in curves if name in c.columns):
        points, *beside = (_logged(c, name + ending, info) for ending in ("", BY_CHANCE, *SEED_BAND))
        if points:
            lines.append(LoggedLine(c.model, points, *beside))
    if not lines:
        return None
    values = [v for line in lines for part in (line.points, line.chance, line.lowest, line.highest) for _, v in part]
    near_zero = min(values) >= 0 and min(values) < 0.5 * max(values)
    marks = ticks(0 if near_zero else min(values), max(values), 4)
    digits, title, unit = info.digits, info.title, unit_word(info)
    heads, rows = ["Model", "Epoch", title], list[list[str]]()
    for line in lines:
        chance = dict(line.chance)
        for epoch, value in line.points:
            level = [fixed(chance.get(epoch, math.nan), digits)] if info.kind == "calibration" else []
            rows.append([line.model, f"{epoch:g}", fixed(value, digits), *level])
    drawn = [line for line in lines if line.model in view.drawn]  # the table has all
    if not drawn:
        return None
    first, last = (fixed(drawn[0].points[k][1], digits) for k in (0, -1))
    alt = f"{title} by epoch: {drawn[0].model} goes from {first} to {last}."
    start = "" if marks[0] == 0 else f"; axis starts at {marks[0]:g}"
    start += "; band: all seeds" if any(line.lowest for line in lines) else ""
    if info.kind == "calibration":
        heads.append("By chance")
        start += _chance_words([v for line in lines for _, v in line.chance], digits)
    return Figure(
        name,
        title,
        (f"{unit} by epoch" if unit else "By epoch") + start,
        _lines(view, drawn, marks, digits, PHONE).render(alt),
        table(heads, rows),
        wide=_lines(view, drawn, marks, digits, THIRD).render(alt),
        level=4,
    )


def _chance_words(levels: list[float], digits: int) -> str:
    """What a perfectly calibrated model would show in the epochs."""
    if not levels:
        return "; the log has no chance level"
    low, high = fixed(min(levels), digits), fixed(max(levels), digits)
    return f"; dashed: by chance, {low}" + (f" to {high}" if high != low else "")


def _logged(curve: Curve, name: str, info: MetricInfo) -> list[tuple[float, float]]:
    """(epoch, value in its unit) where it is a number; nothing where the log has no such column."""
    logged = zip(
        curve.columns["epoch"], curve.columns.get(name, (math.nan,) * len(curve.columns["epoch"])), strict=True
    )
    return [(epoch, info.scale * value) for epoch, value in logged if math.isfinite(value)]


def _lines(view: EvaluationView, lines: list[LoggedLine], marks: list[float], digits: int, width: int) -> Canvas:
    epochs = [e for line in lines for e, _ in line.points]
    canvas = Canvas(width, 210)
    x, y = Scale(min(epochs), max(epochs), 34, width - 8), Scale(marks[0], marks[-1], 172, 12)
    canvas.grid_y(y, marks, 34, width - 8)
    for line in lines:
        upper, lower = ([(x(e), y(v)) for e, v in part] for part in (line.highest, line.lowest))
        canvas.area(upper, lower, f"f{view.colour(line.model)} bx")
    for line in lines:
        canvas.polyline([(x(e), y(v)) for e, v in line.chance], "ref")
    for line in lines:
        model, points, chance = line.model, line.points, dict(line.chance)
        canvas.polyline([(x(e), y(v)) for e, v in points], f"k{view.colour(model)}", 1.8)
        for epoch, value in points[:: max(1, len(points) // 40)]:
            level = f", by chance {fixed(chance[epoch], digits)}" if epoch in chance else ""
            canvas.value(x(epoch), y(value), f"{model}, epoch {epoch:g}: {fixed(value, digits)}{level}")
        if len(points) == 1:
            canvas.dot(x(points[0][0]), y(points[0][1]), f"f{view.colour(model)}", 3)
    _epochs(canvas, x, 190)
    canvas.line(34, 172, width - 8, 172, "ax")
    canvas.text(width - 8, 206, "Epoch", "l e")
    return canvas


def _epochs(canvas: Canvas, x: Scale, y: float) -> None:
    inner = [m for m in ticks(x.low, x.high, 4) if x.low < m < x.high and m == round(m)]
    room = 0.08 * (x.high - x.low)
    for value in [x.low, *(m for m in inner if m - x.low > room and x.high - m > room), x.high]:
        canvas.text(x(value), y, f"{value:g}", "m" if value < x.high else "e")


def _gammas(curve: Curve) -> Figure:
    """One line a bin; the lowest, middle and highest confidence are named."""
    bins = sorted((n for n in curve.columns if n.startswith("bin")), key=lambda n: int(n[3:] or 0))
    epochs = curve.columns["epoch"]
    named = {bins[0], bins[len(bins) // 2], bins[-1]}
    last = {n: curve.columns[n][-1] for n in bins}
    rows = [(f"{e:g}", *(fixed(curve.columns[n][k], 2) for n in bins)) for k, e in enumerate(epochs)]
    alt = (
        f"AdaFocal's gamma in {len(bins)} confidence bins over {len(epochs)} epochs: the surest bin ends at "
        f"{fixed(last[bins[-1]], 2)}, the least sure at {fixed(last[bins[0]], 2)}."
    )
    rises = last[bins[-1]] > last[bins[0]]
    title = "AdaFocal holds sure predictions back" if rises and last[bins[-1]] > 0 else "AdaFocal's gamma by bin"
    if rises and last[bins[0]] < 0:
        title += " and lifts unsure ones"
    return Figure(
        f"gammas-{curve.model}",
        title,
        Markup(
            "γ of {} in {} bins of equal mass by validation confidence, cut anew every epoch; three are named"
        ).format(code(curve.model), len(bins)),
        _gamma_canvas(curve, bins, named, PHONE).render(alt),
        table(("Epoch", *(_bin_name(k, len(bins)) for k in range(len(bins)))), rows),
        wide=_gamma_canvas(curve, bins, named, 640).render(alt),
    )


def _bin_name(place: int, number: int) -> str:
    """Bins of equal mass have no fixed ends: they are named by their rank of confidence."""
    return {0: "least sure", number // 2: "middle", number - 1: "surest"}.get(place, f"bin {place + 1}")


def _gamma_canvas(curve: Curve, bins: list[str], named: set[str], width: int) -> Canvas:
    values = [v for n in bins for v in curve.columns[n] if math.isfinite(v)]
    marks = ticks(min(0.0, *values), max(values), 7)
    canvas = Canvas(width, 290)
    epochs = curve.columns["epoch"]
    x, y = Scale(min(epochs), max(epochs), 30, width - 74), Scale(marks[0], marks[-1], 256, 18)
    if marks[0] < 0:
        canvas.bars([(30, y(0), width - 104, 256 - y(0))], "fb pale")
    canvas.grid_y(y, marks, 30, width - 74)
    if marks[0] <= 0:
        canvas.line(30, y(0), width - 74, y(0), "ax")
    for name in sorted(bins, key=lambda n: n in named):
        strong = name in named
        points = [(x(e), y(v)) for e, v in zip(epochs, curve.columns[name], strict=True)]
        canvas.polyline(points, "k1" if strong else "kg thin", 2.4 if strong else 1.2)
        for (left, top), epoch, value in list(zip(points, epochs, curve.columns[name], strict=True))[
            :: max(1, len(points) // 20)
        ]:
            canvas.value(left, top, f"{_bin_name(bins.index(name), len(bins))}, epoch {epoch:g}: γ = {fixed(value, 2)}")
    _name_bins(canvas, curve, bins, named, y, width)
    _epochs(canvas, x, 272)
    pushes = ", pushes confidence up" if width > PHONE else ""  # a phone has no room for it
    inverse = f"; grey: inverse focal{pushes}" if marks[0] < 0 else ""
    canvas.text(30, 8, f"γ of each confidence bin{inverse}", "l")
    canvas.text(width - 74, 288, "Epoch", "l e")
    return canvas


def _name_bins(canvas: Canvas, curve: Curve, bins: list[str], named: set[str], y: Scale, width: int) -> None:
    """Labels at the ends of the named lines, moved apart where they would touch."""
    ends = sorted((y(curve.columns[n][-1]), n) for n in named if math.isfinite(curve.columns[n][-1]))
    before = -20.0
    for end, name in ends:
        before = max(end + 4, before + 14)
        canvas.text(width - 68, before, _bin_name(bins.index(name), len(bins)), "f1")
