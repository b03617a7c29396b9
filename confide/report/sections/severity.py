"""Boxes by severity: the gap, the calibration error and the difficulty of samples that get worse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from confide.core.results import Curve
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, THIRD, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import fixed, score_name, shorten, when

BOX = ("low", "lower_quartile", "median", "upper_quartile", "high")
TITLES = ("Least", "Lower quartile", "Median", "Upper quartile", "Most")
MOST_SERIES = 5
COLOURS = ("1", "5", "g", "4", "3")  # of trust predictors of one model


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
    size: tuple[int, int] = (THIRD, 270)  # on large pages


@dataclass(frozen=True)
class Series:
    """Boxes of one colour."""

    name: str
    colour: str
    curve: Curve


SEVERITY = "Severity of the corruption"
RMD_AXIS = "Relative Mahalanobis distance"
GAP = Kind(
    "shift_boxes",
    "severity",
    "Confidence minus accuracy, points",
    SEVERITY,
    "severity",
    sign=True,
    size=(560, 376),
)
ECE = Kind("shift_ece_boxes", "severity-ece", "ECE, points", SEVERITY, "severity")
BEFORE = replace(ECE, name="severity-ece-before")
TRUST = Kind("shift_trust_ece_boxes", "severity-ece-trust", "ECE, points", SEVERITY, "severity")
RMD = Kind("rmd_severity", "rmd-severity", RMD_AXIS, SEVERITY, "severity", 1, zero=False, size=(PHONE, 270))
NOISE = replace(RMD, curve="rmd_label_noise", name="rmd-label-noise", across="Share of wrong labels, %", step="rate")


def first_boxes(view: View) -> Figure | None:
    """The gap over the corruptions; where it was not measured, the calibration error as trained."""
    gap = _series(view, GAP, _stages(view))
    if gap:
        return _figure(view, GAP, gap)
    error = _series(view, ECE, (view.before, "raw", view.final))
    return _figure(view, replace(ECE, name=BEFORE.name, size=GAP.size), error) if error else None


def calibration_boxes(view: View) -> tuple[Figure, ...]:
    """The calibration error as trained, after calibration and of trust predictors' chances, on one scale."""
    before, after = _series(view, ECE, (view.before, "raw")), _series(view, ECE, _stages(view))
    both = bool(before and after) and before[0].curve.stage != after[0].curve.stage
    # Without gaps the errors as trained stand first in the section already.
    gap = bool(_series(view, GAP, _stages(view)))
    found = [(BEFORE, before if gap and both else []), (ECE, after if gap or both else [])]
    shown = [(kind, series) for kind, series in (*found, (TRUST, _trust_series(view))) if series]
    marks = _marks(ECE, [one for _, series in shown for one in series]) if shown else []
    names = max((len(series) for _, series in shown), default=0)
    return tuple(_figure(view, kind, series, marks, names) for kind, series in shown)


def difficulty_boxes(view: View) -> tuple[Figure, ...]:
    """The relative Mahalanobis distance by severity and by the share of wrong labels."""
    found = [(kind, _series(view, kind, _stages(view))) for kind in (RMD, NOISE)]
    return tuple(_figure(view, kind, series) for kind, series in found if series)


def _stages(view: View) -> tuple[str, ...]:
    return view.final, view.before, "raw"


def _series(view: View, kind: Kind, stages: Iterable[str]) -> list[Series]:
    curves = [c for m in view.models[:MOST_SERIES] if (c := view.curve(kind.curve, m, dict.fromkeys(stages)))]
    return [Series(c.model, view.colour(c.model), c) for c in curves]


def _trust_series(view: View) -> list[Series]:
    """One predictor: every model; several: those of the model in focus."""
    curves = view.curves(TRUST.curve)
    if len({c.score for c in curves}) > 1:
        own = [c for c in curves if c.model == view.focus][:MOST_SERIES]
        return [Series(score_name(str(c.score)), colour, c) for c, colour in zip(own, COLOURS, strict=False)]
    return [Series(c.model, view.colour(c.model), c) for c in curves if c.model in view.models[:MOST_SERIES]]


def _marks(kind: Kind, series: Sequence[Series]) -> list[float]:
    values = [
        kind.scale * v for one in series for k in ("low", "high") for v in one.curve.columns[k] if math.isfinite(v)
    ]
    return ticks(min([*values, *([0.0] if kind.zero else [])]), max([*values, *([0.0] if kind.zero else [])]), 8)


