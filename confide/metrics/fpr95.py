"""False positive rate at 95 % true positive rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.core.door import check_choice, check_range
from confide.metrics.family import metric
from confide.metrics.ordering import Floats, Ranks
from confide.metrics.steps import steps_of
from confide.metrics.view import View

SCANNED, WITHIN = 10_000, 0.0005


def at_nearest_corner(ranks: Ranks, tpr: float) -> float:
    """FPR at the corner of the ROC curve, points on a line left out, whose TPR is nearest."""
    wrong, right = ranks.errors, ranks.accepted - ranks.errors
    bent = (np.diff(wrong, 2) != 0) | (np.diff(right, 2) != 0) if len(wrong) > 2 else np.ones(len(wrong) - 2, bool)
    corner = np.concatenate(([True], bent, [True])) if len(wrong) > 1 else np.ones(1, bool)
    share = np.concatenate(([0.0], right[corner] / right[-1]))
    return float(np.concatenate(([0.0], wrong[corner] / wrong[-1]))[int(np.argmin(np.abs(share - tpr)))])


def at_first_scanned(values: Floats, ranks: Ranks, tpr: float) -> float:
    """FPR at the first of 10,000 rising thresholds whose TPR is within 0.0005; NaN where none is."""
    low, high = float(values[-1]), float(values[0])
    if low == high:
        return math.nan
    thresholds = np.arange(low, high, (high - low) / SCANNED)
    # Values fall: those at or above a threshold are the first so many.
    at = np.searchsorted(-values, -thresholds, side="right") - 1
    right = (ranks.accepted - ranks.errors)[at] / (ranks.n - ranks.wrong)
    hit = np.flatnonzero((right >= tpr - WITHIN) & (right <= tpr + WITHIN))
    return float(ranks.errors[at[hit[0]]] / ranks.wrong) if len(hit) else math.nan


@metric(
    "fpr95",
    paper="Liang et al., 2018, arXiv:1706.02690",
    better="lower",
    range=(0.0, 1.0),
    meaning="The share of errors still accepted at the threshold that accepts 95 % of the correct samples.",
    kind="ranking",
    corners=({"tpr": 1.0}, {"tpr": 0.0}, {"form": "corner"}),
)
def fpr95(view: View, *, score: Any = "msp", tpr: float = 0.95, form: str = "reached") -> float:
    """Share of wrong samples at or above the largest threshold that at least `tpr` of the correct ones reach.

    Undefined (NaN) where all samples are correct or all wrong.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        tpr: the share of correct samples to keep.
        form: `reached`, as above; `corner` takes the corner of the ROC curve whose TPR is nearest, which may keep less
            (released code of Moon et al., 2020); `scan` the first of 10,000 rising thresholds within 0.0005 of it,
            NaN where none is (released code of Corbiere et al., 2019).
    """
    check_range(tpr, "tpr", 0, 1)
    check_choice(form, ("reached", "corner", "scan"), "form")
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0 or ranks.wrong == 0:
        return math.nan
    if form != "reached":
        values, steps = steps_of(view, score)
        return at_nearest_corner(steps, tpr) if form == "corner" else at_first_scanned(values, steps, tpr)
    reached = (ranks.accepted - ranks.errors) >= tpr * right * (1 - 1e-12)
    return float(ranks.errors[int(np.argmax(reached))] / ranks.wrong)
