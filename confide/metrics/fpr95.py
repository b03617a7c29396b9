"""False positive rate at 95 % true positive rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.core.door import check_range
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "fpr95",
    paper="Liang et al., 2018, arXiv:1706.02690",
    better="lower",
    range=(0.0, 1.0),
    meaning="The share of errors still accepted at the threshold that accepts 95 % of the correct samples.",
    kind="ranking",
    corners=({"tpr": 1.0}, {"tpr": 0.0}),
)
def fpr95(view: View, *, score: Any = "msp", tpr: float = 0.95) -> float:
    """Share of wrong samples at or above the largest threshold that at least `tpr` of the correct ones reach.

    Undefined (NaN) where all samples are correct or all wrong.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        tpr: the share of correct samples to keep.
    """
    check_range(tpr, "tpr", 0, 1)
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0 or ranks.wrong == 0:
        return math.nan
    reached = (ranks.accepted - ranks.errors) >= tpr * right * (1 - 1e-12)
    return float(ranks.errors[int(np.argmax(reached))] / ranks.wrong)
