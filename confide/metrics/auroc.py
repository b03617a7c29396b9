"""Area under the receiver operating characteristic of correct against wrong."""

from __future__ import annotations

import math
from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "auroc",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    better="higher",
    range=(0.0, 1.0),
    meaning="The chance that a correct sample scores higher than a wrong one; one half is a guess.",
    kind="ranking",
)
def auroc(view: View, *, score: Any = "msp") -> float:
    """AUROC of correct against wrong, P(score of a correct > score of a wrong) + P(tie) / 2.

    Undefined (NaN) where all samples are correct or all wrong.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0 or ranks.wrong == 0:
        return math.nan
    below = ranks.wrong - (ranks.errors_before + ranks.errors) / 2
    return float((ranks.size - ranks.new_errors) @ below / (right * ranks.wrong))
