"""Reliability: does it keep what it says? Diagrams before and after, in bins of equal width or mass; by class."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Empty, Figure, table
from confide.report.sections.classes import class_figure
from confide.report.sections.diagram import FEWEST, bins_of, bins_table, diagram, finding, small_diagram
from confide.report.svg import PHONE, THIRD
from confide.report.verdict import calibration_error
from confide.report.view import View
from confide.report.words import code, count, p_value, points, stage_phrase, when

KINDS = {"width": "Equal width", "mass": "Equal mass"}
USUAL = 15  # bins to show first where there is a choice
MOST_OTHERS = 4


@dataclass(frozen=True)
class Reliability:
    """What the section shows: variants of the diagrams by kind of bins and number, and the numbers beside them."""

    kinds: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    chosen: tuple[str, int] = ("", 0)
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str, str], ...] = ()
    others: tuple[Figure, ...] = ()
    classes: Figure | None = None
    empty: Empty | None = None


def reliability_section(view: View) -> Reliability:
    """Diagrams of the model in focus, small ones of the others, and the gap by class."""
    variants = {(kind, number): figures for kind in KINDS for number, figures in _variants(view, kind)}
    if not variants:
        why = view.why_missing("reliability") or "The evaluation holds no reliability curves."
        empty = Empty("No reliability diagram", why, "confide evaluate predictions.parquet")
        return Reliability(classes=class_figure(view), empty=empty)
    numbers = tuple(sorted({number for _, number in variants}))
    kinds = tuple((kind, title) for kind, title in KINDS.items() if any(k == kind for k, _ in variants))
    usual = min(numbers, key=lambda number: (abs(number - USUAL), number))
    chosen = next(pair for pair in ((kinds[0][0], usual), *variants) if pair in variants)
    others = [f for m in view.models if m != view.focus and (f := _other(view, m, chosen[0]))]
    return Reliability(
        kinds,
        numbers,
        chosen,
        tuple(figure for figures in variants.values() for figure in figures),
        tuple(_facts(view)),
        tuple(others[:MOST_OTHERS]),
        class_figure(view),
    )


def _variants(view: View, kind: str) -> list[tuple[int, tuple[Figure, ...]]]:
    """Figures of every number of bins given; before and after are matched by their order of size."""
    found = [
        sorted(view.curves(f"reliability_{kind}", model=view.focus, stage=stage, group=None), key=_size)
        for stage in (view.before, view.after)
        if stage
    ]
    # Ties can leave bins of equal mass fewer than asked for: name them by the nearest number asked for.
    asked = {_size(c) for c in view.curves("reliability_width", model=view.focus, group=None)}
    result = []
    for curves in zip(*[f for f in found if f], strict=False):
        size = max(_size(c) for c in curves)
        number = min(asked or {size}, key=lambda x: abs(x - size))
        result.append((number, tuple(_figure(view, c, kind, number) for c in curves)))
    return result


def _size(curve: Curve) -> int:
    return len(curve.columns["count"])


def _figure(view: View, curve: Curve, kind: str, number: int) -> Figure:
    bins = bins_of(curve)
    note = view.stage_note(view.focus, curve.stage)
    stage = f"{when(curve.stage)}, {note}" if note else when(curve.stage)
    error = view.find("ece" if kind == "width" else "ece_mass", stage=curve.stage)
    size = f"; calibration error {points(error.value)} points" if error else f"; {finding(bins)}"
    alt = f"Reliability diagram {stage}: accuracy against confidence in {number} equal-{kind} bins{size}."
    order = ("Before: " if curve.stage == view.before else "After: ") if view.after else ""
    # The verdict's own test, so that titles and verdict never disagree.
    tested = calibration_error(view, curve.stage)
    title = order + finding(bins, tested.p_value if tested else None)
    return Figure(
        f"{kind}-{number}-{'before' if curve.stage == view.before else 'after'}",
        title[0].upper() + title[1:],
        Markup("{} {}, {} {}").format(code(view.focus), stage, count(sum(b.count for b in bins)), view.unit),
        diagram(bins, PHONE, labels=curve.stage == view.before).render(alt),
        bins_table(bins),
        key=f"{kind}-{number}",
    )


def _facts(view: View) -> list[tuple[str, str, str]]:
    """(label, value, key of its meaning) beside the diagrams."""
    facts = []
    for metric, name in (("ece", "equal width"), ("ece_mass", "equal mass")):
        both = [m for s in (view.before, view.after) if s and (m := view.find(metric, stage=s))]
        if both:
            facts.append((f"ECE, {name}", " → ".join(points(m.value) for m in both) + " pts", f"ece:{metric}"))
    error = calibration_error(view, view.final)
    if error and error.chance is not None:
        bound = f", up to {points(error.chance_high)}" if error.chance_high is not None else ""
        facts.append(("ECE by chance", f"{points(error.chance)} pts{bound}", "chance"))
    for metric, name in (("ece_mass", "equal mass"), ("ece", "equal width")):
        tests = [
            m for s in (view.before, view.after) if s and (m := view.find(metric, stage=s)) and m.p_value is not None
        ]
        if tests:
            facts.append((f"p, calibrated, {name}", " → ".join(p_value(m.p_value) for m in tests), "p"))
    note = view.stage_note(view.focus, view.final)
    if note and view.after:
        facts.append((f"Fitted {stage_phrase(view.final)}", note, ""))
    return facts


def _other(view: View, model: str, kind: str) -> Figure | None:
    """Another model in small, before in grey and after in its colour."""
    lines = []
    for stage in (view.before, view.after):
        found = view.curves(f"reliability_{kind}", model=model, stage=stage, group=None) if stage else []
        if found:
            curve = min(found, key=lambda c: abs(_size(c) - 10))
            lines.append((str(stage), [b for b in bins_of(curve) if b.count >= FEWEST]))
    if not lines:
        return None
    errors = [m for s in (view.before, view.after) if s and (m := view.find("ece", model, s))]
    change = " → ".join(points(m.value) for m in errors)
    rows = [(stage_phrase(stage), *row) for stage, bins in lines for row in bins_table(bins).rows]
    alt = f"Reliability of {model}: accuracy against confidence before and after calibration"
    alt = f"{alt}; ECE {change} points." if change else f"{alt}."
    return Figure(
        f"model-{model}",
        code(model),
        f"ECE, equal width: {change} points" if change else "Accuracy against confidence, %",
        small_diagram(lines, view.colour(model), PHONE).render(alt),
        table(("Stage", "Bin", "Confidence", "Accuracy", "Band of a calibrated model", "Count"), rows),
        wide=small_diagram(lines, view.colour(model), THIRD).render(alt),
        level=4,
    )
