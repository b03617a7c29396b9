"""How far difficulty scores of several methods agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from confide.core.records import Scores
from confide.difficulty.weights import average_ranks


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of two methods over the same samples."""

    a: str
    b: str
    kendall: float
    spearman: float
    n: int


def kendall_tau(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Kendall's tau-b, ties counted; NaN where one side is constant."""
    return float(stats.kendalltau(first, second).statistic)


def pearson(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Pearson correlation; NaN where one side is constant."""
    left, right = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / scale if scale > 0 else float("nan")


def agreement(scores: Sequence[Scores]) -> tuple[Agreement, ...]:
    """Kendall and Spearman correlations of every pair of methods, matched by id."""
    rows: list[Agreement] = []
    for i, first in enumerate(scores):
        for second in scores[i + 1 :]:
            left, right = first.values, second.of(first.ids)
            spearman = pearson(average_ranks(left), average_ranks(right))
            rows.append(Agreement(first.method, second.method, kendall_tau(left, right), spearman, len(left)))
    return tuple(rows)
