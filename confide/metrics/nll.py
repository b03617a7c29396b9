"""Negative log-likelihood."""

from __future__ import annotations

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "nll",
    paper="Good, 1952, doi:10.1111/j.2517-6161.1952.tb00104.x",
    better="lower",
    range=(0.0, float("inf")),
    meaning="How surprised the model is by the true labels, in nats; sure mistakes cost most.",
    kind="mean",
)
def nll(view: View) -> float:
    """Negative log-likelihood, mean of -log p_y; probabilities given are clipped at 1e-12."""
    return view.mean("nll")