def _figure(view: View, kind: Kind, series: list[Series], marks: Sequence[float] = (), names: int = 0) -> Figure:
    """The boxes; panels side by side share `marks` and leave the same room for `names`."""
    marks, names = marks or _marks(kind, series), names or len(series)
    own = next((one for one in series if one.curve.model == view.focus), series[0]).curve.columns
    first, last = (fixed(kind.scale * own["median"][k], kind.digits, sign=kind.sign) for k in (0, -1))
    rows = [
        (
            one.name,
            _step(kind, s),
            *(fixed(kind.scale * one.curve.columns[k][i], kind.digits, sign=kind.sign) for k in BOX),
        )
        for one in series
        for i, s in enumerate(one.curve.columns[kind.step])
    ]
    alt = f"Box plots of {kind.axis.lower()} by {kind.across.lower()}: the median goes from {first} to {last}."
    named = "Model" if any(one.name == one.curve.model for one in series) else "Trust predictor"
    return Figure(
        kind.name,
        _title(view, kind, own["median"], series[0].curve.stage),
        _subtitle(view, kind, series),
        _canvas(kind, series, marks, names, PHONE, 270).render(alt),
        table((named, kind.step.capitalize(), *TITLES), rows),
        wide=_canvas(kind, series, marks, names, *kind.size).render(alt) if kind.size[0] != PHONE else None,
        note=f"The first {MOST_SERIES} of {len(view.models)} models." if len(view.models) > MOST_SERIES else "",
    )


def _title(view: View, kind: Kind, median: tuple[float, ...], stage: str) -> str:
    """What is seen: a claim only where the medians of the model in focus bear it."""
    grows = median[-1] > median[0] + 0.01
    if kind.curve == GAP.curve:
        return (
            f"Confidence outruns accuracy as {view.unit} get worse"
            if grows
            else "Confidence minus accuracy by severity"
        )
    if kind.curve == ECE.curve:
        if kind is BEFORE:
            return f"Calibration error {when(stage)}"
        what = "Calibration" if stage == "raw" else "Calibration on clean data"
        return f"{what} is lost as {view.unit} get worse" if grows else "Calibration error by severity"
    if kind.curve == TRUST.curve:
        return f"Trust's chances are lost as {view.unit} get worse" if grows else "Calibration error of trust"
    what = "severity" if kind.curve == RMD.curve else "wrong labels"
    return f"Difficulty grows with {what}" if grows else f"Difficulty by {what}"


def _subtitle(view: View, kind: Kind, series: list[Series]) -> str:
    if kind.curve == NOISE.curve:
        return "The same samples with more and more labels wrong; box: middle half, whiskers: 95 %"
    if kind.curve == RMD.curve:
        return "Means over the corruptions; box: middle half of the samples, whiskers: 95 %"
    boxes = "box: middle half, whiskers: extremes"
    if kind.curve == TRUST.curve:
        one = series[0].curve
        whose = score_name(str(one.score)) if series[0].name == one.model else f"predictors of {view.focus}"
        return f"ECE of the chances of being right by {whose}, fitted on clean data, over the corruptions; {boxes}"
    stage = series[0].curve.stage
    which = when(stage) + ("" if stage == "raw" else " on clean data")
    return f"{'Gap' if kind.curve == GAP.curve else 'ECE'} over the corruptions, {which}; {boxes}"


def _step(kind: Kind, value: float) -> str:
    if kind.step == "rate":
        return f"{100 * value:g}"
    return "clean" if value == 0 else f"{value:g}"


def _canvas(kind: Kind, series: list[Series], marks: Sequence[float], names: int, width: int, plot: int) -> Canvas:
    """Names of the series above the plot, for boxes of the mildest severities may reach its top."""
    top = 18 + (17 * names + 6 if names > 1 else 0)
    height = plot + top - 18
    canvas = Canvas(width, height)
    steps = list(dict.fromkeys(s for one in series for s in one.curve.columns[kind.step]))
    x, y = Scale(0, len(steps), 38, width - 6), Scale(marks[0], marks[-1], height - 36, top)
    canvas.grid_y(y, marks, 38, width - 6, sign=kind.sign)
    canvas.line(38, y.clip(0), width - 6, y.clip(0), "ax")
    each = min(0.8 * (x(1) - x(0)) / len(series), 34)
    for place, one in enumerate(series):
        for i, step in enumerate(one.curve.columns[kind.step]):
            middle = x(steps.index(step) + 0.5) + (place - (len(series) - 1) / 2) * each
            low, first, median, third, high = (y(kind.scale * one.curve.columns[k][i]) for k in BOX)
            half = each / 2 - 1.5
            canvas.line(middle, low, middle, high, f"k{one.colour}", 1.5)
            canvas.bars([(middle - half, third, 2 * half, max(first - third, 0.1))], "ho")
            canvas.bars([(middle - half, third, 2 * half, max(first - third, 0.1))], f"f{one.colour} k{one.colour} bx")
            canvas.line(middle - half, median, middle + half, median, f"k{one.colour}", 2.2)
        if names > 1:
            canvas.bars([(38, 17 * place, 10, 10)], f"f{one.colour}")
            canvas.text(54, 9 + 17 * place, shorten(one.name, width - 60), "l")
    for place, step in enumerate(steps):
        canvas.text(x(place + 0.5), height - 20, _step(kind, step), "m")
    canvas.text(38, top - 10, kind.axis, "l")
    canvas.text(width - 6, height - 3, kind.across, "l e")
    return canvas
