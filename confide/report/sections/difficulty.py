"""Difficulty: its distribution, errors by group of it, the easiest and hardest of each class, and suspected labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.report.draw import (
    PHONE,
    Canvas,
    Empty,
    Figure,
    FigureTable,
    Scale,
    bin_range,
    explorer_query,
    table,
    ticks,
)
from confide.report.view import EvaluationView
from confide.report.words import between, count, fixed, percent, shorten, tip
from confide.results import Curve, DifficultyInfo, Sample

# Drawings: how difficulty is spread over the samples, and the error rate by group of it.

ORDINALS = ("easiest", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th")


def difficulty_text(value: float | None) -> str:
    """A difficulty with as many decimals as its size asks for."""
    if value is None or not math.isfinite(value):
        return ""
    return fixed(value, 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2)


def distribution(view: EvaluationView) -> Figure | None:
    """Histogram of difficulty, shaded by band."""
    curves = view.curves("difficulty_histogram")
    if not curves:
        return None
    low, high, counts = (curves[0].columns[k] for k in ("low", "high", "count"))
    bands = _difficulty_groups(view)
    info = view.evaluation.difficulty
    score = tip(info.word, info.meaning) if info else view.about.difficulty or "difficulty"
    shaded = f"; shaded in {_part(len(bands))}s" if len(bands) > 1 else ""
    peak = max(range(len(counts)), key=lambda k: counts[k])
    alt = (
        f"Histogram of difficulty: most {view.unit} lie near {difficulty_text(0.5 * (low[peak] + high[peak]))}, "
        f"the hardest reach {difficulty_text(high[-1])}."
    )
    rows = [(fixed(a, 2), fixed(b, 2), count(c)) for a, b, c in zip(low, high, counts, strict=True)]
    return Figure(
        "distribution",
        f"How hard the {view.unit} are",
        Markup("{} by {}; higher is harder{}").format(view.unit.capitalize(), score, shaded),
        _histogram(view, curves[0], bands).render(alt),
        table(("From", "To", "Count"), rows),
    )


def _histogram(view: EvaluationView, curve: Curve, bands: list[tuple[float, float]]) -> Canvas:
    low, high, counts = (curve.columns[k] for k in ("low", "high", "count"))
    canvas = Canvas(PHONE, 230)
    x = Scale(low[0], high[-1], 10, PHONE - 10)
    marks = [m for m in ticks(low[0], high[-1], 6) if low[0] <= m <= high[-1]]
    y = Scale(0, max(counts) or 1, 196, 30)
    for a, b, c in zip(low, high, counts, strict=True):
        canvas.bars([(x(a) + 0.4, y(c), max(x(b) - x(a) - 0.8, 0.6), 196 - y(c))], _shade(bands, 0.5 * (a + b)))
        span = bin_range(a, b, "left" if b < high[-1] else "both")
        text = f"{fixed(a, 2)} to {fixed(b, 2)}: n = {count(c)}"
        canvas.value(x(0.5 * (a + b)), y(c), text, {**view.explorer_filters(), "difficulty": span})
    canvas.line(10, 196, PHONE - 10, 196, "ax")
    canvas.ticks_x(x, marks, 212)
    canvas.text(10, 228, "← easier", "l")
    canvas.text(PHONE - 10, 228, "harder →", "l e")
    hardest = f"; hardest {_part(len(bands))} above {difficulty_text(bands[-1][0])}" if len(bands) > 1 else ""
    canvas.text(10, 12, f"{view.unit.capitalize()}, up to {count(max(counts))} a bar{hardest}", "l")
    return canvas


def _difficulty_groups(view: EvaluationView) -> list[tuple[float, float]]:
    curves = view.curves("error_by_difficulty")
    return list(zip(curves[0].columns["low"], curves[0].columns["high"], strict=True)) if curves else []


def _shade(bands: list[tuple[float, float]], value: float) -> str:
    """The sequential step of the band that a bar lies in; grey where there are no bands."""
    if not bands:
        return "fg"
    inside = sum(value > low for low, _ in bands[1:])
    return f"q{1 + round(4 * inside / max(len(bands) - 1, 1))}"


def _part(number: int) -> str:
    return {2: "half", 3: "third", 4: "quarter", 5: "fifth", 10: "tenth"}.get(number, "band")


def error_by_difficulty(view: EvaluationView) -> Figure | None:
    """Error rate by band of difficulty, bars from 0 with whiskers, one colour a model."""
    stages = dict.fromkeys((view.final, view.before))
    curves = [c for m in view.drawn if (c := view.curve("error_by_difficulty", m, stages))]
    if not curves:
        return None
    own = next((c for c in curves if c.model == view.focus), curves[0]).columns["error"]
    part = _part(len(own))
    title = "Error rate by difficulty"
    if len(own) > 1 and own[-1] > max(own[:-1]):
        title = f"The hardest {part} is wrong {_rate(own[-1])} of the time, the easiest {_rate(own[0])}"
    alt = (
        f"Bars of the error rate by difficulty: {percent(own[0], 1)} in the easiest band, "
        f"{percent(own[-1], 1)} in the hardest."
    )
    return Figure(
        "error-rate",
        title,
        f"Error rate by {part} of difficulty, {view.when(curves[0].stage)}; whiskers: 95 % intervals",
        _bars(view, curves).render(alt),
        _table(curves),
        note=view.left_out_note,
    )


def _rate(share: float) -> str:
    return percent(share, 1 if share < 0.1 else 0)


def _ends(curve: Curve, place: int) -> tuple[float, float]:
    """The interval of a band, NaN where none was given."""
    if "error_low" not in curve.columns or "error_high" not in curve.columns:
        return math.nan, math.nan
    return curve.columns["error_low"][place], curve.columns["error_high"][place]


def _table(curves: list[Curve]) -> FigureTable:
    rows = []
    for curve in curves:
        for k, name in enumerate(_group_names(len(curve.columns["error"]))):
            low, high = _ends(curve, k)
            rate = percent(curve.columns["error"][k], 1)
            rows.append((curve.model, name, rate, between(low, high, 1, 100), count(curve.columns["count"][k])))
    return table(("Model", "Band", "Error rate", "95 % interval", "Count"), rows)


def _bars(view: EvaluationView, curves: list[Curve]) -> Canvas:
    length = len(curves[0].columns["error"])
    tops = [v for c in curves for k in range(length) for v in (c.columns["error"][k], _ends(c, k)[1])]
    marks = ticks(0, 100 * max((v for v in tops if math.isfinite(v)), default=0.01), 5)
    # Names stand above the plot: where the easiest are wrong too, bars reach its top.
    top = 18 + (17 * len(curves) + 6 if len(curves) > 1 else 0)
    floor = top + 172
    canvas = Canvas(PHONE, floor + 40)
    x, y = Scale(0, length, 34, PHONE - 6), Scale(0, marks[-1], floor, top)
    canvas.grid_y(y, marks, 34, PHONE - 6)
    for place, curve in enumerate(curves):
        _model_bars(canvas, curve, x, y, (place, len(curves)), view.colour(curve.model))
        if len(curves) > 1:
            canvas.bars([(34, 17 * place, 10, 10)], f"f{view.colour(curve.model)}")
            canvas.text(50, 9 + 17 * place, shorten(curve.model, PHONE - 56), "l")
    if length <= 6:
        for k, name in enumerate(_group_names(length)):
            canvas.text(x(k + 0.5), floor + 17, name, "m")
    else:
        canvas.text(x(0.1), floor + 17, "easiest")
        canvas.text(x(length - 0.1), floor + 17, "hardest", "e")
    canvas.line(34, floor, PHONE - 6, floor, "ax")
    canvas.text(34, top - 10, "Wrong, %", "l")
    canvas.text(PHONE - 6, floor + 36, f"{_part(length).capitalize()} of the {view.unit} by difficulty", "l e")
    return canvas


def _model_bars(canvas: Canvas, curve: Curve, x: Scale, y: Scale, place: tuple[int, int], colour: str) -> None:
    number, of = place
    width = min(0.8 * (x(1) - x(0)) / of, 30)
    for k, value in enumerate(curve.columns["error"]):
        if not math.isfinite(value):
            continue
        left = x(k + 0.5) + (number - of / 2) * width
        canvas.bars([(left + 1, y(100 * value), width - 2, y.start - y(100 * value))], f"f{colour}")
        low, high = _ends(curve, k)
        name, ends = _group_names(len(curve.columns["error"]))[k], between(low, high, 1, 100)
        words = f"{curve.model}, {name}: {percent(value, 1)} wrong{f' ({ends})' if ends else ''}"
        span = bin_range(curve.columns["low"][k], curve.columns["high"][k])
        whose = {"split": curve.split, "model": curve.model, "stage": curve.stage}
        canvas.value(left + width / 2, y(100 * value), words, {**whose, "difficulty": span, "outcome": "wrong"})
        if math.isfinite(low) and math.isfinite(high):
            canvas.line(left + width / 2, y(100 * low), left + width / 2, y(100 * high), "ki", 1.5)


def _group_names(length: int) -> list[str]:
    if length == 1:
        return ["all"]
    return ["easiest", *(ORDINALS[k] if k < len(ORDINALS) else str(k + 1) for k in range(1, length - 1)), "hardest"]


# The section: drawings, galleries and suspected labels.

ACROSS = 4  # pictures of each kind in a row
MOST_CLASSES = 20
SUSPECTS = 12


@dataclass(frozen=True)
class Picture:
    """A sample in a gallery, with words for those who cannot see it."""

    sample: Sample
    alt: str
    score: str
    wrong: bool
    link: str
    """Of the explorer: the sample itself."""


@dataclass(frozen=True)
class GalleryRow:
    """Easiest and hardest of a class."""

    label: str
    easiest: tuple[Picture, ...]
    hardest: tuple[Picture, ...]


@dataclass(frozen=True)
class DifficultySection:
    """What the section shows."""

    figures: tuple[Figure, ...] = ()
    rows: tuple[GalleryRow, ...] = ()
    left_out: int = 0
    suspects: tuple[Picture, ...] = ()
    suspects_in_all: int = 0
    note: str = ""
    texts: bool = False
    suspects_link: str = ""
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return self.figures


def _note(info: DifficultyInfo | None) -> str:
    """What the score is made from, and what it is for."""
    origin = ""
    if info is not None and info.source == "features":
        made_from = {True: ": it comes from features and the label", False: ": it comes from features alone", None: ""}
        origin = f"The score never sees the model{made_from[info.looks_at_labels]}. "
    return origin + "Where it foretells errors, it can weight training or choose what to check by hand."


def difficulty_section(view: EvaluationView) -> DifficultySection:
    """Charts and galleries of difficulty, or what is missing."""
    figures = tuple(f for f in (distribution(view), error_by_difficulty(view)) if f)
    rows = _gallery(view)
    suspects = view.samples("suspect")
    if not (figures or rows or suspects):
        why = view.why_missing("difficulty") or "No sample of this evaluation has a difficulty score."
        return DifficultySection(
            empty=Empty("No difficulty scores", why, "confide score DATA --split test -o scores.parquet")
        )
    return DifficultySection(
        figures,
        rows[:MOST_CLASSES],
        max(0, len(rows) - MOST_CLASSES),
        tuple(_picture(view, s) for s in suspects[:SUSPECTS]),
        len(suspects),
        _note(view.evaluation.difficulty),
        any(s.text and not s.picture for s in view.evaluation.samples),
        explorer_query({**view.explorer_filters(), "verdict": "wrong label"}),
    )


def _picture(view: EvaluationView, sample: Sample) -> Picture:
    wrong = sample.prediction is not None and sample.prediction != sample.label
    predicted = f", predicted {sample.prediction}" if sample.prediction is not None else ""
    place = {**view.explorer_filters(), "sample": f"{view.split or 'test'}/{sample.id}"}
    score = difficulty_text(sample.difficulty)
    return Picture(sample, f"{sample.label}{predicted}", score, wrong, explorer_query(place))


def _gallery(view: EvaluationView) -> tuple[GalleryRow, ...]:
    easiest, hardest = view.samples("easiest"), view.samples("hardest")
    labels_shown = dict.fromkeys(s.label for s in [*easiest, *hardest])
    order = [str(name) for name in view.about.class_names]
    labels = sorted(labels_shown, key=lambda label: order.index(label) if label in order else len(order))
    return tuple(
        GalleryRow(
            label,
            tuple(_picture(view, s) for s in easiest if s.label == label)[:ACROSS],
            tuple(_picture(view, s) for s in hardest if s.label == label)[:ACROSS],
        )
        for label in labels
    )
