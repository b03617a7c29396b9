"""Every chart of the report as SVG and PNG for papers: the same marks, drawn again by matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from confide.core.door import MissingExtra
from confide.core.files import atomic, write_text
from confide.core.results import Evaluation
from confide.report.figure import Figure
from confide.report.palette import PALETTE, Style, style_of
from confide.report.sections.coverage import coverage_section
from confide.report.sections.difficulty import difficulty_section
from confide.report.sections.models import models_section
from confide.report.sections.reliability import reliability_section
from confide.report.sections.shift import shift_section
from confide.report.sections.training import training_section
from confide.report.sections.trust import trust_section
from confide.report.view import View
from confide.report.words import plain_text

PIXELS_AN_INCH = 96
DOTS_AN_INCH = 300
FONTS = ("Liberation Sans", "Arial", "Helvetica", "DejaVu Sans")


def write_figures(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write each chart as SVG and PNG into a folder, with captions.md that says what each shows."""
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
        for name, figure in named_figures(View(evaluation)):
            source = str(figure.wide or figure.svg)
            for suffix, write in ((".svg", _write_svg), (".png", _write_png)):
                path = Path(folder) / f"{name}{suffix}"
                with atomic(path) as temporary:
                    write(matplotlib, source, temporary)
                written.append(path)
            captions.append(f"- `{name}`: **{plain_text(figure.title)}.** {plain_text(figure.subtitle)}.")
    write_text(Path(folder) / "captions.md", "\n".join(captions) + "\n")
    return written


def named_figures(view: View) -> Iterator[tuple[str, Figure]]:
    """All figures of the report with the names of their files."""
    counts: dict[str, int] = {}
    for section, figures in _sections(view):
        for figure in figures:
            name = re.sub(r"[^a-z0-9]+", "-", f"{section}-{figure.name}".lower()).strip("-")[:80].rstrip("-")
            counts[name] = counts.get(name, 0) + 1
            yield (name if counts[name] == 1 else f"{name}-{counts[name]}"), figure


def _sections(view: View) -> Iterator[tuple[str, list[Figure]]]:
    reliability, coverage = reliability_section(view), coverage_section(view)
    trust, shift, training = trust_section(view), shift_section(view), training_section(view)
    yield "models", list(models_section(view).figures)
    yield "reliability", list(reliability.figures)
    yield "reliability", [*reliability.others, *([reliability.classes] if reliability.classes else [])]
    yield "coverage", [f for f in (coverage.curve, coverage.rejection) if f]
    yield "trust", [*trust.figures, *(figure for figure, _ in (*trust.cuts, *trust.lines))]
    yield "trust", [trust.sweep] if trust.sweep else []
    yield "difficulty", list(difficulty_section(view).figures)
    yield "shift", list(shift.figures)
    yield "training", [*training.panels, *training.gammas]


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


def _paint(style: Style) -> dict[str, Any]:
    line: dict[str, Any] = {
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
