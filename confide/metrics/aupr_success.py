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
    gained = ranks.size - ranks.new_errors
    # One precision for a tie; over a run of correct samples k the precisions 1 - E / k sum up.
    lost = np.where(ranks.tied, gained * ranks.errors / np.maximum(ranks.accepted, 1), 0.0)
    run = np.flatnonzero(~ranks.tied & (gained > 0))
    return float((right - lost.sum() - ranks.errors[run] @ ranks.rise[run]) / right)
