"""Every chart of the report as SVG and PNG for papers: the same marks in the light palette, drawn again by
matplotlib.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from confide.checks import MissingExtra, check_choice
from confide.files.disk import atomic
from confide.files.formats import write_text
from confide.report.draw import Figure
from confide.report.sections import SECTIONS
from confide.report.view import EvaluationView
from confide.report.words import plain_text
from confide.results import Evaluation
from confide.types import Options

# The light palette and what the classes of a chart mean.

PALETTE = {
    "paper": "#FFFFFF",
    "ink": "#14181C",
    "ink2": "#48525B",
    "ink3": "#626C76",
    "grid": "#E6EAEC",
    "band": "#DDE3E7",
    "accent": "#0A6478",
    "wrong": "#A82A06",
    "grey": "#747E87",
}
SERIES = {
    "1": "#0A6478",
    "2": "#A67C00",
    "3": "#35308C",
    "4": "#3D87CB",
    "5": "#C4647C",
    "g": "#747E87",
    "w": "#A82A06",
}
SEQUENTIAL = ("#E9F2F4", "#C6DEE4", "#95C0CB", "#5F9DAD", "#2C7A8D", "#0A5163")
DIVERGING = ("#0A5163", "#3F8A9B", "#9CC5CF", "#EFF1F2", "#F3C3AF", "#DE7F58", "#A83210")
ON_DIVERGING = ("#FFFFFF", "#0B0E10", "#14181C", "#14181C", "#14181C", "#14181C", "#FFFFFF")

FILLS = {
    **{f"f{k}": colour for k, colour in SERIES.items()},
    **{f"q{k}": colour for k, colour in enumerate(SEQUENTIAL)},
    **{f"d{k}": colour for k, colour in enumerate(DIVERGING)},
    **{f"t{k}": colour for k, colour in enumerate(ON_DIVERGING)},
    "fb": PALETTE["band"],
    "ho": PALETTE["paper"],
    "l": PALETTE["ink2"],
    "b": PALETTE["ink"],
}
STROKES = {
    **{f"k{k}": colour for k, colour in SERIES.items()},
    "ki": PALETTE["ink"],
    "g": PALETTE["grid"],
    "ax": PALETTE["ink"],
    "tk": PALETTE["ink3"],
    "ref": PALETTE["ink3"],
}


@dataclass(frozen=True)
class Style:
    """How one mark is painted."""

    fill: str | None
    stroke: str | None
    width: float
    opacity: float
    dashed: bool
    size: float
    bold: bool
    anchor: str
    halo: bool


def style_of(element: ElementTree.Element) -> Style:
    """The style of a mark by its classes, as the page's style sheet says it."""
    classes = element.attrib.get("class", "").split()
    is_text = element.tag == "text"
    fill = next((FILLS[c] for c in reversed(classes) if c in FILLS), PALETTE["ink3"] if is_text else None)
    stroke = None if is_text else next((STROKES[c] for c in classes if c in STROKES), None)
    style = element.attrib.get("style", "")
    width = float(style.split("stroke-width:")[1].split(";")[0]) if "stroke-width:" in style else 0.0
    width = width or float(element.attrib.get("stroke-width", 2 if "ln" in classes else 1))
    return Style(
        fill=None if "ln" in classes or "ref" in classes else fill,
        stroke=stroke,
        width=width,
        opacity=0.28 if "bx" in classes else 0.45 if "pale" in classes else 0.7 if "thin" in classes else 1.0,
        dashed="ref" in classes,
        size=12.0 if {"l", "b"} & set(classes) else 11.5,
        bold="b" in classes,
        anchor="center" if "m" in classes else "right" if "e" in classes else "left",
        halo="nh" not in classes,
    )


# The charts drawn again by matplotlib.

PIXELS_AN_INCH = 96
DOTS_AN_INCH = 300
FONTS = ("Liberation Sans", "Arial", "Helvetica", "DejaVu Sans")
SCREEN_FONTS = "-apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"


