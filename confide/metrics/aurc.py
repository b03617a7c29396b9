"""Area under the risk-coverage curve."""

from __future__ import annotations

from typing import Any

from confide.core.door import check_choice
from confide.metrics.family import metric
from confide.metrics.steps import in_given_order, steps_of, trapezoid_area
from confide.metrics.view import View


@metric(
    "aurc",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    better="lower",
    range=(0.0, 1.0),
    meaning="The error rate among accepted samples, averaged over all shares one might accept.",
    kind="ranking",
    corners=({"area": "trapezoid"}, {"ties": "given"}, {"ties": "given", "risk": "brier"}, {"risk": "brier"}),
)
def aurc(view: View, *, score: Any = "msp", area: str = "mean", ties: str = "averaged", risk: str = "error") -> float:
    """Area under the risk-coverage curve, mean over k of (errors among the k safest) / k, ties averaged.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        area: `mean` over all n coverages; `trapezoid` between distinct scores, which leaves out both ends and is
            smaller (released code of Corbiere et al., 2019).
        ties: `averaged` over all orders of equal scores, or in the order `given`, as most released code leaves them.
        risk: what is averaged among the accepted: `error`, or the loss `nll` or `brier` (then the range is its own).
    """
    check_choice(area, ("mean", "trapezoid"), "area")
    check_choice(ties, ("averaged", "given"), "ties")
    if (area, ties, risk) == ("mean", "averaged", "error"):
        return view.ranks(score).area
    ranks = in_given_order(view, score, risk) if ties == "given" else steps_of(view, score, risk)[1]
    return ranks.area if area == "mean" else trapezoid_area(ranks)
