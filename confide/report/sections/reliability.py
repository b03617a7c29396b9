"""Reliability: does it keep what it says? Diagrams before and after, in bins of equal width or mass; the gap by
class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from markupsafe import Markup
from scipy.special import bdtr, bdtrc, stdtr, stdtrit

from confide.report.draw import (
    PHONE,
    THIRD,
    Canvas,
    Empty,
    Figure,
    FigureTable,
    Scale,
    bin_range,
    just_below,
    percent_tick,
    table,
    ticks,
)
from confide.report.view import EvaluationView
from confide.report.words import (
    CHANCE,
    P_CALIBRATED,
    between,
    code,
    count,
    p_value,
    percent,
    points,
    shorten,
    text_letters,
)
from confide.results import LEVEL, MACRO, SEED_BAND, TAILS, Curve, Measurement, Z

# The gap by class.

MOST_CLASSES = 20

Gaps = Mapping[str, Measurement]


@dataclass(frozen=True)
class ClassGrouping:
    """Classes to draw the gap by. Only by the predicted class is confidence minus accuracy a matter of calibration:
    by the label it is confidence minus recall, which differs from 0 for a calibrated model too.
    """

    kind: str
    subtitle: str
    calibration: bool
    noun: tuple[str, str] = ("class", "classes")
    chooses: str = ""
    """The explorer's filter that a name is a value of."""


CLASS_GROUPINGS = (
    ClassGrouping("label", "Confidence minus accuracy by label, absent or present", True, ("label", "labels")),
    ClassGrouping("predicted", "Confidence minus accuracy by predicted class", True, chooses="prediction"),
    ClassGrouping("class", "Confidence minus recall by class of the label; it need not be 0", False, chooses="label"),
)
"""The first that was measured is drawn; labels are those of several labels a sample."""


def class_figure(view: EvaluationView) -> Figure | None:
    """The dot plot by class, or None where nothing was measured by class."""
    for grouping in CLASS_GROUPINGS:
        before: Gaps = _gaps(view, "confidence_gap", grouping.kind, view.before)
        after: Gaps = _gaps(view, "confidence_gap", grouping.kind, view.after) if view.after else {}
        if before or after:
            return _class_figure(before, after, grouping, view)
    return None


def calibration_grouping(view: EvaluationView) -> ClassGrouping:
    """What calibration is told by: labels where a sample has several, else predicted classes."""
    by_label, by_prediction = CLASS_GROUPINGS[:2]
    measured = any(_gaps(view, "confidence_gap", by_label.kind, s) for s in (view.before, view.after) if s)
    return by_label if measured else by_prediction


def _gaps(view: EvaluationView, metric: str, kind: str, stage: str) -> Gaps:
    """A metric of the model in focus by group; the mean over labels is none of them."""
    groups = view.by_group(metric, kind, view.focus, stage)
    return {name: m for name, m in groups.items() if kind != "label" or name != MACRO}


def _class_figure(before: Gaps, after: Gaps, grouping: ClassGrouping, view: EvaluationView) -> Figure:
    first = before or after
    names = sorted(first, key=lambda name: -abs(first[name].value))
    shown = sorted(names[:MOST_CLASSES], key=lambda name: -first[name].value)
    more = f"; the {MOST_CLASSES} farthest of {len(names)}, the rest in the table" if len(names) > MOST_CLASSES else ""
    notes = ["hollow before, filled after"] * bool(before and after)
    notes += ["95 % intervals"] * any(m.has_interval for gaps in (before, after) for m in gaps.values())
    how = "".join(f"; {note}" for note in notes)
    far = names[0]
    alt = f"Dot plot. {grouping.subtitle}; farthest is {far} with {points(first[far].value, sign=True)} points."
    title = "Confidence minus recall by class"
    if grouping.calibration:
        when = "Before calibration, " if before and after else ""
        sides = class_sides(view, view.before if before else view.final)
        title = class_title(sides, len(first), when, grouping.noun)
        if len(first) > 1:
            how += f"; the heading counts tests corrected for {len(first)} {grouping.noun[1]}"
    return Figure(
        "by-class",
        title,
        f"{grouping.subtitle}, points{how}{more}",
        _class_canvas(before, after, shown, grouping).render(alt),
        table(
            (grouping.noun[0].capitalize(), "As trained, points", "95 % interval", "After, points", "95 % interval"),
            _class_rows(before, after, names),
        ),
    )


