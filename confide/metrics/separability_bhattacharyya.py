"""Separability of correct and wrong samples: Bhattacharyya distance of two Gaussians."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "separability_bhattacharyya",
    paper="Luo et al., 2021, arXiv:2110.00054",
    better="higher",
    range=(0.0, math.inf),
    meaning="How little the scores of correct and of wrong samples overlap, if both were normal; 0 if alike.",
    kind="separation",
)
def separability_bhattacharyya(view: View, *, score: Any = "msp") -> float:
    """ln((v1 / v2 + v2 / v1 + 2) / 4) / 4 + (m1 - m2)^2 / (4 (v1 + v2)) of Gaussians fitted to both sides.

    Undefined (NaN) with fewer than two samples on a side or a side of equal scores.

    Args:
        score: what is looked at, high = safe: a word, `trust`, or n values.
    """
    (mean, variance), (other_mean, other_variance) = view.moments(score)
    if not (variance > 0 and other_variance > 0):
        return math.nan
    ratio = variance / other_variance
    return math.log((ratio + 1 / ratio + 2) / 4) / 4 + (mean - other_mean) ** 2 / (4 * (variance + other_variance))
