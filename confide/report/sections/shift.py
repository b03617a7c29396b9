"""Shift: the gap as samples get worse, by corruption and severity, and what comes from elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Empty, Figure, table
from confide.report.sections.foreign import foreign_areas, foreign_histogram, foreign_roc, group_name
from confide.report.sections.severity import MOST_SERIES, calibration_boxes, difficulty_boxes, first_boxes
from confide.report.svg import PHONE, THIRD, Canvas, Scale
from confide.report.view import View
from confide.report.words import code, fixed, points, shorten, when

STEPS = (2.0, 8.0, 16.0)  # points where the diverging colours change, symmetric about 0
MOST_CORRUPTIONS = 24


@dataclass(frozen=True)
class Shift:
    """What the section shows."""

    corruptions: tuple[Figure, ...] = ()
    calibration: tuple[Figure, ...] = ()
    others: tuple[Figure, ...] = ()
    difficulty: tuple[Figure, ...] = ()
    unknown: tuple[Figure, ...] = ()
    areas: tuple[Figure, ...] = ()
    missing: tuple[Empty, ...] = ()
    empty: Empty | None = None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All of them, in their order."""
        kinds = (self.corruptions, self.calibration, self.others, self.difficulty, self.unknown, self.areas)
        return tuple(figure for kind in kinds for figure in kind)


def shift_section(view: View) -> Shift:
    """Corruptions and out-of-distribution data, or what is missing."""
    maps = [found for model in view.models[:MOST_SERIES] if (found := _heat_map(view, model))]
    own = [figure for model, figure in maps if model == view.focus]
    # The heat map stands beside the first boxes, which show the same gap.
    corruptions = tuple(f for f in (first_boxes(view), *own) if f)
    others = tuple(figure for model, figure in maps if model != view.focus)
    unknown, areas = tuple(f for f in (foreign_histogram(view), foreign_roc(view)) if f), foreign_areas(view)
    if not (corruptions or unknown or areas):
        why = view.why_missing("shift") or "The model was not tested on corrupted or foreign data."
        return Shift(empty=Empty("No test under shift", why, "confide shift MODEL --data DATA --ood OTHER_DATA"))
    missing = []
    if not corruptions and view.unit != "texts":
        missing.append(
            Empty("No corruptions", "The model was not tested on corrupted data.", "confide shift MODEL --data DATA")
        )
    if not (unknown or areas):
        missing.append(
            Empty(
                "No foreign data",
                "The model was not tested on data of classes it has never seen.",
                "confide shift MODEL --data DATA --ood OTHER_DATA",
            )
        )
    calibration, difficulty = calibration_boxes(view), difficulty_boxes(view)
    return Shift(corruptions, calibration, others, difficulty, unknown, areas, tuple(missing))


def _severity(value: float) -> str:
    return "clean" if value == 0 else f"{value:g}"


def _heat_map(view: View, model: str) -> tuple[str, Figure] | None:
    """(model, figure) of the gap in every cell; where it was not measured, of the calibration error as trained."""
    every = [c for c in view.curves("shift_cells", model=model) if c.group]
    gap = any("gap" in c.columns for c in every)
    what, stage = ("gap", view.final) if gap else ("ece", view.before)
    curves = [c for c in every if what in c.columns]
    curves = [c for c in curves if c.stage == stage] or curves
    if not curves:
        return None
    curves = sorted(curves, key=lambda c: -c.columns[what][-1])
    shown = curves[:MOST_CORRUPTIONS]
    (worst, most), (mildest, least) = ((group_name(c), c.columns[what][-1]) for c in (shown[0], shown[-1]))
    more = f"; the {len(shown)} worst of {len(curves)}" if len(curves) > len(shown) else ""
    name, measure = ("Gap", "confidence minus accuracy") if gap else ("ECE", "the calibration error")
    rows = [
        (group_name(c), _severity(s), points(g, sign=gap))
        for c in curves
        for s, g in zip(c.columns["severity"], c.columns[what], strict=True)
    ]
    alt = (
        f"Heat map of {measure} by corruption and severity: {worst} reaches {points(most, sign=gap)} "
        f"points, {mildest} {points(least, sign=gap)}."
    )
    claim = f"{worst.capitalize()} hurts most, {mildest} least" if len(shown) > 1 else f"{name} by severity"
    figure = Figure(
        "corruptions" if model == view.focus else f"corruptions-{model}",
        claim if model == view.focus else code(model),
        Markup("{} of {} by corruption and severity, {}, points{}").format(
            name, code(model), when(shown[0].stage), more
        ),
        _cells(shown, what, PHONE).render(alt),
        table(("Corruption", "Severity", f"{name}, points"), rows),
        wide=None if model == view.focus else _cells(shown, what, THIRD).render(alt),
        note=_steps(gap),
    )
    return model, figure


def _steps(gap: bool) -> str:
    sign = "±" if gap else ""
    return f"Colours change at {sign}{STEPS[0]:g}, {sign}{STEPS[1]:g} and {sign}{STEPS[2]:g} points."


def _cells(shown: list[Curve], what: str, width: int) -> Canvas:
    severities = [s for s in dict.fromkeys(s for c in shown for s in c.columns["severity"]) if s > 0]
    canvas = Canvas(width, 18 + 21 * len(shown) + 30)
    x = Scale(0, len(severities), 104, width)
    for k, severity in enumerate(severities):
        canvas.text(x(k + 0.5), 11, _severity(severity), "m")
    for row, curve in enumerate(shown):
        top = 18 + 21 * row
        canvas.text(96, top + 14, shorten(group_name(curve), 96), "l e")
        for severity, value in zip(curve.columns["severity"], curve.columns[what], strict=True):
            if severity > 0 and math.isfinite(value):
                k, step = severities.index(severity), _step(100 * value)
                canvas.bars([(x(k), top, x(k + 1) - x(k) - 1, 20)], f"d{step}")
                canvas.text(x(k + 0.5), top + 14, fixed(100 * value, 0, sign=what == "gap"), f"m nh t{step}")
    _ramp(canvas, 18 + 21 * len(shown) + 14, what)
    return canvas


def _step(value: float) -> int:
    size = sum(abs(value) >= limit for limit in STEPS)
    return 3 + size if value > 0 else 3 - size


def _ramp(canvas: Canvas, y: float, what: str) -> None:
    steps = range(7) if what == "gap" else range(3, 7)
    canvas.text(104, y + 9, "under" if what == "gap" else "low", "")
    for place, step in enumerate(steps):
        canvas.bars([(142 + 18 * place, y, 17, 10)], f"d{step}")
    canvas.text(142 + 18 * len(steps) + 5, y + 9, "over" if what == "gap" else "high", "")
