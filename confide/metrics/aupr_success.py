"""Area under the precision-recall curve, correct samples positive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "aupr_success",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    better="higher",
    range=(0.0, 1.0),
    meaning="How purely the highest scores hold correct samples; a guess gets the accuracy.",
    kind="ranking",
)
def aupr_success(view: View, *, score: Any = "msp") -> float:
    """Average precision of correct samples, sum over distinct scores of (recall gained) x precision (steps).

    Undefined (NaN) where no sample is correct.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0:
        return math.nan
    _, _, size, errors = ranks.steps
    precision = 1 - ranks.errors / np.maximum(ranks.accepted, 1)
    return float(((size - errors) * precision).sum() / right)