def class_title(sides: Sequence[str], number: int, when: str = "", noun: tuple[str, str] = ("class", "classes")) -> str:
    """How many of a number of classes are over- or underconfident beyond chance."""
    parts: list[str] = []
    for side in ("over", "under"):
        if many := sides.count(side):
            parts.append(f"{many} {side}confident" if parts else f"{_classes(many, number, noun)} {side}confident")
    sentence = when + (", ".join(parts) if parts else f"no single {noun[0]} is clearly over- or underconfident")
    return sentence[0].upper() + sentence[1:]


def class_sides(view: EvaluationView, stage: str) -> list[str]:
    """`over` or `under` for every predicted class, or label, of the model in focus that is so beyond chance."""
    kind = calibration_grouping(view).kind
    gaps, accuracy = (_gaps(view, word, kind, stage) for word in ("confidence_gap", "accuracy"))
    return sides_beyond_chance(gaps, accuracy, drawn_alone=view.drawn_alone, units=view.about.units)


def sides_beyond_chance(gaps: Gaps, accuracy: Gaps, *, drawn_alone: bool = True, units: int | None = None) -> list[str]:
    """The sides of the classes that are over- or underconfident beyond chance, by exact tests, Holm-corrected.

    Of weighted samples, or several drawn as one, the interval of the gap must exclude 0 at that level too.
    """
    tails = []
    for name in gaps.keys() & accuracy.keys():
        n, rate = gaps[name].n, accuracy[name].value
        # Of all that are right with these probabilities, the binomial of their mean has the heaviest tails
        # (Hoeffding, 1956), so its tail bounds that of a calibrated model.
        right, mean = round(rate * n), min(max(rate + gaps[name].value, 0.0), 1.0)
        over, under = float(bdtr(right, n, mean)), float(bdtrc(right - 1, n, mean)) if right else 1.0
        tail = min(over, under) if drawn_alone else max(min(over, under), _gap_tail(gaps[name], units))
        tails.append((tail, "over" if over < under else "under"))
    tails.sort()
    beyond = takewhile(lambda k: 2 * tails[k][0] < LEVEL / (len(gaps) - k), range(len(tails)))
    return [tails[k][1] for k in beyond]


def _gap_tail(gap: Measurement, units: int | None) -> float:
    """The one-sided p of a gap by its 95 % interval, whose ends are quantiles of Student's t."""
    if not gap.has_interval or gap.high <= gap.low:
        return 1.0
    freedom = math.inf if units is None else max(units - 1, 1)
    end = Z if units is None else float(stdtrit(freedom, TAILS[1]))
    return float(stdtr(freedom, -abs(gap.value) * 2 * end / (gap.high - gap.low)))


def _classes(number: int, of: int, noun: tuple[str, str]) -> str:
    if number == of > 1:
        return f"every {noun[0]} is"
    return f"{number} of {of} {noun[1]} {'is' if number == 1 else 'are'}"


def _class_rows(before: Gaps, after: Gaps, names: list[str]) -> list[tuple[str, ...]]:
    return [(name, *_gap_texts(before.get(name)), *_gap_texts(after.get(name))) for name in names]


def gap_text(gap: Measurement) -> str:
    """A gap in points with its interval, in words."""
    ends = between(gap.low, gap.high, 1, 100)
    return f"{points(gap.value, sign=True)} points{f' ({ends})' if ends else ''}, n = {count(gap.n)}"


def _gap_texts(gap: Measurement | None) -> tuple[str, str]:
    return (points(gap.value, sign=True), between(gap.low, gap.high, 1, 100)) if gap else ("–", "")


