"""Reliability: does it keep what it says? Diagrams before and after, in bins of equal width or mass; the gap by
class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from confide.report.draw import PHONE, THIRD, Canvas, Empty, Figure, FigureTable, Scale, percent_tick, table, ticks
from confide.report.view import EvaluationView
from confide.report.words import CHANCE, P_CALIBRATED, between, code, count, p_value, percent, points, shorten, shown
from confide.results import LEVEL, Curve, Measurement

# The gap by class.

MOST_CLASSES = 20

Gaps = Mapping[str, Measurement]


def class_figure(view: EvaluationView) -> Figure | None:
    """The dot plot by class, or None where nothing was measured by class."""
    for kind, words in (("predicted", "predicted class"), ("class", "class of the label")):
        before: Gaps = view.by_group("confidence_gap", kind, view.focus, view.before)
        after: Gaps = view.by_group("confidence_gap", kind, view.focus, view.after) if view.after else {}
        if before or after:
            return _class_figure(before, after, words)
    return None


def _class_figure(before: Gaps, after: Gaps, by: str) -> Figure:
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
        _class_title(before, after),
        f"Confidence minus accuracy by {by}, points; {how}{more}",
        _class_canvas(before, after, shown).render(alt),
        table(("Class", "As trained, points", "After, points", "95 % interval"), _class_rows(before, after, names)),
    )


def _class_title(before: Gaps, after: Gaps) -> str:
    over = before and all(m.value > 0 for m in before.values())
    under = before and all(m.value < 0 for m in before.values())
    when = "Before calibration, every" if after else "Every"
    if over or under:
        return f"{when} class is {'over' if over else 'under'}confident"
    return "Classes differ in confidence"


def _class_rows(before: Gaps, after: Gaps, names: list[str]) -> list[tuple[str, ...]]:
    rows = []
    for name in names:
        values = [points(g[name].value, sign=True) if name in g else "–" for g in (before, after)]
        last = (after or before).get(name)
        rows.append((name, *values, between(last.low, last.high, 1, 100) if last else ""))
    return rows


def _class_canvas(before: Gaps, after: Gaps, shown: list[str]) -> Canvas:
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
            if m and (fill == "f1" or not after):
                canvas.whisker(scale, y, m, 100, colour)
            if m:
                canvas.dot(scale(100 * m.value), y, f"{fill} k{colour}", 4.2, 1.8)
    return canvas


# The diagram, and its small form for other models.

FEWEST = 15  # a bin with fewer samples shows its count, but no dot


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability curve."""

    low: float
    high: float
    confidence: float
    accuracy: float
    count: float
    band_low: float
    band_high: float

    @property
    def banded(self) -> bool:
        """Whether the bin has a consistency band."""
        return math.isfinite(self.band_low) and math.isfinite(self.band_high)

    @property
    def side(self) -> str:
        """`g` inside the band of a calibrated model, `w` below it (overconfident), `1` above it (underconfident)."""
        if not self.banded:
            return "g"
        return "w" if self.accuracy < self.band_low else "1" if self.accuracy > self.band_high else "g"


def bins_of(curve: Curve) -> list[Bin]:
    """The bins of a reliability curve that hold samples."""
    names = ("low", "high", "confidence", "accuracy", "count", "band_low", "band_high")
    length = len(curve.columns["count"])
    columns = [curve.columns.get(name) or (math.nan,) * length for name in names]
    return [b for row in zip(*columns, strict=True) if (b := Bin(*row)).count > 0]


def bins_table(bins: list[Bin]) -> FigureTable:
    """The numbers of the bins."""
    header = ("Bin", "Confidence", "Accuracy", "Band of a calibrated model", "Count")
    rows = []
    for b in bins:
        span = f"{percent(b.low, 1)} to {percent(b.high, 1)}"
        band = between(b.band_low, b.band_high, 1, 100)
        rows.append((span, percent(b.confidence, 1), percent(b.accuracy, 1), band, count(b.count)))
    return table(header, rows)


def finding(bins: list[Bin], p_value: float | None = None) -> str:
    """What the dots show, in words: weighed by the samples whose bins lie outside the band.

    No direction is claimed where the calibration test does not reject.
    """
    drawn = [b for b in bins if b.count >= FEWEST]
    over = sum(b.count for b in drawn if b.side == "w")
    under = sum(b.count for b in drawn if b.side == "1")
    total = sum(b.count for b in bins) or 1
    if not drawn:
        return "too few samples to tell"
    if not any(b.banded for b in drawn):
        return "accuracy against confidence"
    if over + under == 0:
        return "within chance"
    if (over + under) / total <= 0.25 or (p_value is not None and p_value >= LEVEL):
        return "mostly within chance"
    if over > 2 * under:
        return "confidence runs ahead"
    return "confidence lags behind" if under > 2 * over else "off both ways"