def write_figures(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write each chart of the report as SVG and PNG into a folder, with captions.md that says what each shows.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.
        folder: where to.

    Returns:
        The paths of the drawings.

    Raises:
        MissingExtra: matplotlib is not installed.

    Example:
        >>> rows = (confide.Measurement("accuracy", 0.9, 10),)
        >>> confide.report.write_figures(confide.Evaluation(rows), "figures")  # doctest: +SKIP
        []
    """
    matplotlib = _matplotlib()
    written: list[Path] = []
    captions = ["# Figures\n"]
    settings = {
        "font.family": "sans-serif",
        "font.sans-serif": list(FONTS),
        "svg.fonttype": "none",
        "svg.hashsalt": "c",
    }
    with matplotlib.rc_context(settings):
        for name, figure in named_figures(EvaluationView(evaluation)):
            source = str(figure.wide or figure.svg)
            for suffix, write in ((".svg", _write_svg), (".png", _write_png)):
                path = Path(folder) / f"{name}{suffix}"
                with atomic(path) as temporary:
                    write(matplotlib, source, temporary)
                written.append(path)
            captions.append(f"- `{name}`: **{plain_text(figure.title)}.** {plain_text(figure.subtitle)}.")
    write_text(Path(folder) / "captions.md", "\n".join(captions) + "\n")
    return written


@dataclass(frozen=True)
class Drawing:
    """A figure of the report as an SVG file of its own."""

    name: str
    caption: str
    svg: str


def section_drawings(evaluation: Evaluation, section: str) -> tuple[Drawing, ...]:
    """The figures of one section of the report as SVG with their colours written out; needs no other package.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.
        section: its place in the page, such as "reliability", "coverage" or "shift".

    Returns:
        A drawing for each figure, in the order of the page.

    Example:
        >>> rows = (confide.Measurement("accuracy", 0.9, 10),)
        >>> confide.report.section_drawings(confide.Evaluation(rows), "shift")
        ()
    """
    check_choice(section, tuple(known.id for known in SECTIONS), "section")
    build = next(known.build for known in SECTIONS if known.id == section)
    return tuple(
        Drawing(
            "".join(c if c.isalnum() else "-" for c in figure.name.lower()),
            f"{plain_text(figure.title)}. {plain_text(figure.subtitle)}.",
            standing_alone(str(figure.wide or figure.svg)),
        )
        for figure in build(EvaluationView(evaluation)).drawings
    )


def standing_alone(svg: str) -> str:
    """A drawing of the report with its colours written out, for viewers without the report's style sheet."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        if element.tag not in ("path", "circle", "text"):
            continue
        style = style_of(element)
        looks: dict[str, str | float | None] = {
            "fill": style.fill or "none",
            "stroke": style.stroke,
            "stroke-width": style.width,
        }
        looks["fill-opacity"] = style.opacity if style.opacity < 1 else None
        looks["stroke-dasharray"] = "3 3" if style.dashed else None
        if element.tag == "text":
            anchor = {"center": "middle", "right": "end"}.get(style.anchor, "start")
            looks = {"fill": style.fill, "font-size": style.size, "text-anchor": anchor}
            looks["font-weight"] = 600 if style.bold else None
        element.attrib.pop("class", None)
        element.attrib.pop("style", None)
        element.attrib.update({key: str(value) for key, value in looks.items() if value is not None})
    _, _, width, height = (float(v) for v in root.attrib["viewBox"].split())
    frame = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"-12 -12 {width + 24:g} {height + 24:g}"}
    root.attrib.update({**frame, "width": f"{width + 24:g}", "height": f"{height + 24:g}", "font-family": SCREEN_FONTS})
    paper = {"x": "-12", "y": "-12", "width": "100%", "height": "100%", "fill": PALETTE["paper"]}
    root.insert(0, ElementTree.Element("rect", paper))
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def named_figures(view: EvaluationView) -> Iterator[tuple[str, Figure]]:
    """All figures of the report with the names of their files."""
    counts: dict[str, int] = {}
    for section in SECTIONS:
        for figure in section.build(view).drawings:
            name = re.sub(r"[^a-z0-9]+", "-", f"{section.id}-{figure.name}".lower()).strip("-")[:80].rstrip("-")
            counts[name] = counts.get(name, 0) + 1
            yield (name if counts[name] == 1 else f"{name}-{counts[name]}"), figure


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.patheffects
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing static figures") from None
    return matplotlib


