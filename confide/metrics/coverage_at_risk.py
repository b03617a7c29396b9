"""Largest share of samples that can be accepted at a given error rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.core.door import check_range
from confide.metrics.family import metric
from confide.metrics.ordering import Ranks
from confide.metrics.view import View


def largest_coverage(ranks: Ranks, risk: float) -> float:
    """Largest accepted share whose error rate is at most `risk`; ties are accepted together."""
    good = np.flatnonzero((ranks.errors <= risk * ranks.accepted * (1 + 1e-12)) & (ranks.accepted > 0))
    reached = float(ranks.accepted[good[-1]]) if len(good) else 0.0
    following = int(good[-1]) + 1 if len(good) else 0
    if following < len(ranks.accepted) and not ranks.tied[following] and risk < 1:
        # A run of errors follows: the first few may still be allowed, (E + k) / (A + k) <= risk.
        room = (risk * ranks.before[following] - ranks.errors_before[following]) / (1 - risk)
        reached += max(0, math.floor(room * (1 + 1e-12)))
    return reached / ranks.n


@metric(
    "coverage_at_risk",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    better="higher",
    range=(0.0, 1.0),
    meaning="The largest share of samples one can accept with at most the given error rate; seen here, not promised.",
    kind="ranking",
    corners=({"risk": 0.0}, {"risk": 1.0}),
)
def coverage_at_risk(view: View, *, risk: float = 0.05, score: Any = "msp") -> float:
    """Largest k / n over thresholds whose error rate among the k accepted is at most `risk`; 0 if there is none.

    Descriptive: for a threshold with a guarantee see `confide.operating_point`.

    Args:
        risk: the error rate allowed among accepted samples.
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    check_range(risk, "risk", 0, 1)
    return largest_coverage(view.ranks(score), risk)
