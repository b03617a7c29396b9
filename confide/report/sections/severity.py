"""Boxes by severity: the gap, the calibration error and the difficulty of samples that get worse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confide.core.results import Curve
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import fixed, shorten, when

BOX = ("low", "lower_quartile", "median", "upper_quartile", "high")
TITLES = ("Least", "Lower quartile", "Median", "Upper quartile", "Most")
MOST_MODELS = 5


@dataclass(frozen=True)
class Kind:
    """How one kind of boxes is drawn: a value times `scale` has the unit of its axis."""

    curve: str
    name: str
    axis: str
    across: str
    step: str  # the column a box stands at
    scale: float = 100
    digits: int = 1
    sign: bool = False
    zero: bool = True


GAP = Kind(
    "shift_boxes", "severity", "Confidence minus accuracy, points", "Severity of the corruption", "severity", sign=True
)
ECE = Kind("shift_ece_boxes", "severity-ece", "ECE, points", "Severity of the corruption", "severity")
RMD = Kind(
    "rmd_severity",
    "rmd-severity",
    "Relative Mahalanobis distance",
    "Severity of the corruption",
    "severity",
    1,
    zero=False,
)
NOISE = Kind(
    "rmd_label_noise",
    "rmd-label-noise",
    "Relative Mahalanobis distance",
    "Share of wrong labels, %",
    "rate",
    1,
    zero=False,
)


def severity_figures(view: View) -> tuple[Figure, ...]:
    """Every kind of boxes that the evaluation holds."""
    return tuple(figure for kind in (GAP, ECE, RMD, NOISE) if (figure := _figure(view, kind)))


def _figure(view: View, kind: Kind) -> Figure | None:
    stages = dict.fromkeys((view.final, view.before, "raw"))
    curves = [c for m in view.models[:MOST_MODELS] if (c := view.curve(kind.curve, m, stages))]
    if not curves:
        return None
    values = [kind.scale * v for c in curves for k in ("low", "high") for v in c.columns[k] if math.isfinite(v)]
    marks = ticks(*(_with_zero(values) if kind.zero else (min(values), max(values))), 8)
    own = next((c for c in curves if c.model == view.focus), curves[0]).columns
    first, last = (fixed(kind.scale * own["median"][k], kind.digits, sign=kind.sign) for k in (0, -1))
    rows = [
        (c.model, _step(kind, s), *(fixed(kind.scale * c.columns[k][i], kind.digits, sign=kind.sign) for k in BOX))
        for c in curves
        for i, s in enumerate(c.columns[kind.step])
    ]
    alt = f"Box plots of {kind.axis.lower()} by {kind.across.lower()}: the median goes from {first} to {last}."
    return Figure(
        kind.name,
        _title(view, kind, own["median"]),
        _subtitle(kind, curves[0].stage),
        _canvas(view, kind, curves, marks, PHONE, 270).render(alt),
        table(("Model", kind.step.capitalize(), *TITLES), rows),
        wide=_canvas(view, kind, curves, marks, 560, 376).render(alt) if kind is not RMD else None,
    )


def _with_zero(values: list[float]) -> tuple[float, float]:
    return min(0.0, *values), max(0.0, *values)


def _title(view: View, kind: Kind, median: tuple[float, ...]) -> str:
    """What is seen: a claim only where the medians of the model in focus bear it."""
    grows = median[-1] > median[0] + 0.01
    if kind is GAP:
        return (
            f"Confidence outruns accuracy as {view.unit} get worse"
            if grows
            else "Confidence minus accuracy by severity"
        )
    if kind is ECE:
        return f"Calibration is lost as {view.unit} get worse" if grows else "Calibration error by severity"
    what = "severity" if kind is RMD else "wrong labels"
    return f"Difficulty grows with {what}" if grows else f"Difficulty by {what}"


def _subtitle(kind: Kind, stage: str) -> str:
    if kind is NOISE:
        return "The same samples with more and more labels wrong; box: middle half, whiskers: 95 %"
    if kind is RMD:
        return "Means over the corruptions; box: middle half of the samples, whiskers: 95 %"
    which = when(stage) + ("" if stage == "raw" else " on clean data")
    return f"{'Gap' if kind is GAP else 'ECE'} over the corruptions, {which}; box: middle half, whiskers: extremes"


def _step(kind: Kind, value: float) -> str:
    if kind.step == "rate":
        return f"{100 * value:g}"
    return "clean" if value == 0 else f"{value:g}"


def _canvas(view: View, kind: Kind, curves: list[Curve], marks: list[float], width: int, height: int) -> Canvas:
    canvas = Canvas(width, height)
    steps = list(dict.fromkeys(s for c in curves for s in c.columns[kind.step]))
    x, y = Scale(0, len(steps), 38, width - 6), Scale(marks[0], marks[-1], height - 36, 18)
    canvas.grid_y(y, marks, 38, width - 6, sign=kind.sign)
    canvas.line(38, y.clip(0), width - 6, y.clip(0), "ax")
    each = min(0.8 * (x(1) - x(0)) / len(curves), 34)
    for place, curve in enumerate(curves):
        colour = view.colour(curve.model)
        for i, step in enumerate(curve.columns[kind.step]):
            middle = x(steps.index(step) + 0.5) + (place - (len(curves) - 1) / 2) * each
            low, first, median, third, high = (y(kind.scale * curve.columns[k][i]) for k in BOX)
            half = each / 2 - 1.5
            canvas.line(middle, low, middle, high, f"k{colour}", 1.5)
            canvas.bars([(middle - half, third, 2 * half, max(first - third, 0.1))], "ho")
            canvas.bars([(middle - half, third, 2 * half, max(first - third, 0.1))], f"f{colour} k{colour} bx")
            canvas.line(middle - half, median, middle + half, median, f"k{colour}", 2.2)
        canvas.bars([(48, 26 + 17 * place, 10, 10)], f"f{colour}")
        canvas.text(64, 35 + 17 * place, shorten(curve.model, 160), "l")
    for place, step in enumerate(steps):
        canvas.text(x(place + 0.5), height - 20, _step(kind, step), "m")
    canvas.text(38, 8, kind.axis, "l")
    canvas.text(width - 6, height - 3, kind.across, "l e")
    return canvas