def _class_canvas(before: Gaps, after: Gaps, shown: list[str], grouping: ClassGrouping) -> Canvas:
    known = [m for g in (before, after) for name in shown if (m := g.get(name))]
    values = [100 * v for m in known for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(min(0.0, *values), max(0.0, *values), 5)
    left = min(136, max(60, round(7 * max(map(text_letters, shown)))))
    floor = 18 + 24 * len(shown)
    canvas = Canvas(PHONE, floor + 26)
    scale = Scale(marks[0], marks[-1], left + 14, PHONE - 12)
    canvas.ticks_x(scale, marks, floor + 20, sign=True, grid=18)
    canvas.line(scale(0), 18, scale(0), floor, "ax")
    if grouping.calibration:
        name_gap_sides(canvas, scale)
    for place, name in enumerate(shown):
        y = 30 + 24 * place
        canvas.text(left, y + 4, shorten(name, 130), "l e")
        both = name in before and name in after
        for gaps, colour, fill, shift in ((before, "g", "ho", -5), (after, "1", "f1", 5)):
            if m := gaps.get(name):
                line = y + shift if both else y
                canvas.whisker(scale, line, m, 100, colour)
                canvas.dot(scale(100 * m.value), line, f"{fill} k{colour}", 4.2, 1.8)
                when = "" if not both else ", before" if gaps is before else ", after"
                whose = {"split": m.split, "model": m.model, "stage": m.stage}
                chosen = {**whose, grouping.chooses: name} if grouping.chooses else {}
                canvas.value(scale(100 * m.value), line, f"{name}{when}: {gap_text(m)}", chosen)
    return canvas


def name_gap_sides(canvas: Canvas, gaps: Scale) -> None:
    """What lies left and right of no gap, above the plot, where the side is drawn and has room for its name."""
    if gaps.low < 0 and gaps(0) > 96:
        canvas.text(gaps(0) - 6, 11, "underconfident", "f1 e")
    if gaps.high > 0 and canvas.width - gaps(0) > 90:
        canvas.text(gaps(0) + 6, 11, "overconfident", "fw")


# The diagram, and its small form for other models.

TOP = 20  # where a plot begins, under the name of its axis
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
    chosen: str = ""
    """The explorer's filter for its samples."""

    @property
    def banded(self) -> bool:
        """Whether the bin has a consistency band."""
        return math.isfinite(self.band_low) and math.isfinite(self.band_high)

    @property
    def text(self) -> str:
        """The bin in words."""
        return f"says {percent(self.confidence, 1)}, is right {percent(self.accuracy, 1)}, n = {count(self.count)}"

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
    rows = [Bin(*row) for row in zip(*columns, strict=True)]
    return [replace(b, chosen=_chosen(curve, place, length)) for place, b in enumerate(rows) if b.count > 0]


def _chosen(curve: Curve, place: int, length: int) -> str:
    """The confidences of a bin: (low, high] in bins of equal width, of equal mass from its first to the next one's."""
    low, high = (curve.columns[name][place] for name in ("low", "high"))
    if curve.kind == "reliability_width":
        return bin_range(low, high, "right" if place else "both")
    return bin_range(just_below(low), just_below(high) if place < length - 1 and high > low else high)


def bins_table(bins: list[Bin]) -> FigureTable:
    """The numbers of the bins."""
    header = ("Bin", "Confidence", "Accuracy", "Band of a calibrated model", "Count")
    rows = []
    for b in bins:
        span = f"{percent(b.low, 1)} to {percent(b.high, 1)}"
        band = between(b.band_low, b.band_high, 1, 100)
        rows.append((span, percent(b.confidence, 1), percent(b.accuracy, 1), band, count(b.count)))
    return table(header, rows)


def finding(bins: list[Bin], p_value: float | None = None, tested: Measurement | None = None) -> str:
    """What the dots show, in words that agree with the test of these bins beside them.

    A direction is weighed by the samples whose bins lie outside the band, and claimed only where both tests reject.

    Args:
        bins: of the diagram.
        p_value: of the calibration test in these bins; the verdict's where there is none.
        tested: the calibration error that the verdict speaks of.
    """
    drawn = [b for b in bins if b.count >= FEWEST]
    over = sum(b.count for b in drawn if b.side == "w")
    under = sum(b.count for b in drawn if b.side == "1")
    total = sum(b.count for b in bins) or 1
    if not drawn:
        rejected = p_value is not None and p_value < LEVEL
        return "beyond chance, in bins too small to draw" if rejected else "too few samples to tell"
    if not any(b.banded for b in drawn):
        return "accuracy against confidence"
    by_verdict = None if tested is None else tested.p_value
    p_value = by_verdict if p_value is None else p_value
    apart = (over + under) / total > 0.25  # of samples, where no test was made one dot in four tells
    if not (apart if p_value is None else p_value < LEVEL):
        if by_verdict is not None and by_verdict < LEVEL:
            return "within chance in these bins"
        return "mostly within chance" if over + under else "within chance"
    if by_verdict is not None and by_verdict >= LEVEL:
        return "beyond chance in these bins alone"
    if not apart:
        return "beyond chance, but not by much"
    if over > 2 * under:
        return "confidence runs ahead"
    return "confidence lags behind" if under > 2 * over else "off both ways"


def diagram(bins: list[Bin], width: float, labels: bool, whose: Mapping[str, str | None]) -> Canvas:
    """Accuracy against confidence with a strip of counts under it; `whose` are filters of the explorer."""
    side = width - 43
    floor = side + TOP
    canvas = Canvas(width, floor + 126)
    x, y = Scale(0, 1, 34, 34 + side), Scale(0, 1, floor, TOP)
    for value in (0, 0.25, 0.5, 0.75, 1):
        canvas.line(34, y(value), 34 + side, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), floor + 120, percent_tick(value), "m" if value < 1 else "e")
    _band(canvas, bins, x, y)
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for b in bins:
        if b.count >= FEWEST:
            canvas.line(x(b.confidence), y(b.confidence), x(b.confidence), y(b.accuracy), f"k{b.side}", 2)
            canvas.dot(x(b.confidence), y(b.accuracy), f"f{b.side}")
            canvas.value(x(b.confidence), y(b.accuracy), b.text, {**whose, "confidence": b.chosen})
    canvas.line(34, y(0), 34 + side, y(0), "ax")
    canvas.text(0, 9, "Accuracy, %", "l")
    canvas.text(34 + side, floor + 17, "Confidence, %", "l e")
    if labels:
        _name_sides(canvas, bins, x, y)
    _count_strip(canvas, bins, x, floor + 102)
    return canvas


