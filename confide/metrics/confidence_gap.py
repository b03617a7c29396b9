"""Mean confidence minus accuracy."""

from __future__ import annotations

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "confidence_gap",
    paper="Murphy, 1973, doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2",
    better="neither",
    range=(-1.0, 1.0),
    meaning="How far the average confidence lies above the share that is right; above 0 is overconfident.",
    kind="mean",
)
def confidence_gap(view: View) -> float:
    """Calibration in the large, mean confidence - accuracy: one number with a sign."""
    return view.mean("sureness") - view.mean("correct")
