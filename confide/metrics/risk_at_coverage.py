"""Error rate among the safest share of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.core.door import check_range
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "risk_at_coverage",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    better="lower",
    range=(0.0, 1.0),
    meaning="The error rate among the given share of samples with the highest scores.",
    kind="ranking",
    corners=({"coverage": 1.0}, {"coverage": 1e-9}),
)
def risk_at_coverage(view: View, *, coverage: float = 0.8, score: Any = "msp") -> float:
    """Error rate among the ceil(coverage x n) safest samples, averaged over all orders of tied ones.

    Args:
        coverage: the share of samples accepted.
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
    """
    check_range(coverage, "coverage", 0, 1, low_open=True)
    ranks = view.ranks(score)
    # The tolerance keeps 0.8 x 1000 at 800 although 0.8 is not exact in binary.
    wanted = max(1.0, math.ceil(coverage * ranks.n * (1 - 1e-12) - 1e-9))
    accepted, errors = (np.concatenate(([0.0], v)) for v in (ranks.accepted, ranks.errors))
    return float(np.interp(wanted, accepted, errors) / wanted)