def _name_sides(canvas: Canvas, bins: list[Bin], x: Scale, y: Scale) -> None:
    """What lies above and below the diagonal, in the corners that no mark reaches."""
    drawn = [b for b in bins if b.count >= FEWEST]
    tops = [max(b.accuracy, b.band_high) for b in drawn if b.low < 0.6]
    floors = [min(b.accuracy, b.band_low) for b in drawn if b.high > 0.45]
    if all(top < 0.82 for top in tops):
        canvas.text(x(0.03), y(0.86), "knows more than it says", "f1")
    if all(bottom > 0.26 for bottom in floors):
        canvas.text(x(0.99), y(0.2), "says more than it knows", "fw e")


def _band(canvas: Canvas, bins: list[Bin], x: Scale, y: Scale) -> None:
    boxes = [
        (x(b.low) + 0.5, y(b.band_high), max(x(b.high) - x(b.low) - 1, 1.2), max(y(b.band_low) - y(b.band_high), 1))
        for b in bins
        if b.banded and b.count >= FEWEST
    ]
    canvas.bars(boxes, "fb")


def _count_strip(canvas: Canvas, bins: list[Bin], x: Scale, floor: float) -> None:
    most = max((b.count for b in bins), default=1)
    heights = [(b, 50 * b.count / most) for b in bins]
    canvas.bars([(x(b.low) + 0.5, floor - h, max(x(b.high) - x(b.low) - 1, 1.2), h) for b, h in heights], "fg")
    for b, h in heights:
        canvas.value(
            x(0.5 * (b.low + b.high)), floor - h, f"{percent(b.low)} to {percent(b.high)}: n = {count(b.count)}"
        )
    canvas.line(x.start, floor, x.end, floor, "ax")
    canvas.text(x.start, floor - 55, f"up to {count(most)} a bin")


