"""Shift: the gap as samples get worse, by corruption and severity, and what comes from elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Empty, Figure, table
from confide.report.sections.foreign import foreign_histogram, foreign_roc, group_name
from confide.report.sections.severity import severity_figures
from confide.report.svg import PHONE, Canvas, Scale
from confide.report.view import View
from confide.report.words import code, fixed, points, shorten

STEPS = (2.0, 8.0, 16.0)  # points where the diverging colours change, symmetric about 0
MOST_CORRUPTIONS = 24


@dataclass(frozen=True)
class Shift:
    """What the section shows."""

    corruptions: tuple[Figure, ...] = ()
    unknown: tuple[Figure, ...] = ()
    missing: tuple[Empty, ...] = ()
    empty: Empty | None = None


def shift_section(view: View) -> Shift:
    """Corruptions and out-of-distribution data, or what is missing."""
    cells = _heat_map(view)
    boxes = severity_figures(view)
    # The heat map stands beside the first boxes, which show the same gap.
    corruptions = (*boxes[:1], *([cells] if cells else []), *boxes[1:])
    unknown = tuple(f for f in (foreign_histogram(view), foreign_roc(view)) if f)
    if not (corruptions or unknown):
        why = view.why_missing("shift") or "The model was not tested on corrupted or foreign data."
        return Shift(empty=Empty("No test under shift", why, "confide shift MODEL --data DATA --ood OTHER_DATA"))
    missing = []
    if not corruptions:
        missing.append(
            Empty("No corruptions", "The model was not tested on corrupted data.", "confide shift MODEL --data DATA")
        )
    if not unknown:
        missing.append(
            Empty(
                "No foreign data",
                "The model was not tested on data of classes it has never seen.",
                "confide shift MODEL --data DATA --ood OTHER_DATA",
            )
        )
    return Shift(corruptions, unknown, tuple(missing))


def _severity(value: float) -> str:
    return "clean" if value == 0 else f"{value:g}"


def _heat_map(view: View) -> Figure | None:
    curves = [c for c in view.curves("shift_cells", model=view.focus) if c.group and "gap" in c.columns]
    curves = [c for c in curves if c.stage == view.final] or curves
    if not curves:
        return None
    curves = sorted(curves, key=lambda c: -c.columns["gap"][-1])
    shown = curves[:MOST_CORRUPTIONS]
    (worst, most), (mildest, least) = ((group_name(c), c.columns["gap"][-1]) for c in (shown[0], shown[-1]))
    more = f"; the {len(shown)} worst of {len(curves)}" if len(curves) > len(shown) else ""
    rows = [
        (group_name(c), _severity(s), points(g, sign=True))
        for c in curves
        for s, g in zip(c.columns["severity"], c.columns["gap"], strict=True)
    ]
    alt = (
        f"Heat map of confidence minus accuracy by corruption and severity: {worst} reaches {points(most, sign=True)} "
        f"points, {mildest} {points(least, sign=True)}."
    )
    return Figure(
        "corruptions",
        f"{worst.capitalize()} hurts most, {mildest} least" if len(shown) > 1 else "Gap by severity",
        Markup("Gap of {} by corruption and severity, points{}").format(code(view.focus), more),
        _cells(shown).render(alt),
        table(("Corruption", "Severity", "Gap, points"), rows),
        note=f"Colours change at ±{STEPS[0]:g}, ±{STEPS[1]:g} and ±{STEPS[2]:g} points.",
    )


def _cells(shown: list[Curve]) -> Canvas:
    severities = [s for s in dict.fromkeys(s for c in shown for s in c.columns["severity"]) if s > 0]
    canvas = Canvas(PHONE, 18 + 21 * len(shown) + 30)
    x = Scale(0, len(severities), 104, PHONE)
    for k, severity in enumerate(severities):
        canvas.text(x(k + 0.5), 11, _severity(severity), "m")
    for row, curve in enumerate(shown):
        top = 18 + 21 * row
        canvas.text(96, top + 14, shorten(group_name(curve), 96), "l e")
        for severity, gap in zip(curve.columns["severity"], curve.columns["gap"], strict=True):
            if severity > 0 and math.isfinite(gap):
                k, step = severities.index(severity), _step(100 * gap)
                canvas.bars([(x(k), top, x(k + 1) - x(k) - 1, 20)], f"d{step}")
                canvas.text(x(k + 0.5), top + 14, fixed(100 * gap, 0, sign=True), f"m nh t{step}")
    _ramp(canvas, 18 + 21 * len(shown) + 14)
    return canvas


def _step(gap: float) -> int:
    size = sum(abs(gap) >= limit for limit in STEPS)
    return 3 + size if gap > 0 else 3 - size


def _ramp(canvas: Canvas, y: float) -> None:
    canvas.text(104, y + 9, "under", "")
    for k in range(7):
        canvas.bars([(142 + 23 * k, y, 22, 10)], f"d{k}")
    canvas.text(142 + 23 * 7 + 5, y + 9, "over", "")
