"""Slices: groups of samples whose confidence is wrong beyond chance, found on one half and shown on the other."""

from __future__ import annotations

from dataclasses import dataclass

from confide.report.draw import PHONE, WIDE, Canvas, Figure, Scale, table, ticks
from confide.report.sections.reliability import gap_text, name_gap_sides
from confide.report.view import EvaluationView
from confide.report.words import between, count, p_value, points, shorten
from confide.results import Measurement

MOST = 20


@dataclass(frozen=True)
class SlicesSection:
    """What the section shows; nothing where no slices were looked for, or none was found."""

    figure: Figure | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return (self.figure,) if self.figure else ()


def slices_section(view: EvaluationView) -> SlicesSection:
    """The slices of the model in focus, widest gap first."""
    gaps = view.by_group("confidence_gap", "slice", view.focus, view.final)
    gaps = gaps or view.by_group("confidence_gap", "slice", view.focus, view.before)
    if not gaps:
        return SlicesSection()
    names = sorted(gaps, key=lambda name: -abs(gaps[name].value))
    number = f"{len(names)} slices" if len(names) > 1 else "One slice"
    rows = [
        (name, points(m.value, sign=True), between(m.low, m.high, 1, 100), p_value(m.p_value), count(m.n))
        for name, m in gaps.items()
    ]
    alt = f"Dot plot of confidence minus accuracy by slice; the widest is {names[0]}: {gap_text(gaps[names[0]])}."
    shown = {name: gaps[name] for name in names[:MOST]}
    return SlicesSection(
        Figure(
            "slices",
            f"{number} of samples whose confidence is wrong beyond chance",
            "Confidence minus accuracy, points, 95 % intervals; chosen on one half of the samples, shown on the other",
            _canvas(shown, PHONE).render(alt),
            table(("Slice", "Gap, points", "95 % interval", "p, Holm-corrected", "n"), rows),
            wide=_canvas(shown, WIDE).render(alt),
            note=f"The {MOST} widest; the rest is in the table." if len(names) > MOST else "",
        )
    )


def _canvas(gaps: dict[str, Measurement], width: int) -> Canvas:
    values = [100 * v for m in gaps.values() for v in (m.value, m.low, m.high)]
    marks = ticks(min(0.0, *values), max(0.0, *values), 6)
    floor = 18 + 36 * len(gaps)
    canvas = Canvas(width, floor + 26)
    scale = Scale(marks[0], marks[-1], 14, width - 14)
    canvas.ticks_x(scale, marks, floor + 20, sign=True, grid=18)
    canvas.line(scale(0), 18, scale(0), floor, "ax")
    name_gap_sides(canvas, scale)
    for place, (name, m) in enumerate(gaps.items()):
        y = 46 + 36 * place
        canvas.text(22, y - 12, shorten(name, width - 36), "l")
        colour = "w" if m.value > 0 else "1"
        canvas.whisker(scale, y, m, 100, colour)
        canvas.dot(scale(100 * m.value), y, f"f{colour}", 4.5)
        whose = {"split": m.split, "model": m.model, "stage": m.stage, "panel": "slices"}
        canvas.value(scale(100 * m.value), y, f"{name}: {gap_text(m)}", whose)
    return canvas
