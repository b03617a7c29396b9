"""An item's curves as one stand-alone SVG: a panel per dataset and quantity, a colour per method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile, zip_longest

from benchmarks.lib.claims import Trend, named
from benchmarks.lib.items import NAMES, Item, Outcome
from benchmarks.lib.values import Summary
from confide.report import FILLS, PALETTE, STROKES, Canvas, Scale, shorten, tick_text, ticks

COLOURS = ("1", "2", "3", "w", "4", "5", "g")
MOST_NAMES = 2 * len(COLOURS)
"""Beyond these only the methods that claims speak of have a colour; below, each colour once plain and once dashed."""
QUARTILES = {", lower quartile": 1, ", median": 0, ", upper quartile": 2}
MOST_BANDS = 3
"""Curves of a panel that leave room for their spread."""
LINE, LEFT, FOOT, HEAD = 17, 46, 40, 34
WIDE, HALF = (640, 260), (360, 210)
"""Width and height of a panel that stands alone, and of one among others."""
LOGARITHMIC = 50.0
"""A positive axis whose ends are so many times apart is drawn by factors."""

Point = tuple[float, float, float]
"""Middle, lower and upper end."""


@dataclass
class Panel:
    """Curves over one axis, by name: points by place."""

    title: str
    axis: str
    curves: dict[str, dict[float, Point]] = field(default_factory=dict)

    def holds(self, places: Iterable[float]) -> bool:
        """Whether a curve belongs here: half of its places, or of those here, are shared."""
        own = set(chain.from_iterable(self.curves.values()))
        other = set(places)
        return not own or 2 * len(own & other) >= min(len(own), len(other))


def svg_of(item: Item, outcome: Outcome) -> str | None:
    """The picture of an item, none where nothing lies along an axis."""
    columns = [_panels(item, name, rows) for name, rows in _by_dataset(outcome.rows).items()]
    # Datasets side by side, what they show from top to bottom.
    panels = [panel for row in zip_longest(*columns) for panel in row if panel is not None]
    if not panels:
        return None
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    styles = _styles(item, names)
    width, height = WIDE if len(panels) == 1 else HALF
    across = 1 if len(panels) == 1 else 2
    labels = _labels([name for name in names if styles[name] != OTHER], across * width)
    top = 12 + LINE * (1 + max((row for row, _, _ in labels), default=0))
    down = math.ceil(len(panels) / across)
    canvas = Canvas(across * width, top + down * height)
    canvas.raw(f'<rect width="100%" height="100%" fill="{PALETTE["paper"]}"/>')
    for row, left, name in labels:
        y = 10 + LINE * row
        canvas.polyline([(left, y), (left + 18, y)], styles[name])
        canvas.text(left + 24, y + 4, name, "l")
    for place, panel in enumerate(panels):
        _draw(canvas, panel, styles, width * (place % across), top + height * (place // across), width, height)
    caption = f"{item.title}: {', '.join(dict.fromkeys(panel.title for panel in panels))}"
    size = f' xmlns="http://www.w3.org/2000/svg" width="{canvas.width:g}" height="{canvas.height:g}"'
    picture = str(canvas.render(caption, extra=size))
    head, mark, rest = picture.partition(">")
    return f"{head}{mark}<style>{_sheet()}</style>{rest}\n"


def _by_dataset(rows: Sequence[Summary]) -> dict[str, list[Summary]]:
    by_dataset: dict[str, list[Summary]] = {}
    for row in rows:
        if row.x is not None and math.isfinite(row.mean):
            by_dataset.setdefault(row.dataset, []).append(row)
    return by_dataset


def _panels(item: Item, dataset: str, rows: Sequence[Summary]) -> list[Panel]:
    """A panel per quantity; quantities of a single method share theirs, and a curve with other places has its own."""
    curves = _curves(rows)
    lone = len({method for _, method in curves}) == 1
    panels: list[tuple[str, Panel]] = []
    for (quantity, method), points in curves.items():
        group = "" if lone else quantity
        home = next((panel for kind, panel in panels if kind == group and panel.holds(points)), None)
        if home is None:
            home = Panel(quantity, item.axis_of(quantity, method))
            panels.append((group, home))
        home.curves[quantity if lone else method] = points
    for _, panel in panels:
        if lone:
            several = len(panel.curves) > 2
            panel.title = (several and _common_words(panel.curves)) or ", ".join(panel.curves)
        panel.title = f"{named(dataset, NAMES)}: {panel.title}"
    return [panel for _, panel in panels]


def _common_words(names: Iterable[str]) -> str:
    """The words that all names begin with."""
    aligned = zip(*(name.split() for name in names), strict=False)
    return " ".join(words[0] for words in takewhile(lambda words: len(set(words)) == 1, aligned))


def _curves(rows: Sequence[Summary]) -> dict[tuple[str, str], dict[float, Point]]:
    """Points by quantity and method: the mean and its deviation over seeds, or a median between quartiles."""
    curves: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in rows:
        end = next((suffix for suffix in QUARTILES if row.quantity.endswith(suffix)), "")
        curve = curves.setdefault((row.quantity.removesuffix(end), row.method), {})
        assert row.x is not None
        if end:
            curve.setdefault(row.x, [math.nan] * 3)[QUARTILES[end]] = row.mean
        else:
            curve[row.x] = [row.mean, row.mean - row.deviation, row.mean + row.deviation]
    return {name: {x: (p[0], p[1], p[2]) for x, p in sorted(points.items())} for name, points in curves.items()}


OTHER = "kg thin"


def _styles(item: Item, names: Sequence[str]) -> dict[str, str]:
    """Classes of the line of every name."""
    shown = list(names)
    if len(names) > MOST_NAMES:
        claimed = {name for claim in item.claims if isinstance(claim, Trend) for name in claim.methods}
        shown = [name for name in names if name in claimed][:MOST_NAMES]
    colours = [f"k{colour}{dashed}" for dashed in ("", " da") for colour in COLOURS]
    return dict.fromkeys(names, OTHER) | dict(zip(shown, colours, strict=False))


def _labels(names: Sequence[str], width: float) -> list[tuple[int, float, str]]:
    """(row, left, text) of the names above the panels."""
    labels, row, left = [], 0, float(LEFT)
    for name in names:
        room = 48 + 6.6 * len(name)
        if left + room > width and left > LEFT:
            row, left = row + 1, float(LEFT)
        labels.append((row, left, name))
        left += room
    return labels


def _draw(
    canvas: Canvas, panel: Panel, styles: Mapping[str, str], x0: float, y0: float, width: float, height: float
) -> None:
    places = sorted(set(chain.from_iterable(panel.curves.values())))
    values = [p for curve in panel.curves.values() for p, _, _ in curve.values()]
    bands = len(panel.curves) <= MOST_BANDS
    if bands:
        values += [end for curve in panel.curves.values() for point in curve.values() for end in point[1:]]
    marks = ticks(*_ends(values), 5)
    factors = places[0] > 0 and places[-1] >= LOGARITHMIC * places[0]
    along = math.log10 if factors else float
    left, right, bottom = x0 + LEFT, x0 + width - 14, y0 + height - FOOT
    x, y = Scale(along(places[0]), along(places[-1]), left, right), Scale(marks[0], marks[-1], bottom, y0 + HEAD)
    canvas.grid_y(y, marks, left, right)
    canvas.line(left, bottom, right, bottom, "ax")
    shown = places if factors or len(places) <= 6 else [m for m in ticks(*_ends(places), 6) if m <= places[-1]]
    for tick in (mark for mark in shown if mark >= places[0]):
        canvas.text(x(along(tick)), bottom + 16, f"{tick:g}" if factors else tick_text(tick, shown), "m")
    for name, curve in sorted(panel.curves.items(), key=lambda item: styles[item[0]] != OTHER):
        points = [(x(along(place)), *(y(end) for end in point)) for place, point in curve.items()]
        if bands and styles[name] != OTHER:
            fill = styles[name].split()[0].replace("k", "f", 1)
            canvas.area(
                [(at, high) for at, _, _, high in points], [(at, low) for at, _, low, _ in points], f"{fill} bx"
            )
        canvas.polyline([(at, middle) for at, middle, _, _ in points], styles[name])
        if len(points) == 1:
            canvas.dot(points[0][0], points[0][1], styles[name].replace("k", "f", 1), 3)
    canvas.text(left, y0 + HEAD - 14, shorten(panel.title, width - LEFT - 14), "b")
    canvas.text(right, bottom + 32, panel.axis, "l e")


def _ends(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)]
    return min(known), max(known)


def _sheet() -> str:
    """What the classes of the marks mean, in the light palette."""
    rules = [f".{name}{{fill:{colour}}}" for name, colour in FILLS.items() if name not in "lb"]
    rules += [f".{name}{{stroke:{colour}}}" for name, colour in STROKES.items()]
    sans = "font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif"
    return "".join(
        [
            *rules,
            f"text{{{sans};font-size:11.5px;fill:{PALETTE['ink3']}}}",
            f".l{{fill:{PALETTE['ink2']};font-size:12px}}.b{{fill:{PALETTE['ink']};font-size:12px;font-weight:600}}",
            ".m{text-anchor:middle}.e{text-anchor:end}.ln{fill:none;stroke-width:2;stroke-linejoin:round}",
            ".da{stroke-dasharray:5 3}.thin{opacity:.45}.ln.thin{stroke-width:1}.bx{fill-opacity:.18;stroke:none}",
        ]
    )
