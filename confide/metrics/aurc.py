"""Area under the risk-coverage curve."""

from __future__ import annotations

from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "aurc",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    better="lower",
    range=(0.0, 1.0),
    meaning="The error rate among accepted samples, averaged over all shares one might accept.",
    kind="ranking",
)
def aurc(view: View, *, score: Any = "msp") -> float:
    """Area under the risk-coverage curve, mean over k of (errors among the k safest) / k, ties averaged.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    return view.ranks(score).area
