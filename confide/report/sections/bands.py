"""Difficulty drawn: how it is spread over the samples, and the error rate by band of it."""

from __future__ import annotations

import math

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Figure, Table, table
from confide.report.glossary import DIFFICULTY
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import between, count, fixed, percent, shorten, tip, when

ORDINALS = ("easiest", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th")


def difficulty_text(value: float | None) -> str:
    """A difficulty with as many decimals as its size asks for."""
    if value is None or not math.isfinite(value):
        return ""
    return fixed(value, 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2)


def distribution(view: View) -> Figure | None:
    """Histogram of difficulty, shaded by band."""
    found = view.curves("difficulty_histogram")
    if not found:
        return None
    low, high, counts = (found[0].columns[k] for k in ("low", "high", "count"))
    bands = _bands(view)
    word = str(view.about.get("difficulty") or "difficulty")
    score = tip(word, DIFFICULTY[word]) if word in DIFFICULTY else word
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
        _histogram(view, found[0], bands).render(alt),
        table(("From", "To", "Count"), rows),
    )


def _histogram(view: View, curve: Curve, bands: list[tuple[float, float]]) -> Canvas:
    low, high, counts = (curve.columns[k] for k in ("low", "high", "count"))
    canvas = Canvas(PHONE, 230)
    x = Scale(low[0], high[-1], 10, PHONE - 10)
    marks = [m for m in ticks(low[0], high[-1], 6) if low[0] <= m <= high[-1]]
    y = Scale(0, max(counts) or 1, 196, 30)
    for a, b, c in zip(low, high, counts, strict=True):
        canvas.bars([(x(a) + 0.4, y(c), max(x(b) - x(a) - 0.8, 0.6), 196 - y(c))], _shade(bands, 0.5 * (a + b)))
    canvas.line(10, 196, PHONE - 10, 196, "ax")
    canvas.ticks_x(x, marks, 212)
    canvas.text(10, 228, "← easier", "l")
    canvas.text(PHONE - 10, 228, "harder →", "l e")
    canvas.text(10, 12, f"{view.unit.capitalize()}, up to {count(max(counts))} a bar", "l")
    if len(bands) > 1:
        place = min(max(x(bands[-1][0]) + 24, 200), PHONE - 80)
        canvas.text(place, 120, f"hardest {_part(len(bands))}", "l")
        canvas.text(place, 135, f"above {difficulty_text(bands[-1][0])}")
    return canvas


def _bands(view: View) -> list[tuple[float, float]]:
    found = view.curves("error_by_difficulty")
    return list(zip(found[0].columns["low"], found[0].columns["high"], strict=True)) if found else []


def _shade(bands: list[tuple[float, float]], value: float) -> str:
    """The sequential step of the band that a bar lies in; grey where there are no bands."""
    if not bands:
        return "fg"
    inside = sum(value > low for low, _ in bands[1:])
    return f"q{1 + round(4 * inside / max(len(bands) - 1, 1))}"


def _part(number: int) -> str:
    return {2: "half", 3: "third", 4: "quarter", 5: "fifth", 10: "tenth"}.get(number, "band")


def error_by_band(view: View) -> Figure | None:
    """Error rate by band of difficulty, bars from 0 with whiskers, one colour a model."""
    stages = dict.fromkeys((view.final, view.before))
    curves = [c for m in view.models[:5] if (c := view.curve("error_by_difficulty", m, stages))]
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
        f"Error rate by {part} of difficulty, {when(curves[0].stage)}; whiskers: 95 % intervals",
        _bars(view, curves).render(alt),
        _table(curves),
    )


def _rate(share: float) -> str:
    return percent(share, 1 if share < 0.1 else 0)


def _ends(curve: Curve, place: int) -> tuple[float, float]:
    """The interval of a band, NaN where none was given."""
    if "error_low" not in curve.columns or "error_high" not in curve.columns:
        return math.nan, math.nan
    return curve.columns["error_low"][place], curve.columns["error_high"][place]


def _table(curves: list[Curve]) -> Table:
    rows = []
    for curve in curves:
        for k, name in enumerate(_band_names(len(curve.columns["error"]))):
            low, high = _ends(curve, k)
            rate = percent(curve.columns["error"][k], 1)
            rows.append((curve.model, name, rate, between(low, high, 1, 100), count(curve.columns["count"][k])))
    return table(("Model", "Band", "Error rate", "95 % interval", "Count"), rows)


def _bars(view: View, curves: list[Curve]) -> Canvas:
    length = len(curves[0].columns["error"])
    tops = [v for c in curves for k in range(length) for v in (c.columns["error"][k], _ends(c, k)[1])]
    marks = ticks(0, 100 * max((v for v in tops if math.isfinite(v)), default=0.01), 5)
    canvas = Canvas(PHONE, 230)
    x, y = Scale(0, length, 34, PHONE - 6), Scale(0, marks[-1], 190, 18)
    canvas.grid_y(y, marks, 34, PHONE - 6)
    for place, curve in enumerate(curves):
        _model_bars(canvas, curve, x, y, (place, len(curves)), view.colour(curve.model))
        if len(curves) > 1:
            canvas.bars([(42, 28 + 17 * place, 10, 10)], f"f{view.colour(curve.model)}")
            canvas.text(58, 37 + 17 * place, shorten(curve.model, 150), "l")
    if length <= 6:
        for k, name in enumerate(_band_names(length)):
            canvas.text(x(k + 0.5), 207, name, "m")
    else:
        canvas.text(x(0.1), 207, "easiest")
        canvas.text(x(length - 0.1), 207, "hardest", "e")
    canvas.line(34, 190, PHONE - 6, 190, "ax")
    canvas.text(34, 8, "Wrong, %", "l")
    canvas.text(PHONE - 6, 226, f"{_part(length).capitalize()} of the {view.unit} by difficulty", "l e")
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
        if math.isfinite(low) and math.isfinite(high):
            canvas.line(left + width / 2, y(100 * low), left + width / 2, y(100 * high), "ki", 1.5)


def _band_names(length: int) -> list[str]:
    if length == 1:
        return ["all"]
    return ["easiest", *(ORDINALS[k] if k < len(ORDINALS) else str(k + 1) for k in range(1, length - 1)), "hardest"]