def small_diagram(lines: list[tuple[str, list[Bin]]], colour: str, width: int) -> Canvas:
    """Lines of accuracy against confidence: as trained hollow in grey, after in the model's colour."""
    side = width - 82
    floor = side + TOP
    canvas = Canvas(width, floor + 28 + 20 * (len(lines) > 1))
    x, y = Scale(0, 1, 30, 30 + side), Scale(0, 1, floor, TOP)
    for value in (0, 0.5, 1):
        canvas.line(30, y(value), 30 + side, y(value), "g")
        canvas.text(24, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), floor + 16, percent_tick(value), "m")
    _band(canvas, lines[-1][1], x, y)
    canvas.line(30, y(0), 30 + side, y(0), "ax")
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for place, (_, bins) in enumerate(lines):
        hollow = place == 0 and len(lines) > 1
        own = "g" if hollow else colour
        canvas.polyline([(x(b.confidence), y(b.accuracy)) for b in bins], f"k{own}", 1.7)
        for b in bins:
            canvas.dot(x(b.confidence), y(b.accuracy), f"{'ho' if hollow else f'f{own}'} k{own}", 3.4, 1.6)
            canvas.value(x(b.confidence), y(b.accuracy), f"{'as trained' if hollow else 'after'}: {b.text}")
    _stage_key(canvas, [(s, "g" if k == 0 else colour) for k, (s, _) in enumerate(lines)], 30, floor + 38)
    canvas.text(0, 9, "Accuracy, %", "l")
    return canvas


def _stage_key(canvas: Canvas, stages: Sequence[tuple[str, str]], left: float, y: float) -> None:
    """Which line is of which stage, under the plot, where no mark can lie."""
    if len(stages) > 1:
        for place, (stage, colour) in enumerate(stages):
            start = left + 98 * place
            canvas.line(start, y - 4, start + 19, y - 4, f"k{colour}", 2.2)
            canvas.text(start + 25, y, "as trained" if stage == "raw" else "after", "l")


# The curve without bins.

ENLARGED = 0.8  # from here on confidences are shown once more, larger
SmoothLine = tuple[str, Curve]


def smooth_figures(view: EvaluationView) -> tuple[Figure, ...]:
    """Accuracy against confidence without bins, and its upper end enlarged where confidences reach it."""
    stages = [stage for stage in (view.before, view.after) if stage]
    lines = [(s, c) for s in stages if (c := view.curve("reliability_smooth", view.focus, (s,), group=None))]
    lines = [(stage, curve) for stage, curve in lines if len(curve.columns["confidence"]) > 1]
    if not lines:
        return ()
    last = lines[-1][1]
    width = points(last.columns["width"][0])
    band = "; band: 95 % of calibrated models, at each confidence" if "band_low" in last.columns else ""
    band += "; around the lines: all seeds" if "accuracy" + SEED_BAND[0] in last.columns else ""
    whole = Figure(
        "smooth",
        "The same without bins",
        f"Accuracy against confidence, smoothed over about ± {width} points{band}",
        smooth_diagram(view, lines, 0.0).render(f"Reliability curve without bins: {_farthest(last)}."),
        _smooth_table(view, lines, 5),
    )
    if max(last.columns["confidence"]) <= ENLARGED or sum(c > ENLARGED for c in last.columns["confidence"]) < 10:
        return (whole,)
    upper = Figure(
        "smooth-upper",
        f"Its end, {percent(ENLARGED)} to {percent(1)}",
        "The same curve, enlarged; most predictions of a good model lie here",
        smooth_diagram(view, lines, ENLARGED).render(
            f"The same curve from {percent(ENLARGED)} confidence on: {_farthest(last, ENLARGED)}."
        ),
        _smooth_table(view, lines, 10, ENLARGED),
    )
    return whole, upper


