"""Scores put to use: training weights and groups, error rate from easy to hard, agreement of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from confide.checks import InputError, check_choice, check_range
from confide.numerics.binomial import wilson_interval
from confide.records import Scores
from confide.results import Z
from confide.types import Floats

# Training weights s(x, y) in [0, 1] from difficulty scores, s = exp((v - max v) / T) / (1 + c).

NORMALIZATIONS = ("none", "minmax", "standardize", "rank")


def weights(scores: Any, *, normalize: str = "none", temperature: float = 0.7, c: float = 1e-3) -> NDArray[np.float64]:
    """Weight of every sample, exp((v - max v) / T) / (1 + c): the hardest has 1 / (1 + c), easy ones fade.

    The overflow-safe form of eq. 10 of Cui et al. (2023): only the effective c differs from the printed one.

    Args:
        scores: `Scores`, or one value per sample.
        normalize: what happens to the scores first. "none" is the printed formula, which vanishes for all but a few
            samples at T = 0.7 because raw scores spread over tens; "minmax" to [0, 1]; "standardize" to mean 0,
            deviation 1; "rank" to rank / (n - 1), ties averaged.
        temperature: small values leave weight to the hardest only. Default: the choice of the paper.
        c: the small constant of the paper's denominator.

    Returns:
        One weight per sample, in (0, 1].

    Raises:
        InputError: scores that are no vector, or not finite.

    Example:
        >>> confide.difficulty.weights([0.0, 1.0, 5.0], normalize="rank").round(3).tolist()
        [0.239, 0.489, 0.999]
    """
    check_choice(normalize, NORMALIZATIONS, "normalize")
    check_range(temperature, "temperature", 0, low_open=True)
    check_range(c, "c", 0)
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(f"scores must be a vector of at least one value, got shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).nonzero()[0][0])
        raise InputError(f"scores must be finite, got {values[bad]} at sample {bad} of {len(values)}; drop it")
    normal = _normalized(values, normalize)
    return np.asarray(np.exp((normal - normal.max()) / temperature) / (1 + c))


def _normalized(values: NDArray[np.float64], normalize: str) -> NDArray[np.float64]:
    if normalize == "none":
        return values
    if normalize == "minmax":
        low, spread = float(values.min()), float(np.ptp(values))
    elif normalize == "standardize":
        low, spread = float(values.mean()), float(values.std())
    else:
        values = average_ranks(values)
        low, spread = 0.0, float(len(values) - 1)
    # Scores that are all the same make no difference between samples.
    return np.asarray((values - low) / spread if spread > 0 else np.zeros_like(values))


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank of every value from 0, ties averaged."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(((2 * np.cumsum(counts) - counts - 1) / 2)[place.reshape(-1)])


# How far difficulty scores of several methods agree.


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
    """Kendall and Spearman correlations of every pair of methods, matched by id.

    Args:
        scores: of several methods; the samples of the first must be in all.

    Returns:
        One `Agreement` a pair.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> scores = confide.difficulty.score("rmd", rows, labels)
        >>> other = confide.difficulty.score("prototype", rows, labels)
        >>> pair, = confide.difficulty.agreement([scores, other])
        >>> (pair.a, pair.b, round(pair.kendall, 1))
        ('rmd', 'prototype', 0.2)
    """
    rows: list[Agreement] = []
    for i, first in enumerate(scores):
        for second in scores[i + 1 :]:
            left, right = first.values, second.of(first.ids)
            spearman = pearson(average_ranks(left), average_ranks(right))
            rows.append(Agreement(first.method, second.method, kendall_tau(left, right), spearman, len(left)))
    return tuple(rows)


# Errors by difficulty: equal parts from easy to hard with intervals, their correlation, and groups for training.


@dataclass(frozen=True)
class DifficultyGroup:
    """Samples of neighbouring difficulty: range and mean of the scores, error rate with its 95 % Wilson interval."""

    name: str
    low: float
    high: float
    mean: float
    n: int
    error: float
    error_low: float
    error_high: float


@dataclass(frozen=True)
class ErrorByDifficulty:
    """The bands, and the Pearson correlation of their mean score with their error rate."""

    bands: tuple[DifficultyGroup, ...]
    pearson: float


def error_by_difficulty(scores: Any, correct: Any, *, bands: int = 3) -> ErrorByDifficulty:
    """Error rate in `bands` equal parts of the samples from easy to hard; equal scores may fall on both sides of a cut.

    Args:
        scores: `Scores`, or one value per sample.
        correct: one truth value per sample, in the order of the scores.
        bands: how many parts.

    Returns:
        The groups with their error rates and intervals, and the correlation of difficulty and error.

    Raises:
        InputError: not one value of `correct` per score.

    Example:
        >>> errors = confide.difficulty.error_by_difficulty([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [1, 1, 1, 0, 0, 0])
        >>> [(group.name, group.error) for group in errors.bands]
        [('easy', 0.0), ('medium', 0.5), ('hard', 1.0)]
    """
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    right = np.asarray(correct, dtype=bool)
    if right.shape != values.shape or not len(values):
        raise InputError(f"correct must be {len(values)} values, one per score, got shape {right.shape}")
    check_range(bands, "bands", 1, len(values))
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, bands)
    rows = tuple(_group(name, values[p], ~right[p]) for name, p in zip(_group_names(bands), parts, strict=True))
    means, errors = np.array([b.mean for b in rows]), np.array([b.error for b in rows])
    return ErrorByDifficulty(rows, pearson(means, errors) if bands > 1 else float("nan"))


def _group_names(bands: int) -> list[str]:
    return ["easy", "medium", "hard"] if bands == 3 else [f"{i + 1} of {bands}" for i in range(bands)]


def _group(name: str, values: Floats, wrong: NDArray[np.bool_]) -> DifficultyGroup:
    n, errors = len(values), int(wrong.sum())
    share = errors / n
    low, high = wilson_interval(share, n, Z)
    return DifficultyGroup(name, float(values.min()), float(values.max()), float(values.mean()), n, share, low, high)


GROUPED = "groups"
"""Method of scores whose values are groups, as `confide harden --groups` writes them."""


def groups(scores: Any, *, threshold: float | None = None, groups: int = 2) -> NDArray[np.int64]:
    """Group of every sample for GroupDRO: below / from a threshold on (the paper's 5 bits), or equal parts.

    Args:
        scores: `Scores`, or one value per sample.
        threshold: two groups, scores below it and from it on; None for equal parts.
        groups: number of equal parts from easy (0) to hard.

    Returns:
        The number of its group for every sample.

    Example:
        >>> confide.difficulty.groups([0.1, 7.0, 3.0, 9.0]).tolist()
        [0, 1, 0, 1]
        >>> confide.difficulty.groups([0.1, 7.0, 3.0, 9.0], threshold=5).tolist()
        [0, 1, 0, 1]
    """
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    if threshold is not None:
        return (values >= threshold).astype(np.int64)
    check_range(groups, "groups", 2, len(values))
    result = np.empty(len(values), dtype=np.int64)
    for number, part in enumerate(np.array_split(np.argsort(values, kind="stable"), groups)):
        result[part] = number
    return result
