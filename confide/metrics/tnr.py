"""True negative rate at a threshold."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "tnr",
    paper="Luo et al., 2021, arXiv:2110.00054",
    better="higher",
    range=(0.0, 1.0),
    meaning="The share of wrong samples that the threshold rejects.",
    kind="ranking",
    corners=({"threshold": 0.0}, {"threshold": 1.0}),
)
def tnr(view: View, *, threshold: float = 0.5, score: Any = "msp") -> float:
    """Share of wrong samples with score < threshold; undefined (NaN) without errors.

    Args:
        threshold: below which score a sample is rejected.
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    accepted, wrong, weights = view.above(score, threshold)
    total = float((weights * wrong).sum())
    return float((weights * (wrong & ~accepted)).sum()) / total if total else math.nan
