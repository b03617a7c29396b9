"""Area under the precision-recall curve, wrong samples positive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "aupr_error",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    better="higher",
    range=(0.0, 1.0),
    meaning="How purely the lowest scores hold errors; a guess gets the error rate.",
    kind="ranking",
)
def aupr_error(view: View, *, score: Any = "msp") -> float:
    """Average precision of wrong samples by the negated score (steps); undefined (NaN) without errors.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    ranks = view.ranks(score)
    if ranks.wrong == 0:
        return math.nan
    before, errors_before, _, errors = ranks.steps
    precision = (ranks.wrong - errors_before) / np.maximum(ranks.n - before, 1)
    return float((errors * precision).sum() / ranks.wrong)