def diagram(bins: list[Bin], width: float, labels: bool) -> Canvas:
    """Accuracy against confidence with a strip of counts under it."""
    side = width - 43
    canvas = Canvas(width, side + 136)
    x, y = Scale(0, 1, 34, 34 + side), Scale(0, 1, side + 10, 10)
    for value in (0, 0.25, 0.5, 0.75, 1):
        canvas.line(34, y(value), 34 + side, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), side + 130, percent_tick(value), "m" if value < 1 else "e")
    _band(canvas, bins, x, y)
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for b in bins:
        if b.count >= FEWEST:
            canvas.line(x(b.confidence), y(b.confidence), x(b.confidence), y(b.accuracy), f"k{b.side}", 2)
            canvas.dot(x(b.confidence), y(b.accuracy), f"f{b.side}")
    canvas.line(34, y(0), 34 + side, y(0), "ax")
    canvas.text(43, 31, "Accuracy, %", "l")
    canvas.text(34 + side, side + 27, "Confidence, %", "l e")
    if labels:
        canvas.text(43, 62, "knows more than it says", "f1")
        canvas.text(34 + side - 4, y(0.2), "says more than it knows", "fw e")
    _count_strip(canvas, bins, x, side + 112)
    return canvas


def _band(canvas: Canvas, bins: list[Bin], x: Scale, y: Scale) -> None:
    boxes = [
        (x(b.low) + 0.5, y(b.band_high), max(x(b.high) - x(b.low) - 1, 1.2), max(y(b.band_low) - y(b.band_high), 1))
        for b in bins
        if b.banded
    ]
    canvas.bars(boxes, "fb")


def _count_strip(canvas: Canvas, bins: list[Bin], x: Scale, floor: float) -> None:
    most = max((b.count for b in bins), default=1)
    heights = [(b, 50 * b.count / most) for b in bins]
    canvas.bars([(x(b.low) + 0.5, floor - h, max(x(b.high) - x(b.low) - 1, 1.2), h) for b, h in heights], "fg")
    canvas.line(x.start, floor, x.end, floor, "ax")
    canvas.text(x.start, floor - 55, f"up to {count(most)} a bin")


def small_diagram(lines: list[tuple[str, list[Bin]]], colour: str, width: int) -> Canvas:
    """Lines of accuracy against confidence: as trained hollow in grey, after in the model's colour."""
    side = width - 82
    canvas = Canvas(width, side + 36)
    x, y = Scale(0, 1, 30, 30 + side), Scale(0, 1, side + 8, 8)
    for value in (0, 0.5, 1):
        canvas.line(30, y(value), 30 + side, y(value), "g")
        canvas.text(24, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), side + 24, percent_tick(value), "m")
    _band(canvas, lines[-1][1], x, y)
    canvas.line(30, y(0), 30 + side, y(0), "ax")
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for place, (stage, bins) in enumerate(lines):
        hollow = place == 0 and len(lines) > 1
        own = "g" if hollow else colour
        canvas.polyline([(x(b.confidence), y(b.accuracy)) for b in bins], f"k{own}", 1.7)
        for b in bins:
            canvas.dot(x(b.confidence), y(b.accuracy), f"{'ho' if hollow else f'f{own}'} k{own}", 3.4, 1.6)
        canvas.line(x(0.5), y(0.27) + 19 * place, x(0.5) + 19, y(0.27) + 19 * place, f"k{own}", 2)
        canvas.text(x(0.5) + 26, y(0.27) + 4 + 19 * place, "as trained" if stage == "raw" else "after", "l")
    canvas.text(40, 24, "Accuracy, %", "l")
    return canvas


# The section: diagrams before and after, in bins of equal width or mass.

KINDS = {"width": "Equal width", "mass": "Equal mass"}
USUAL = 15  # bins to show first where there is a choice
MOST_OTHERS = 4


@dataclass(frozen=True)
class ReliabilitySection:
    """What the section shows: variants of the diagrams by kind of bins and number, and the numbers beside them."""

    kinds: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    chosen: tuple[str, int] = ("", 0)
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, str, str], ...] = ()
    others: tuple[Figure, ...] = ()
    classes: Figure | None = None
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return (*self.figures, *self.others, *([self.classes] if self.classes else []))


