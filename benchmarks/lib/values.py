"""Numbers of a table: values by seed, their mean, spread and interval, and paired tests over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from confide.evaluation import holm

ROUNDING = 1e-12
"""What is smaller, relative to the numbers it is the difference of, is none."""


@dataclass(frozen=True)
class Value:
    """One number: of a method on a dataset, by seed; `x` is its place on the axis of a figure."""

    dataset: str
    method: str
    quantity: str
    seed: int
    value: float
    x: float | None = None


@dataclass(frozen=True)
class Summary:
    """One number of a table: mean over seeds, deviation, 95 % interval, and the paired test against a baseline."""

    dataset: str
    method: str
    quantity: str
    x: float | None
    mean: float
    deviation: float
    low: float
    high: float
    seeds: int
    baseline: str = ""
    difference: float = math.nan
    p_value: float = math.nan
    p_holm: float = math.nan

    @property
    def place(self) -> tuple[str, str, str, float | None]:
        """What identifies it within a table."""
        return self.dataset, self.method, self.quantity, self.x


@dataclass(frozen=True)
class Paired:
    """The mean difference of two methods over the seeds they share, and the p-value of a paired t-test."""

    difference: float
    p_value: float
    seeds: int


def paired(first: dict[int, float], second: dict[int, float]) -> Paired:
    """First less second, seed by seed; one seed has no test."""
    shared = sorted(set(first) & set(second))
    gaps = np.array([first[seed] - second[seed] for seed in shared])
    gaps = gaps[np.isfinite(gaps)]
    if not len(gaps):
        return Paired(math.nan, math.nan, 0)
    # Differences that cancel, or are all the same, do so but for rounding: it must not lend them a sign or a test.
    noise = ROUNDING * max(abs(side[seed]) for side in (first, second) for seed in shared if math.isfinite(side[seed]))
    mean = float(gaps.mean())
    mean = 0.0 if abs(mean) <= noise else mean
    if len(gaps) < 2:
        return Paired(mean, math.nan, len(gaps))
    spread = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if spread <= noise:
        # The same difference at every seed: a t-test has nothing to measure it by.
        return Paired(mean, 1.0 if mean == 0 else math.nan, len(gaps))
    return Paired(mean, float(2 * stats.t.sf(abs(mean) / spread, len(gaps) - 1)), len(gaps))


def by_place(values: Iterable[Value]) -> dict[tuple[str, str, str, float | None], dict[int, float]]:
    """Values by seed, by their place in the table."""
    places: dict[tuple[str, str, str, float | None], dict[int, float]] = {}
    for value in values:
        places.setdefault((value.dataset, value.method, value.quantity, value.x), {})[value.seed] = value.value
    return places


def summaries(values: Sequence[Value], baseline: str = "") -> list[Summary]:
    """Every number of a table; with a baseline also its paired test, Holm-corrected over the methods of its column."""
    places = by_place(values)
    rows = []
    for (dataset, method, quantity, x), by_seed in places.items():
        numbers = np.array([v for v in by_seed.values() if math.isfinite(v)])
        mean, deviation, low, high = spread_of(numbers)
        other = places.get((dataset, baseline, quantity, x), {}) if method != baseline else {}
        test = paired(by_seed, other)
        rows.append(
            Summary(
                dataset,
                method,
                quantity,
                x,
                mean,
                deviation,
                low,
                high,
                len(numbers),
                baseline if other else "",
                test.difference,
                test.p_value,
            )
        )
    columns: dict[tuple[str, str, float | None], list[Summary]] = {}
    for row in rows:
        columns.setdefault((row.dataset, row.quantity, row.x), []).append(row)
    corrected: dict[int, float] = {}
    for several in columns.values():
        corrected |= dict(zip(map(id, several), holm([row.p_value for row in several]), strict=True))
    return [replace(row, p_holm=corrected[id(row)]) for row in rows]


def spread_of(numbers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float, float, float]:
    """(mean, deviation, low, high) with Student's 95 % interval; of one number only the mean is known."""
    if not len(numbers):
        return math.nan, math.nan, math.nan, math.nan
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return mean, math.nan, math.nan, math.nan
    deviation = float(numbers.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(numbers) - 1)) * deviation / math.sqrt(len(numbers))
    return mean, deviation, mean - half, mean + half
