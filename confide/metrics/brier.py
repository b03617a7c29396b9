"""Brier score."""

from __future__ import annotations

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "brier",
    paper="Brier, 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2",
    better="lower",
    range=(0.0, 2.0),
    meaning="The squared distance between the probabilities and the truth, over all classes.",
    kind="mean",
)
def brier(view: View) -> float:
    """Brier score, mean over samples of the sum over classes of (p_k - 1[y = k])^2."""
    return view.mean("brier")