def _rows_of(
    curve: Curve, start: float, band: Sequence[str] = ("band_low", "band_high")
) -> list[tuple[float, float, float, float]]:
    """(confidence, accuracy, ends of the band) from a confidence on; a place without samples is NaN."""
    confidence, accuracy = curve.columns["confidence"], curve.columns["accuracy"]
    unknown = (math.nan,) * len(confidence)
    ends = (curve.columns.get(name, unknown) for name in band)
    rows: list[tuple[float, float, float, float]] = []
    for row in zip(confidence, accuracy, *ends, strict=True):
        if row[0] >= start - 1e-9:
            if rows and row[0] - rows[-1][0] > 0.0101:
                rows.append((row[0], math.nan, math.nan, math.nan))
            rows.append(row)
    return rows


def _farthest(curve: Curve, start: float = 0.0) -> str:
    """Where the curve is farthest from the diagonal, in words."""
    rows = [row for row in _rows_of(curve, start) if math.isfinite(row[1])]
    says, right, _, _ = max(rows, key=lambda row: abs(row[0] - row[1]))
    return f"farthest from the diagonal where it says {percent(says, 1)} and is right {percent(right, 1)}"


def _smooth_table(view: EvaluationView, lines: list[SmoothLine], step: int, start: float = 0.0) -> FigureTable:
    rows = [
        (view.stage_phrase(stage), percent(c, 1), percent(a, 1), between(low, high, 1, 100))
        for stage, curve in lines
        for c, a, low, high in _rows_of(curve, start)
        if math.isfinite(a) and round(1000 * c) % (5 * step if start else 10 * step) == 0
    ]
    return table(("Stage", "Confidence", "Accuracy", "Band of a calibrated model"), rows)


def smooth_diagram(view: EvaluationView, lines: list[SmoothLine], start: float) -> Canvas:
    """Lines of accuracy against confidence over the band of the last; before in grey, after in the model's colour."""
    side = PHONE - 43
    floor = side + TOP
    canvas = Canvas(PHONE, floor + 48)
    drawn = [(stage, _rows_of(curve, start)) for stage, curve in lines]
    low = 0.0
    if start:
        seen = [v for _, rows in drawn for row in rows for v in row[:3] if math.isfinite(v)]
        low = ticks(min(start, *seen), 1.0, 5)[0]
    x, y = Scale(start, 1, 34, 34 + side), Scale(low, 1, floor, TOP)
    for value in ticks(low, 1.0, 5):
        canvas.line(34, y(value), 34 + side, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
    for value in (0, 0.25, 0.5, 0.75, 1) if not start else (0.8, 0.85, 0.9, 0.95, 1):
        canvas.text(x(value), floor + 18, percent_tick(value), "m" if value < 1 else "e")
    for part in _unbroken(drawn[-1][1]):
        canvas.area([(x(c), y(high)) for c, _, _, high in part], [(x(c), y(b)) for c, _, b, _ in part], "fb")
    for place, (_, curve) in enumerate(lines):
        own = "g" if place == 0 and len(drawn) > 1 else view.colour(view.focus)
        for part in _unbroken(_rows_of(curve, start, ["accuracy" + ending for ending in SEED_BAND])):
            canvas.area(
                [(x(c), y(high)) for c, _, _, high in part], [(x(c), y(b)) for c, _, b, _ in part], f"f{own} bx"
            )
    canvas.line(x(max(start, low)), y(max(start, low)), x(1), y(1), "ref")
    for place, (stage, rows) in enumerate(drawn):
        own = "g" if place == 0 and len(drawn) > 1 else view.colour(view.focus)
        canvas.polyline([(x(c), y(a)) for c, a, _, _ in rows], f"k{own}", 2.2)
        for c, a, _, _ in rows[:: 5 if not start else 4]:
            if math.isfinite(a):
                text = f"{view.when(stage)}: says {percent(c, 1)}, is right {percent(a, 1)}"
                canvas.value(x(c), y(a), text)
    _stage_key(
        canvas, [(s, "g" if k == 0 else view.colour(view.focus)) for k, (s, _) in enumerate(drawn)], 34, floor + 40
    )
    canvas.line(34, y(low), 34 + side, y(low), "ax")
    canvas.text(0, 9, "Accuracy, %" + (f" (axis starts at {100 * low:.0f})" if low else ""), "l")
    canvas.text(34 + side, floor + 40, "Confidence, %", "l e")
    return canvas


def _unbroken(rows: list[tuple[float, float, float, float]]) -> list[list[tuple[float, float, float, float]]]:
    """The stretches of a curve that have a band."""
    parts: list[list[tuple[float, float, float, float]]] = [[]]
    for row in rows:
        if all(map(math.isfinite, row)):
            parts[-1].append(row)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if len(part) > 1]


