"""One step per distinct score: what the conventions of other packages look at, and losses other than errors need."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from confide.core.door import check_choice
from confide.metrics.ordering import Floats, Ranks
from confide.metrics.scores import score_values
from confide.metrics.view import View

LOSSES = ("error", "nll", "brier")


def _parts(view: View, score: object, loss: str) -> tuple[NDArray[np.floating], Floats, Floats]:
    """Score, weight and weighted loss of every sample, in the order of the samples."""
    check_choice(loss, LOSSES, "risk")
    values = score_values(view.predictions, view.base.cut(score))
    weights = np.ones(len(values)) if view.weights is None else view.weights
    return values, weights, weights * (view.base.wrong if loss == "error" else view.base.vector(loss))


def steps_of(view: View, score: object, loss: str = "error") -> tuple[Floats, Ranks]:
    """The distinct scores, from the highest, and samples and losses accepted at each; ties are one step."""
    values, weights, losses = _parts(view, score, loss)
    distinct, place = np.unique(values, return_inverse=True)
    count, lost = (np.bincount(place, v, minlength=len(distinct))[::-1] for v in (weights, losses))
    there = count > 0
    tied = np.ones(int(there.sum()), dtype=np.bool_)
    return distinct[::-1][there].astype(np.float64), Ranks(np.cumsum(count[there]), np.cumsum(lost[there]), tied)


def in_given_order(view: View, score: object, loss: str = "error") -> Ranks:
    """One step per sample, ties in the order of the samples."""
    values, weights, losses = _parts(view, score, loss)
    order = np.argsort(-values, kind="stable")
    return Ranks(np.cumsum(weights[order]), np.cumsum(losses[order]), np.zeros(len(order), dtype=np.bool_))


def trapezoid_area(ranks: Ranks) -> float:
    """Area between risk and coverage by trapezoids, from the first step to the last but one; NaN with one point."""
    coverage, risk = ranks.accepted[:-1] / ranks.n, ranks.errors[:-1] / ranks.accepted[:-1]
    if len(coverage) < 2:
        return math.nan
    return float(((risk[1:] + risk[:-1]) / 2 * np.diff(coverage)).sum())
