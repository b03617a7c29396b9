"""Confidence minus accuracy by predicted class: hollow before calibration, filled after with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping

from confide.core.results import Measurement
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import between, points, shorten

MOST_CLASSES = 20

Gaps = Mapping[str, Measurement]


def class_figure(view: View) -> Figure | None:
    """The dot plot by class, or None where nothing was measured by class."""
    for kind, words in (("predicted", "predicted class"), ("class", "class of the label")):
        before: Gaps = view.by_group("confidence_gap", kind, view.focus, view.before)
        after: Gaps = view.by_group("confidence_gap", kind, view.focus, view.after) if view.after else {}
        if before or after:
            return _figure(before, after, words)
    return None


def _figure(before: Gaps, after: Gaps, by: str) -> Figure:
    first = before or after
    names = sorted(first, key=lambda name: -abs(first[name].value))
    shown = sorted(names[:MOST_CLASSES], key=lambda name: -first[name].value)
    more = f"; the {MOST_CLASSES} farthest of {len(names)}, the rest in the table" if len(names) > MOST_CLASSES else ""
    how = "hollow before, filled after with 95 % interval" if before and after else "95 % intervals"
    far = names[0]
    alt = (
        f"Dot plot of confidence minus accuracy by {by}; "
        f"farthest is {far} with {points(first[far].value, sign=True)} points."
    )
    return Figure(
        "by-class",
        _title(before, after),
        f"Confidence minus accuracy by {by}, points; {how}{more}",
        _draw(before, after, shown).render(alt),
        table(("Class", "As trained, points", "After, points", "95 % interval"), _rows(before, after, names)),
    )


def _title(before: Gaps, after: Gaps) -> str:
    over = before and all(m.value > 0 for m in before.values())
    under = before and all(m.value < 0 for m in before.values())
    when = "Before calibration, every" if after else "Every"
    if over or under:
        return f"{when} class is {'over' if over else 'under'}confident"
    return "Classes differ in confidence"


def _rows(before: Gaps, after: Gaps, names: list[str]) -> list[tuple[str, ...]]:
    rows = []
    for name in names:
        values = [points(g[name].value, sign=True) if name in g else "–" for g in (before, after)]
        last = (after or before).get(name)
        rows.append((name, *values, between(last.low, last.high, 1, 100) if last else ""))
    return rows


def _draw(before: Gaps, after: Gaps, shown: list[str]) -> Canvas:
    known = [m for g in (before, after) for name in shown if (m := g.get(name))]
    values = [100 * v for m in known for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(min(0.0, *values), max(0.0, *values), 5)
    left = min(136, max(60, 7 * max(len(name) for name in shown)))
    floor = 18 + 24 * len(shown)
    canvas = Canvas(PHONE, floor + 26)
    scale = Scale(marks[0], marks[-1], left + 14, PHONE - 12)
    canvas.ticks_x(scale, marks, floor + 20, sign=True, grid=18)
    canvas.line(scale(0), 18, scale(0), floor, "ax")
    if marks[0] < 0:
        canvas.text(scale(0) - 6, 11, "underconfident", "f1 e")
    canvas.text(scale(0) + 6, 11, "overconfident", "fw")
    for place, name in enumerate(shown):
        y = 30 + 24 * place
        canvas.text(left, y + 4, shorten(name, 130), "l e")
        for gaps, colour, fill in ((before, "g", "ho"), (after, "1", "f1")):
            m = gaps.get(name)
            if m and (fill == "f1" or not after) and math.isfinite(m.low):
                canvas.line(scale.clip(100 * m.low), y, scale.clip(100 * m.high), y, f"k{colour}", 1.5)
            if m:
                canvas.dot(scale(100 * m.value), y, f"{fill} k{colour}", 4.2, 1.8)
    return canvas