# The section: diagrams before and after, in bins of equal width or mass.

KINDS = {"width": "Equal width", "mass": "Equal mass"}
ERRORS = {"width": "ece", "mass": "ece_mass"}
USUAL = 15  # bins to show first where there is a choice, and those that calibration errors are measured in


@dataclass(frozen=True)
class ReliabilitySection:
    """What the section shows: variants of the diagrams by kind of bins and number, and the numbers beside them."""

    kinds: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    chosen: tuple[str, int] = ("", 0)
    figures: tuple[Figure, ...] = ()
    facts: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = ()  # by variant, "width-15"
    others: tuple[Figure, ...] = ()
    classes: Figure | None = None
    smooth: tuple[Figure, ...] = ()
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return (*self.figures, *self.smooth, *self.others, *([self.classes] if self.classes else []))


def reliability_section(view: EvaluationView) -> ReliabilitySection:
    """Diagrams of the model in focus, small ones of the others, and the gap by class."""
    variants = {(kind, number): curves for kind in KINDS for number, curves in _variants(view, kind)}
    if not variants:
        why = view.why_missing("reliability") or "The evaluation holds no reliability curves."
        empty = Empty("No reliability diagram", why, "confide evaluate predictions.parquet")
        return ReliabilitySection(classes=class_figure(view), empty=empty)
    numbers = tuple(sorted({number for _, number in variants}))
    kinds = tuple((kind, title) for kind, title in KINDS.items() if any(k == kind for k, _ in variants))
    usual = min(numbers, key=lambda number: (abs(number - USUAL), number))
    chosen = next(pair for pair in ((kinds[0][0], usual), *variants) if pair in variants)
    others = [f for m in view.drawn if m != view.focus and (f := _other(view, m, chosen[0]))]
    return ReliabilitySection(
        kinds,
        numbers,
        chosen,
        tuple(_figure(view, c, *variant) for variant, curves in variants.items() for c in curves),
        tuple((f"{kind}-{number}", tuple(_facts(view, kind, number, c))) for (kind, number), c in variants.items()),
        tuple(others),
        class_figure(view),
        smooth_figures(view),
    )


def _variants(view: EvaluationView, kind: str) -> list[tuple[int, tuple[Curve, ...]]]:
    """Curves of every number of bins given; before and after are matched by their order of size."""
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
        result.append((number, curves))
    return result


def _size(curve: Curve) -> int:
    return len(curve.columns["count"])


