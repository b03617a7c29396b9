"""Separability of correct and wrong samples: average Kullback-Leibler divergence of two Gaussians."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "separability_kl",
    paper="Luo et al., 2021, arXiv:2110.00054",
    better="higher",
    range=(0.0, math.inf),
    meaning="How far apart the scores of correct and of wrong samples lie, if both were normal; 0 if alike.",
    kind="separation",
)
def separability_kl(view: View, *, score: Any = "msp") -> float:
    """[KL(N1 || N2) + KL(N2 || N1)] / 2 of Gaussians fitted to the scores of correct and wrong samples.

    Undefined (NaN) with fewer than two samples on a side or a side of equal scores.
    Differs from the paper's released code, which lacks the 1/2 of the quadratic term.

    Args:
        score: what is looked at, high = safe: a word, `trust`, or n values.
    """
    (mean, variance), (other_mean, other_variance) = view.moments(score)
    if not (variance > 0 and other_variance > 0):
        return math.nan
    apart = (mean - other_mean) ** 2
    return ((variance + apart) / other_variance + (other_variance + apart) / variance - 2) / 4
