"""Area under the generalised risk-coverage curve."""

from __future__ import annotations

from typing import Any

from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "augrc",
    paper="Traub et al., 2024, arXiv:2407.01032",
    better="lower",
    range=(0.0, 0.5),
    meaning="The share of samples accepted and wrong, averaged over all shares one might accept.",
    kind="ranking",
)
def augrc(view: View, *, score: Any = "msp") -> float:
    """Area under (errors accepted) / n over coverage, by trapezoids through (0, 0) and one point per distinct score.

    Equals (1 - AUROC) a (1 - a) + (1 - a)^2 / 2 with accuracy a; 0 if all are right, 1/2 if all are wrong.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    ranks = view.ranks(score)
    return float(ranks.size @ (ranks.errors_before + ranks.errors) / 2 / ranks.n**2)
