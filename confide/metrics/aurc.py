"""Area under the risk-coverage curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.metrics.family import metric
from confide.metrics.ordering import Ranks, harmonic
from confide.metrics.view import View


def area_under_risk_coverage(ranks: Ranks) -> float:
    """Mean over k of the error rate among the k safest, averaged over all orders of tied samples."""
    if ranks.single:
        return float(np.mean(ranks.errors / ranks.accepted))
    before, errors_before, size, errors = ranks.steps
    # Within a tie the expected errors rise linearly, so the risks sum to e + (E - A e / m)(H[A + m] - H[A]).
    sums = harmonic(int(ranks.n))
    share = errors / np.maximum(size, 1)
    rise = sums[ranks.accepted.astype(np.intp)] - sums[before.astype(np.intp)]
    return float((errors + (errors_before - before * share) * rise).sum() / ranks.n)


@metric(
    "aurc",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    better="lower",
    range=(0.0, 1.0),
    meaning="The error rate among accepted samples, averaged over all shares one might accept.",
    kind="ranking",
)
def aurc(view: View, *, score: Any = "msp") -> float:
    """Area under the risk-coverage curve, mean over k of (errors among the k safest) / k, ties averaged.

    Args:
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    return area_under_risk_coverage(view.ranks(score))
