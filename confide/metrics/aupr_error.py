"""Area under the precision-recall curve, wrong samples positive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.ordering import harmonic
from confide.metrics.steps import steps_of
from confide.metrics.view import View


@metric(
    "aupr_error",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    better="higher",
    range=(0.0, 1.0),
    meaning="How purely the lowest scores hold errors; a guess gets the error rate.",
    kind="ranking",
    corners=({"form": "released"},),
)
def aupr_error(view: View, *, score: Any = "msp", form: str = "negated") -> float:
    """Average precision of wrong samples by the negated score (steps); undefined (NaN) without errors.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        form: `negated`; `released` leaves the score as it is, as the released code of Luo et al., 2021, does, so that
            a better score gives a smaller value. For comparison with its tables only.
    """
    check_choice(form, ("negated", "released"), "form")
    ranks = view.ranks(score) if form == "negated" else steps_of(view, score)[1]
    if ranks.wrong == 0:
        return math.nan
    if form == "released":
        return float((ranks.new_errors * ranks.errors / ranks.accepted).sum() / ranks.wrong)
    left, errors_left = ranks.n - ranks.before, ranks.wrong - ranks.errors_before
    tie = np.flatnonzero(ranks.tied & (ranks.new_errors > 0))  # a resample may leave nothing behind a tie
    total = float((ranks.new_errors[tie] * errors_left[tie] / left[tie]).sum())
    # Over a run of L errors with Q errors among R samples left, (Q - k) / (R - k) sums to L - (R - Q)(H[R] - H[R - L]).
    run = np.flatnonzero(~ranks.tied & (ranks.new_errors > 0))
    sums = harmonic(int(ranks.n))
    rise = sums[left[run].astype(np.intp)] - sums[(ranks.n - ranks.accepted[run]).astype(np.intp)]
    total += float(ranks.new_errors[run].sum() - (left[run] - errors_left[run]) @ rise)
    return total / ranks.wrong
