"""Excess area under the risk-coverage curve."""

from __future__ import annotations

import math
from typing import Any

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.ordering import harmonic
from confide.metrics.steps import steps_of, trapezoid_area
from confide.metrics.view import View


def best_area(n: int, wrong: int, form: str) -> float:
    """AURC of a perfect ranking: r + (1 - r) ln(1 - r) in the limit, or exactly for n samples."""
    check_choice(form, ("limit", "finite"), "form")
    rate = wrong / n
    if form == "limit":
        return rate + (1 - rate) * math.log1p(-rate) if rate < 1 else 1.0
    right, sums = n - wrong, harmonic(n)
    # errors come last: sum over j = 1..wrong of j / (right + j) = wrong - right (H[n] - H[right])
    return float(wrong - right * (sums[n] - sums[right])) / n


@metric(
    "eaurc",
    paper="Geifman et al., 2019, arXiv:1805.08206",
    better="lower",
    range=(0.0, 1.0),
    meaning="What the ranking alone adds to the area under the risk-coverage curve; 0 if every error ranks last.",
    kind="ranking",
    corners=({"form": "finite"},),
)
def eaurc(view: View, *, score: Any = "msp", form: str = "limit", area: str = "mean") -> float:
    """Excess AURC, AURC - (r + (1 - r) ln(1 - r)) with the error rate r; the term is 1 at r = 1.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        form: `limit` for the formula of the paper, `finite` for the best AURC of n samples (0 for a perfect ranking).
        area: `mean` or `trapezoid`, as for AURC; by trapezoids the excess of a good ranking may be below 0.
    """
    check_choice(area, ("mean", "trapezoid"), "area")
    ranks = view.ranks(score)
    found = ranks.area if area == "mean" else trapezoid_area(steps_of(view, score)[1])
    return found - best_area(round(ranks.n), round(ranks.wrong), form)
