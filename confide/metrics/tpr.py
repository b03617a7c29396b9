"""True positive rate at a threshold."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "tpr",
    paper="Luo et al., 2021, arXiv:2110.00054",
    better="higher",
    range=(0.0, 1.0),
    meaning="The share of correct samples that the threshold accepts.",
    kind="ranking",
    corners=({"threshold": 0.0}, {"threshold": 1.0}),
)
def tpr(view: View, *, threshold: float = 0.5, score: Any = "msp") -> float:
    """Share of correct samples with score >= threshold; undefined (NaN) where no sample is correct.

    Args:
        threshold: from which score on a sample is accepted.
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    accepted, wrong, weights = view.above(score, threshold)
    right = float((weights * ~wrong).sum())
    return float((weights * (accepted & ~wrong)).sum()) / right if right else math.nan
