"""Accuracy."""

from __future__ import annotations

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "accuracy",
    paper="folklore",
    better="higher",
    range=(0.0, 1.0),
    meaning="The share of samples whose most probable class is the label.",
    kind="mean",
)
def accuracy(view: View) -> float:
    """Accuracy, mean of 1[prediction = label]; of equal logits the lowest class is the prediction."""
    return view.mean("correct")
