"""The light palette and the meaning of the classes of a chart, for drawings outside a browser."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

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
