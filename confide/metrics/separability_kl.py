"""Separability of correct and wrong samples: average Kullback-Leibler divergence of two Gaussians."""

from __future__ import annotations

import math
from typing import Any

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "separability_kl",
    paper="Luo et al., 2021, arXiv:2110.00054",
    better="higher",
    range=(0.0, math.inf),
    meaning="How far apart the scores of correct and of wrong samples lie, if both were normal; 0 if alike.",
    kind="separation",
    corners=({"form": "released"},),
)
def separability_kl(view: View, *, score: Any = "msp", form: str = "divergence") -> float:
    """[KL(N1 || N2) + KL(N2 || N1)] / 2 of Gaussians fitted to the scores of correct and wrong samples.

    Undefined (NaN) with fewer than two samples on a side or a side of equal scores.

    Args:
        score: what is looked at, high = safe: a word, `trust`, or n values.
        form: `divergence`; `released` lacks the 1/2 of the quadratic term, as the paper's code does, so that alike
            samples get 0.5. For comparison with its tables only.
    """
    check_choice(form, ("divergence", "released"), "form")
    (mean, variance), (other_mean, other_variance) = view.moments(score)
    if not (variance > 0 and other_variance > 0):
        return math.nan
    apart = (mean - other_mean) ** 2
    quadratic = (variance + apart) / other_variance + (other_variance + apart) / variance
    return (quadratic - 1) / 2 if form == "released" else (quadratic - 2) / 4
