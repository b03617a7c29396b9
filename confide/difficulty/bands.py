"""Errors by difficulty: equal parts from easy to hard with intervals, their correlation, and groups for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from confide.core.door import InputError, check_range
from confide.core.records import Scores
from confide.difficulty.agreement import pearson

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
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

    bands: tuple[Band, ...]
    pearson: float


def error_by_difficulty(scores: Any, correct: Any, *, bands: int = 3) -> ErrorByDifficulty:
    """Error rate in `bands` equal parts of the samples from easy to hard; equal scores may fall on both sides of a cut.

    Args:
        correct: one truth value per sample, in the order of the scores.
    """
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    right = np.asarray(correct, dtype=bool)
    if right.shape != values.shape or not len(values):
        raise InputError(f"correct must be {len(values)} values, one per score, got shape {right.shape}")
    check_range(bands, "bands", 1, len(values))
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, bands)
    rows = tuple(_band(name, values[p], ~right[p]) for name, p in zip(_names(bands), parts, strict=True))
    means, errors = np.array([b.mean for b in rows]), np.array([b.error for b in rows])
    return ErrorByDifficulty(rows, pearson(means, errors) if bands > 1 else float("nan"))


def _names(bands: int) -> list[str]:
    return ["easy", "medium", "hard"] if bands == 3 else [f"{i + 1} of {bands}" for i in range(bands)]


def _band(name: str, values: Float64, wrong: NDArray[np.bool_]) -> Band:
    n, errors = len(values), int(wrong.sum())
    z = float(stats.norm.ppf(0.975))
    share = errors / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Band(name, float(values.min()), float(values.max()), float(values.mean()), n, share, low, high)


def groups(scores: Any, *, threshold: float | None = None, groups: int = 2) -> NDArray[np.int64]:
    """Group of every sample for GroupDRO: below / from a threshold on (the paper's 5 bits), or equal parts.

    Args:
        threshold: two groups, scores below it and from it on; None for equal parts.
        groups: number of equal parts from easy (0) to hard.
    """
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    if threshold is not None:
        return (values >= threshold).astype(np.int64)
    check_range(groups, "groups", 2, len(values))
    result = np.empty(len(values), dtype=np.int64)
    for number, part in enumerate(np.array_split(np.argsort(values, kind="stable"), groups)):
        result[part] = number
    return result