def reliability_section(view: EvaluationView) -> ReliabilitySection:
    """Diagrams of the model in focus, small ones of the others, and the gap by class."""
    variants = {(kind, number): figures for kind in KINDS for number, figures in _variants(view, kind)}
    if not variants:
        why = view.why_missing("reliability") or "The evaluation holds no reliability curves."
        empty = Empty("No reliability diagram", why, "confide evaluate predictions.parquet")
        return ReliabilitySection(classes=class_figure(view), empty=empty)
    numbers = tuple(sorted({number for _, number in variants}))
    kinds = tuple((kind, title) for kind, title in KINDS.items() if any(k == kind for k, _ in variants))
    usual = min(numbers, key=lambda number: (abs(number - USUAL), number))
    chosen = next(pair for pair in ((kinds[0][0], usual), *variants) if pair in variants)
    others = [f for m in view.models if m != view.focus and (f := _other(view, m, chosen[0]))]
    return ReliabilitySection(
        kinds,
        numbers,
        chosen,
        tuple(figure for figures in variants.values() for figure in figures),
        tuple(_facts(view)),
        tuple(others[:MOST_OTHERS]),
        class_figure(view),
    )


def _variants(view: EvaluationView, kind: str) -> list[tuple[int, tuple[Figure, ...]]]:
    """Figures of every number of bins given; before and after are matched by their order of size."""
    by_stage = [
        sorted(view.curves(f"reliability_{kind}", model=view.focus, stage=stage, group=None), key=_size)
        for stage in (view.before, view.after)
        if stage
    ]
    # Ties can leave bins of equal mass fewer than asked for: name them by the nearest number asked for.
    sizes = {_size(c) for c in view.curves("reliability_width", model=view.focus, group=None)}
    result = []
    for curves in zip(*[f for f in by_stage if f], strict=False):
        size = max(_size(c) for c in curves)
        number = min(sizes or {size}, key=lambda x: abs(x - size))
        result.append((number, tuple(_figure(view, c, kind, number) for c in curves)))
    return result


def _size(curve: Curve) -> int:
    return len(curve.columns["count"])


def _figure(view: EvaluationView, curve: Curve, kind: str, number: int) -> Figure:
    bins = bins_of(curve)
    note = view.stage_note(view.focus, curve.stage)
    stage = f"{view.when(curve.stage)}, {note}" if note else view.when(curve.stage)
    error = view.find("ece" if kind == "width" else "ece_mass", stage=curve.stage)
    size = f"; calibration error {points(error.value)} points" if error else f"; {finding(bins)}"
    alt = f"Reliability diagram {stage}: accuracy against confidence in {number} equal-{kind} bins{size}."
    order = ("Before: " if curve.stage == view.before else "After: ") if view.after else ""
    # The verdict's own test, so that titles and verdict never disagree.
    tested = view.calibration_error(curve.stage)
    title = order + finding(bins, tested.p_value if tested else None)
    return Figure(
        f"{kind}-{number}-{'before' if curve.stage == view.before else 'after'}",
        title[0].upper() + title[1:],
        Markup("{} {}, {} {}").format(code(view.focus), stage, count(sum(b.count for b in bins)), view.unit),
        diagram(bins, PHONE, labels=curve.stage == view.before).render(alt),
        bins_table(bins),
        key=f"{kind}-{number}",
    )


def _facts(view: EvaluationView) -> list[tuple[str, str, str]]:
    """(label, value, its meaning) beside the diagrams."""
    facts = []
    errors = [info for info in view.evaluation.columns("headline") if info.kind == "calibration"]
    measured = {
        info.word: [m for s in (view.before, view.after) if s and (m := view.find(info.word, stage=s))]
        for info in errors
    }
    for info in reversed(errors):
        if both := measured[info.word]:
            change = " → ".join(shown(info, m.value) for m in both)
            facts.append((info.title, f"{change} {info.unit}", info.meaning))
    error = view.calibration_error(view.final)
    if error and error.chance is not None:
        bound = f", up to {points(error.chance_high)}" if error.chance_high is not None else ""
        facts.append(("ECE by chance", f"{points(error.chance)} pts{bound}", CHANCE))
    for info in errors:
        tests = [m.p_value for m in measured[info.word] if m.p_value is not None]
        if tests:
            name = info.title.removeprefix("ECE, ")
            facts.append((f"p, calibrated, {name}", " → ".join(p_value(p) for p in tests), P_CALIBRATED))
    note = view.stage_note(view.focus, view.final)
    if note and view.after:
        facts.append((f"Fitted {view.stage_phrase(view.final)}", note, ""))
    return facts


def _other(view: EvaluationView, model: str, kind: str) -> Figure | None:
    """Another model in small, before in grey and after in its colour."""
    lines = []
    for stage in (view.before, view.after):
        curves = view.curves(f"reliability_{kind}", model=model, stage=stage, group=None) if stage else []
        if curves:
            curve = min(curves, key=lambda c: abs(_size(c) - 10))
            lines.append((str(stage), [b for b in bins_of(curve) if b.count >= FEWEST]))
    if not lines:
        return None
    errors = [m for s in (view.before, view.after) if s and (m := view.find("ece", model, s))]
    change = " → ".join(points(m.value) for m in errors)
    rows = [(view.stage_phrase(stage), *row) for stage, bins in lines for row in bins_table(bins).rows]
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
