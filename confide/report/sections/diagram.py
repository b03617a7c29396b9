"""The reliability diagram: band, diagonal, stems, dots and the strip of counts; and its small form for other models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confide.core.results import Curve
from confide.report.figure import Table, table
from confide.report.svg import Canvas, Scale
from confide.report.words import between, count, percent

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


def bins_table(bins: list[Bin]) -> Table:
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
    if (over + under) / total <= 0.25 or (p_value is not None and p_value >= 0.05):
        return "mostly within chance"
    return (
        "confidence runs ahead"
        if over > 2 * under
        else "confidence lags behind"
        if under > 2 * over
        else "off both ways"
    )


def diagram(bins: list[Bin], width: float, labels: bool) -> Canvas:
    """Accuracy against confidence with a strip of counts under it."""
    side = width - 43
    canvas = Canvas(width, side + 136)
    x, y = Scale(0, 1, 34, 34 + side), Scale(0, 1, side + 10, 10)
    for value in (0, 0.25, 0.5, 0.75, 1):
        canvas.line(34, y(value), 34 + side, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), side + 130, _tick(value), "m" if value < 1 else "e")
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
    _strip(canvas, bins, x, side + 112)
    return canvas


def _tick(value: float) -> str:
    return f"{100 * value:.0f}" + ("\u202f%" if value == 1 else "")


def _band(canvas: Canvas, bins: list[Bin], x: Scale, y: Scale) -> None:
    boxes = [
        (x(b.low) + 0.5, y(b.band_high), max(x(b.high) - x(b.low) - 1, 1.2), max(y(b.band_low) - y(b.band_high), 1))
        for b in bins
        if b.banded
    ]
    canvas.bars(boxes, "fb")


def _strip(canvas: Canvas, bins: list[Bin], x: Scale, floor: float) -> None:
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
        canvas.text(x(value), side + 24, _tick(value), "m")
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
