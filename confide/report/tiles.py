"""Key tiles under the verdict: a figure, its interval on a strip with the chance zone, and its meaning in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Measurement
from confide.report.svg import PHONE, Canvas, Scale, tick_text, ticks
from confide.report.verdict import calibration_error
from confide.report.view import View
from confide.report.words import count, fixed, percent, points, when


@dataclass(frozen=True)
class Tile:
    """One key figure."""

    label: str
    figure: str
    unit: str
    strip: Markup
    direction: str
    meaning: str


def tiles(view: View) -> tuple[Tile, ...]:
    """At most three tiles: the gap, the calibration error, the share to set aside."""
    return tuple(tile for tile in (_gap(view), _error(view), _halving(view) or _accuracy(view)) if tile)


def _strip(m: Measurement, low_end: float | None, zone: tuple[float, float] | None, signed: bool = False) -> Markup:
    """A number line in points or per cent: grey chance zone, whisker, dot."""
    known = [100 * v for v in (m.value, m.low, m.high, *(zone or ())) if v is not None and math.isfinite(v)]
    marks = ticks(min(known) if low_end is None else min(low_end, *known), max([*known, 0.0]), 6)
    canvas = Canvas(PHONE, 46)
    x = Scale(marks[0], marks[-1], 8, PHONE - 8)
    if zone:
        canvas.bars([(x.clip(100 * zone[0]), 4, x.clip(100 * zone[1]) - x.clip(100 * zone[0]), 18)], "fb")
    canvas.line(8, 22, PHONE - 8, 22, "ax")
    for value in marks:
        canvas.line(x(value), 22, x(value), 26, "ax")
        canvas.text(x(value), 39, tick_text(value, marks, signed), "m")
    if math.isfinite(m.low) and math.isfinite(m.high):
        canvas.line(x(100 * m.low), 13, x(100 * m.high), 13, "ki", 2)
    canvas.dot(x(100 * m.value), 13, "f1", 5)
    return canvas.render(f"{fixed(100 * m.value, 1)}, {_interval(m) or 'no interval given'}")


def _interval(m: Measurement) -> str:
    if not (math.isfinite(m.low) and math.isfinite(m.high)):
        return ""
    return f"95 % interval {points(m.low)} to {points(m.high)}"


def _gap(view: View) -> Tile | None:
    gap, accuracy = view.find("confidence_gap"), view.find("accuracy")
    if gap is None or accuracy is None:
        return None
    zone = (-gap.chance_high, gap.chance_high) if gap.chance_high is not None else None
    grey = f"; grey is chance, ±{points(gap.chance_high)}" if gap.chance_high is not None else ""
    says, right = percent(accuracy.value + gap.value), fixed(100 * accuracy.value, 0)
    return Tile(
        f"Confidence minus accuracy, {when(view.before)}",
        points(gap.value, sign=True),
        "points",
        _strip(gap, 0.0, zone),
        f"{_sentence(_interval(gap))}Zero is ideal{grey}.",
        f"Of 100 predictions made with an average confidence of {says}, about {right} are right.",
    )


def _sentence(words: str) -> str:
    return f"{words}. " if words else ""


def _error(view: View) -> Tile | None:
    error = calibration_error(view, view.final)
    if error is None:
        return None
    zone = (0.0, error.chance_high) if error.chance_high is not None else None
    meaning = "The average gap between confidence and accuracy over bins."
    if error.chance is not None and error.chance_high is not None:
        meaning = (
            f"A perfectly calibrated model tested on {count(error.n)} {view.unit} shows {points(error.chance)} "
            f"by chance, up to {points(error.chance_high)} (grey)."
        )
        inside = error.value <= error.chance_high * (1 + 1e-9)  # of a single sample both are the same number
        meaning += " What is left cannot be told from chance." if inside else " The error is more than chance explains."
    return Tile(
        f"Calibration error {when(view.final)}",
        points(error.value),
        "points",
        _strip(error, 0.0, zone),
        f"{_sentence(_interval(error))}Lower is better.",
        meaning,
    )


def _halving(view: View) -> Tile | None:
    share, accuracy = view.find("halving_rejection", stage=view.final), view.find("accuracy", stage=view.final)
    if share is None or accuracy is None:
        return None
    aside = share.value * share.n
    return Tile(
        "Share to set aside to halve the error rate",
        fixed(100 * share.value, 1),
        "%",
        _strip(share, 0.0, None),
        f"{_sentence(_interval(share))}Lower is better.",
        f"Hand the {count(aside)} least trusted {view.unit} to a person: the other {count(share.n - aside)} are "
        f"wrong half as often as the {percent(1 - accuracy.value, 1)} of all.",
    )


def _accuracy(view: View) -> Tile | None:
    accuracy = view.find("accuracy", stage=view.final) or view.find("accuracy")
    if accuracy is None:
        return None
    return Tile(
        "Accuracy",
        fixed(100 * accuracy.value, 1),
        "%",
        _strip(accuracy, None, None),
        f"{_sentence(_interval(accuracy))}Higher is better.",
        f"{count(accuracy.value * accuracy.n)} of {count(accuracy.n)} {view.unit} are predicted right.",
    )
