"""Brier score."""

from __future__ import annotations

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "brier",
    paper="Brier, 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2",
    better="lower",
    range=(0.0, 2.0),
    meaning="The squared distance between the probabilities and the truth, over all classes.",
    kind="mean",
    corners=({"over": "mean"},),
)
def brier(view: View, *, over: str = "sum") -> float:
    """Brier score, mean over samples of the sum over classes of (p_k - 1[y = k])^2.

    Args:
        over: `sum` over classes, as the paper; `mean` divides it by their number, as some packages do.
    """
    check_choice(over, ("sum", "mean"), "over")
    return view.mean("brier") / (1 if over == "sum" else view.predictions.num_classes)