def _write_png(matplotlib: Any, source: str, path: Path) -> None:
    _draw(matplotlib, source, halo=True).savefig(path, format="png", dpi=DOTS_AN_INCH)


def _write_svg(matplotlib: Any, source: str, path: Path) -> None:
    """Text stays text that a person can edit, so its halo is written as a style and not as outlines."""
    buffer = io.StringIO()
    _draw(matplotlib, source, halo=False).savefig(buffer, format="svg", metadata={"Date": None})
    style = f"paint-order:stroke;stroke:{PALETTE['paper']};stroke-width:2.5px;stroke-linejoin:round;"
    text = re.sub(r'(<g id="halo-\d+">\s*<text style=")', rf"\g<1>{style}", buffer.getvalue())
    path.write_text(text, encoding="utf-8")


def _draw(matplotlib: Any, svg: str, halo: bool) -> Any:
    """One drawing, marks in their order; pixels of the page become points of the figure."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = (float(v) for v in root.attrib["viewBox"].split())
    margin = 12.0
    size = ((width + 2 * margin) / PIXELS_AN_INCH, (height + 2 * margin) / PIXELS_AN_INCH)
    drawing = matplotlib.figure.Figure(figsize=size, facecolor=PALETTE["paper"])
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set_xlim(-margin, width + margin)
    axes.set_ylim(height + margin, -margin)
    axes.axis("off")
    for order, element in enumerate(root):
        _mark(matplotlib, axes, element, order + 2, halo)
    return drawing


def _mark(matplotlib: Any, axes: Any, element: ElementTree.Element, order: int, halo: bool) -> None:
    style = style_of(element)
    patches = matplotlib.patches
    common = {"zorder": order, "clip_on": False}
    if element.tag == "text":
        _text(matplotlib, axes, element, order, halo)
    elif element.tag == "path":
        shape = matplotlib.path.Path(*_path(element.attrib["d"]))
        axes.add_patch(patches.PathPatch(shape, **_paint(style), **common))
    elif element.tag == "circle":
        centre = float(element.attrib["cx"]), float(element.attrib["cy"])
        axes.add_patch(patches.Circle(centre, float(element.attrib["r"]), **_paint(style), **common))
    # The dragged operating point (a group) belongs to the page alone.


def _paint(style: Style) -> Options:
    line: Options = {
        "facecolor": style.fill or "none",
        "edgecolor": style.stroke or "none",
        "linewidth": style.width * 72 / PIXELS_AN_INCH if style.stroke else 0,
        "alpha": style.opacity,
        "joinstyle": "round",
    }
    if style.dashed:
        line["linestyle"] = (0, (3, 3))
    return line


def _text(matplotlib: Any, axes: Any, element: ElementTree.Element, order: int, halo: bool) -> None:
    style = style_of(element)
    # Few fonts of a paper's toolchain have the narrow space.
    words = (element.text or "").replace("\u202f", "\u00a0")
    written = axes.text(
        float(element.attrib["x"]),
        float(element.attrib["y"]),
        words,
        color=style.fill,
        fontsize=style.size * 72 / PIXELS_AN_INCH,
        fontweight="bold" if style.bold else "normal",
        ha=style.anchor,
        va="baseline",
        zorder=order,
        parse_math=False,
    )
    if style.halo and halo:
        stroke = matplotlib.patheffects.withStroke(linewidth=2.5, foreground=PALETTE["paper"])
        written.set_path_effects([stroke])
    elif style.halo:
        written.set_gid(f"halo-{order}")


def _path(shape: str) -> tuple[list[tuple[float, float]], list[int]]:
    """Points and codes of a path made of M L h v z."""
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    start = (0.0, 0.0)
    for letter, numbers in re.findall(r"([MLHVhvZz])([^MLHVhvZz]*)", shape):
        values = [float(v) for v in numbers.split()]
        if letter in "ML":
            x, y = values
            start = (x, y) if letter == "M" else start
        elif letter == "h":
            x += values[0]
        elif letter == "v":
            y += values[0]
        points.append(start if letter in "Zz" else (x, y))
        codes.append({"M": 1, "Z": 79, "z": 79}.get(letter, 2))
    return points, codes
