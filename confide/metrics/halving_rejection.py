"""Share of samples to reject so that the error rate halves."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.coverage_at_risk import largest_coverage
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "halving_rejection",
    paper="Nadeem et al., 2010, PMLR 8 (accuracy-rejection curves)",
    better="lower",
    range=(0.0, 1.0),
    meaning="The share of samples to set aside, least trusted first, so that the error rate of the rest is halved.",
    kind="ranking",
)
def halving_rejection(view: View, *, score: Any = "msp") -> float:
    """1 - the largest coverage whose error rate is at most half the overall one; undefined (NaN) without errors.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    ranks = view.ranks(score)
    if ranks.wrong == 0:
        return math.nan
    return 1 - largest_coverage(ranks, ranks.wrong / ranks.n / 2)
