"""What a chart is made of: scales, ticks and a canvas of SVG marks, and the figure with its title, caption and table
of numbers.

Colour comes from classes only (`k1` strokes the first series, `f1` fills it, `fw` is wrong, `fg` grey, `fb` band),
so that light, dark and print need no second drawing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import urlencode

from markupsafe import Markup, escape

from confide.results import Measurement

PHONE, THIRD, WIDE = 343, 284, 600  # widths a chart is drawn at, in pixels


@dataclass(frozen=True)
class Scale:
    """A straight line from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)

    def clip(self, value: float) -> float:
        """The pixel of a value, held inside the scale."""
        return self(min(max(value, self.low), self.high))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`, at most `most` steps apart.

    Args:
        low: the smallest value on the axis.
        high: the largest one.
        most: steps at most.

    Returns:
        The numbers, evenly spaced.

    Example:
        >>> confide.report.ticks(0.03, 0.92)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return [0.0, 1.0]
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * max(size, 1):  # one value, but for roundings
        around = 0.5 * (size if size > 1e-9 else 1)
        low, high = low - around, high + around
    step = 10 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20, 25):
        first, last = math.floor(low / (step * factor) + 1e-9), math.ceil(high / (step * factor) - 1e-9)
        if last - first <= most:
            return [round(k * step * factor, 10) for k in range(first, last + 1)]
    return [low, high]


def tick_text(value: float, values: Sequence[float], sign: bool = False) -> str:
    """A tick's number with the decimals its neighbours need.

    Args:
        value: the number.
        values: all ticks of the axis.
        sign: whether a positive number has its sign.

    Returns:
        The text, with a true minus sign.

    Example:
        >>> confide.report.tick_text(0.5, [0.0, 0.25, 0.5])
        '0.50'
    """
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    digits += 1 if step > 0 and round(step * 10**digits, 6) != round(step * 10**digits) else 0
    text = f"{abs(value):,.{digits}f}"
    zero = float(text.replace(",", "")) == 0
    return ("" if zero else "\u2212" if value < 0 else "+" if sign else "") + text


def percent_tick(share: float, last: float = 1) -> str:
    """A share on an axis in per cent; the sign stands at the last one alone."""
    return f"{100 * share:.0f}" + ("\u202f%" if share == last else "")


def explorer_query(filters: Mapping[str, str | None]) -> str:
    """A view of the explorer that shows these samples, as the query of its address."""
    return urlencode({key: value for key, value in filters.items() if value})


def confidence_range(threshold: float, accepted: bool) -> str:
    """The explorer's filter for confidences that a threshold accepts (at or above it), or sets aside."""
    edge = just_below(threshold)
    return f"{edge!r}.." if accepted else f"..{edge!r}"


def just_below(confidence: float) -> float:
    """Where to cut so that the sample of this confidence lies above: 1 minus it is known to single precision."""
    return confidence - max(2e-7 * (1 - confidence), 2e-16)


def bin_range(low: float, high: float, closed: str = "both") -> str:
    """The explorer's filter for the numbers of a bin; the ends belong to a filter, but to a bin not always both."""
    low = math.nextafter(low, math.inf) if closed == "right" else low
    high = math.nextafter(high, -math.inf) if closed == "left" else high
    return f"{float(low)!r}..{float(high)!r}"


def coordinate(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if math.isfinite(value) else "0"


@dataclass
class Canvas:
    """Marks of one drawing; `render` makes it an accessible picture."""

    width: float
    height: float
    marks: list[str] = field(default_factory=list)
    values: list[tuple[float, float, str, str]] = field(default_factory=list)

    def path(self, shape: str, classes: str, width: float | None = None, style: str = "") -> None:
        """Any path; empty ones are left out."""
        if shape:
            stroke = f' stroke-width="{width:g}"' if width else ""
            extra = f' style="{style}"' if style else ""
            self.marks.append(f'<path class="{classes}" d="{shape}"{stroke}{extra}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str, width: float | None = None) -> None:
        """A straight line."""
        self.path(f"M{coordinate(x1)} {coordinate(y1)}L{coordinate(x2)} {coordinate(y2)}", classes, width)

    def polyline(self, points: Iterable[tuple[float, float]], classes: str, width: float | None = None) -> None:
        """A line through points; a point that is not a number breaks it."""
        shape, pen = "", "M"
        for x, y in points:
            if math.isfinite(x) and math.isfinite(y):
                shape, pen = shape + f"{pen}{coordinate(x)} {coordinate(y)}", "L"
            else:
                pen = "M"
        self.path(shape, f"ln {classes}", style=f"stroke-width:{width:g}" if width else "")

    def area(self, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], classes: str) -> None:
        """The surface between two lines."""
        both = [*upper, *reversed(lower)]
        if both and all(math.isfinite(x) and math.isfinite(y) for x, y in both):
            self.path("M" + "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in both) + "Z", classes)

    def bars(self, boxes: Iterable[tuple[float, float, float, float]], classes: str) -> None:
        """Rectangles (x, y, width, height) in one path."""
        shapes = (
            f"M{coordinate(x)} {coordinate(y)}h{coordinate(w)}v{coordinate(h)}h{coordinate(-w)}z"
            for x, y, w, h in boxes
            if h > 0.04
        )
        self.path("".join(shapes), classes)

    def dot(self, x: float, y: float, classes: str, radius: float = 4, width: float | None = None) -> None:
        """A round mark."""
        stroke = f' stroke-width="{width:g}"' if width else ""
        self.marks.append(
            f'<circle cx="{coordinate(x)}" cy="{coordinate(y)}" r="{radius:g}" class="{classes}"{stroke}/>'
        )

    def whisker(self, scale: Scale, y: float, m: Measurement, factor: float, colour: str) -> None:
        """The 95 % interval of a value times `factor`, as a line across; nothing where there is none."""
        if m.has_interval:
            self.line(scale.clip(factor * m.low), y, scale.clip(factor * m.high), y, f"k{colour}", 1.5)

    def text(self, x: float, y: float, words: str, classes: str = "") -> None:
        """Escaped text; classes `m` middle, `e` end, `l` label, `b` bold."""
        chosen = f' class="{classes}"' if classes else ""
        self.marks.append(f'<text x="{coordinate(x)}" y="{coordinate(y)}"{chosen}>{escape(words)}</text>')

    def value(self, x: float, y: float, words: str, filters: Mapping[str, str | None] | None = None) -> None:
        """What the mark at that place stands for, told on hover, focus and tap.

        Args:
            x: its place.
            y: its place.
            words: what is told.
            filters: of the explorer, for the samples it stands for; followed where the explorer shows the report.
        """
        if math.isfinite(x) and math.isfinite(y):
            self.values.append((round(x, 1), round(y, 1), words, explorer_query(filters or {})))

    def raw(self, markup: str) -> None:
        """Markup that is made of numbers and constant words only."""
        self.marks.append(markup)

    def grid_y(self, scale: Scale, values: Sequence[float], left: float, right: float, sign: bool = False) -> None:
        """Grid lines across, with their numbers at the left."""
        for value in values:
            self.line(left, scale(value), right, scale(value), "g")
            self.text(left - 6, scale(value) + 4, tick_text(value, values, sign), "e")

    def ticks_x(self, scale: Scale, values: Sequence[float], y: float, sign: bool = False, grid: float = -1) -> None:
        """Numbers under the horizontal axis; `grid` draws lines up to that height."""
        for value in values:
            if grid >= 0:
                self.line(scale(value), grid, scale(value), y - 16, "g")
            self.text(scale(value), y, tick_text(value, values, sign), "m")

    def render(self, alt: str, classes: str = "", extra: str = "") -> Markup:
        """The picture, with one sentence that says what it shows."""
        # The class tells the style sheet for which column it was drawn: text is neither shrunk nor blown up.
        named = f"w{coordinate(self.width)} {classes}".strip()
        if self.values:
            entries = [value if value[3] else value[:3] for value in self.values]
            values = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
            extra += f' data-values="{escape(values)}"'
        return Markup(
            f'<svg viewBox="0 0 {coordinate(self.width)} {coordinate(self.height)}" role="img"'
            f' aria-label="{escape(alt)}" class="{named}"{extra}>{"".join(self.marks)}</svg>'
        )


# A figure of the report, and what stands in its place where there are no data.

MOST_ROWS = 500


@dataclass(frozen=True)
class FigureTable:
    """The numbers behind a chart, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sortable: bool = False


@dataclass(frozen=True)
class Figure:
    """`svg` fits a phone's column; `wide` is drawn for large pages and shown there instead."""

    name: str  # of its file, the same for every evaluation
    title: str | Markup
    subtitle: str | Markup
    svg: Markup
    table: FigureTable | None = None
    wide: Markup | None = None
    note: str | Markup = ""
    level: int = 3
    key: str = ""  # which variant of a switch this is: "width-15"


@dataclass(frozen=True)
class Empty:
    """In place of a section or a figure that has no data: what is missing, why, and the command that mends it."""

    title: str
    why: str
    command: str = ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> FigureTable:
    """A data table from any sequences; beyond some rows it says how many are left out."""
    shown = [tuple(row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        shown.append((f"and {len(rows) - MOST_ROWS:,} more rows",))
    return FigureTable(tuple(header), tuple(shown))