def _figure(view: EvaluationView, curve: Curve, kind: str, number: int) -> Figure:
    bins = bins_of(curve)
    note = view.stage_note(view.focus, curve.stage)
    stage = f"{view.when(curve.stage)}, {note}" if note else view.when(curve.stage)
    error = _error_in(view, ERRORS[kind], number, curve)
    level = "chance level not measured" if error.chance is None else f"by chance {points(error.chance)}"
    size = f"calibration error {points(_error_of(bins))} points, {level}"
    alt = f"Reliability diagram {stage}: accuracy against confidence in {number} bins of equal {kind}; {size}."
    order = ("Before: " if curve.stage == view.before else "After: ") if view.after else ""
    title = order + finding(bins, error.p_value, view.calibration_error(curve.stage))
    return Figure(
        f"{kind}-{number}-{'before' if curve.stage == view.before else 'after'}",
        title[0].upper() + title[1:],
        Markup("{} {}, {} {}").format(code(view.focus), stage, count(sum(b.count for b in bins)), view.unit),
        diagram(
            bins,
            PHONE,
            labels=curve.stage == view.before,
            whose={"split": curve.split, "model": curve.model, "stage": curve.stage},
        ).render(alt),
        bins_table(bins),
        key=f"{kind}-{number}",
    )


def _facts(view: EvaluationView, kind: str, number: int, curves: Sequence[Curve]) -> list[tuple[str, str, str]]:
    """(label, value, its meaning) beside the diagrams of these bins: their error, its chance level and its test."""
    info = view.info(ERRORS[kind])
    bins = f"{number} bins of equal {kind}"
    errors = [_error_in(view, info.word, number, c) for c in curves]
    # In points even where the evaluation was asked for other metrics and does not know this one's unit.
    facts = [(f"ECE, {bins}", f"{' → '.join(points(m.value) for m in errors)} pts", info.meaning)]
    chances = [
        f"{points(m.chance)}{f', up to {points(m.chance_high)}' if m.chance_high is not None else ''}"
        for m in errors
        if m.chance is not None
    ]
    if chances:
        facts.append(("The same by chance", f"{' → '.join(dict.fromkeys(chances))} pts", CHANCE))
    tests = [p_value(m.p_value) for m in errors if m.p_value is not None]
    if tests:
        facts.append((f"p, calibrated, {bins}", " → ".join(tests), P_CALIBRATED))
    else:
        facts.append(("Chance level and test", "not measured", "The evaluation holds no intervals and no tests."))
    note = view.stage_note(view.focus, view.final)
    if note and view.after:
        facts.append((f"Fitted {view.stage_phrase(view.final)}", note, ""))
    return facts


def _error_in(view: EvaluationView, word: str, number: int, curve: Curve) -> Measurement:
    """The calibration error in the bins of a curve: the measured one in the usual number of bins, else the curve's."""
    if number == USUAL and (measured := view.find(word, curve.model, curve.stage)):
        return measured
    bins = bins_of(curve)
    chance, chance_high, p = (curve.columns.get(name, (None,))[0] for name in ("chance", "chance_high", "p_value"))
    n = int(sum(b.count for b in bins))
    return Measurement(word, _error_of(bins), n, chance=chance, chance_high=chance_high, p_value=p)


def _error_of(bins: list[Bin]) -> float:
    return sum(b.count * abs(b.confidence - b.accuracy) for b in bins) / sum(b.count for b in bins)


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
    limits = [points(m.chance_high) for m in errors if m.chance_high is not None]
    chance = f"; by chance up to {' → '.join(dict.fromkeys(limits))}" if limits else "; chance level not measured"
    rows = [(view.stage_phrase(stage), *row) for stage, bins in lines for row in bins_table(bins).rows]
    alt = f"Reliability of {model}: accuracy against confidence before and after calibration"
    alt = f"{alt}; ECE {change} points{chance}." if change else f"{alt}."
    return Figure(
        f"model-{model}",
        code(model),
        f"ECE, equal width: {change} points{chance}" if change else "Accuracy against confidence, %",
        small_diagram(lines, view.colour(model), PHONE).render(alt),
        table(("Stage", "Bin", "Confidence", "Accuracy", "Band of a calibrated model", "Count"), rows),
        wide=small_diagram(lines, view.colour(model), THIRD).render(alt),
        level=4,
    )
