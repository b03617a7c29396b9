"""Maps: confidence and errors of the images in which most pixels are wrong."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

from markupsafe import escape

from confide.report.draw import PHONE, WIDE, Canvas, Figure, table
from confide.report.view import EvaluationView
from confide.report.words import percent, shorten
from confide.results import Sample

CELL = 150


@dataclass(frozen=True)
class MapsSection:
    """What the section shows; nothing where an evaluation has no maps."""

    figure: Figure | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return (self.figure,) if self.figure else ()


def maps_section(view: EvaluationView) -> MapsSection:
    """The maps that the evaluation holds."""
    samples = [s for s in view.samples("map") if (s.picture or "").startswith("data:image/")]
    if not samples:
        return MapsSection()
    rows = [(s.id, s.text or "", "" if s.confidence is None else percent(s.confidence, 1)) for s in samples]
    alt = f"Maps of confidence and error of {len(samples)} images; image {samples[0].id} has {samples[0].text}."
    return MapsSection(
        Figure(
            "maps",
            f"The {len(samples)} images with most errors",
            "Left: confidence, from black (0) to white (1). Right: errors are red. Blue pixels do not count",
            _canvas(samples, PHONE).render(alt),
            table(("Image", "Errors", "Mean confidence"), rows),
            wide=_canvas(samples, WIDE).render(alt),
        )
    )


def _canvas(samples: list[Sample], width: int) -> Canvas:
    across = max(1, width // (2 * CELL))
    side = width / across
    tallest = min(CELL, math.ceil((side - 12) * max(_height(s.picture or "") for s in samples)))
    high = tallest + 34
    canvas = Canvas(width, int(high * -(-len(samples) // across)))
    for place, sample in enumerate(samples):
        x, y = side * (place % across), high * (place // across)
        canvas.text(x + 2, y + 12, shorten(f"{sample.id}: {sample.text}", side - 14), "l")
        box = f'x="{x + 2:.1f}" y="{y + 18:.1f}" width="{side - 12:.1f}" height="{tallest:.1f}"'
        canvas.raw(f'<image {box} href="{escape(sample.picture or "")}" preserveAspectRatio="xMinYMin meet"/>')
    return canvas


def _height(picture: str) -> float:
    """Of a picture as data, in its widths; 1 where it cannot be read."""
    from PIL import Image

    try:
        width, height = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))).size
    except (OSError, ValueError, Image.DecompressionBombError):
        return 1.0
    return float(height / width)
