"""Uncertainty: bootstrap intervals by weights on samples sorted once, and the test of perfect calibration."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from confide.metrics.view import MetricSamples, View
from confide.numerics.binning import BinSums
from confide.predictions import Predictions
from confide.random import generator
from confide.registry import Method
from confide.results import LEVEL, TAILS, Z
from confide.types import Floats

if TYPE_CHECKING:
    from confide.metrics.base import MetricSpec


def bernoulli_sums(mean: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """Binomial draws with the mean and variance of sums of Bernoulli draws: sum p and sum p (1 - p)."""
    expected = np.maximum(mean, 0.0)
    chance = np.clip(1 - variance / np.maximum(expected, 1e-300), 1e-9, 1.0)
    trials = np.maximum(np.ceil(expected), np.round(expected / chance)).clip(1)
    return rng.binomial(trials.astype(np.int64), np.minimum(expected / trials, 1.0)).astype(np.float64)


RESAMPLES = 1000
CHUNK = 25
LARGEST = 1_000_000
SUBSAMPLE = 250_000
EXACT_DRAWS = 200_000
"""Above so many samples the calibration test draws the errors of a bin at once, not sample by sample."""

Statistic = Callable[[View], "float | Floats"]
"""A number, or a vector (such as the means of groups), of weighted samples."""


@dataclass(frozen=True)
class Null:
    """What a perfectly calibrated model with the same confidences would show: mean, 95 % quantile, and the p-value."""

    mean: float
    high: float
    p_value: float
    draws: Floats = field(repr=False)


def threads() -> int:
    """Two threads where the machine has them: the work is numpy calls that release the lock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(2, cores))


def bootstrap(
    base: MetricSamples, statistics: Sequence[Statistic], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Floats, float]:
    """Values of every statistic (rows) on resamples, drawn within strata where there are any, and their factor.

    The factor is 1 up to a million samples. Beyond, resamples are drawn from 250,000 random rows and their spread
    about the mean is shrunk by sqrt(250,000 / n).
    """
    if base.n > LARGEST:
        rng = generator(seed, "bootstrap rows", base.n)
        rows = np.sort(rng.choice(base.n, SUBSAMPLE, replace=False))
        strata = None if base.strata is None else base.strata[rows]
        small = MetricSamples(base.predictions.take(rows), resampled=True, rows=rows, strata=strata)
        return _resample(small, statistics, resamples, seed), math.sqrt(SUBSAMPLE / base.n)
    ready = base if base.resampled else MetricSamples(base.predictions, resampled=True, strata=base.strata)
    return _resample(ready, statistics, resamples, seed), 1.0


class Resamples:
    """How often each sample is drawn: independently, or within strata whose sizes were fixed by design."""

    def __init__(self, n: int, strata: NDArray[np.intp] | None = None) -> None:
        groups = np.zeros(n, dtype=np.intp) if strata is None else strata
        counts = np.bincount(groups)
        self.n, self.order = n, np.argsort(groups, kind="stable")
        self.start = np.repeat(np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        self.size = np.repeat(counts, counts)

    def draw(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """The count of every sample in one resample."""
        drawn = self.order[self.start + (rng.random(self.n) * self.size).astype(np.intp)]
        return np.bincount(drawn, minlength=self.n)

    def several(self, resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Counts of several resamples, one a row."""
        return np.stack([self.draw(rng) for _ in range(resamples)]).astype(np.float32)


def _resample(base: MetricSamples, statistics: Sequence[Statistic], resamples: int, seed: int) -> Floats:
    source = Resamples(base.n, base.strata)
    # Sorts and vectors are made once, before the threads share them.
    rows = sum(np.size(statistic(View(base))) for statistic in statistics)
    out = np.empty((rows, resamples))

    def chunk(first: int) -> None:
        rng = generator(seed, "bootstrap", first)
        for b in range(first, min(first + CHUNK, resamples)):
            view = View(base, source.draw(rng).astype(np.float64))
            out[:, b] = np.concatenate([np.atleast_1d(statistic(view)) for statistic in statistics])

    run_chunks(chunk, resamples)
    return out


def run_chunks(work: Callable[[int], None], total: int) -> None:
    """Chunks of resamples on the threads; each chunk has its own stream, so the result does not depend on them."""
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(work, range(0, total, CHUNK)))


def percentile_interval(value: float, draws: Floats, factor: float = 1.0) -> tuple[float, float]:
    """2.5 % and 97.5 % quantiles; with a factor below 1 their distance from the mean is shrunk and set about value."""
    known = draws[np.isfinite(draws)]
    if not len(known) or not math.isfinite(value):
        return math.nan, math.nan
    low, high = (float(q) for q in np.quantile(known, TAILS))
    if factor == 1.0:
        return low, high
    centre = float(known.mean())
    return value + (low - centre) * factor, value + (high - centre) * factor


def wilson_interval(rate: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate: what remains where every resample shows the same, all right or all wrong."""
    centre = (rate + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def calibration_interval(value: float, draws: Floats, null: Null, factor: float = 1.0) -> tuple[float, float]:
    """Bias-corrected interval of a calibration error, from bootstrap draws and the null; it holds the value."""
    if not math.isfinite(value):
        return math.nan, math.nan
    if factor != 1.0:
        draws = value + (draws - draws.mean()) * factor
    low, high = np.quantile(without_chance(value, draws, null.mean), TAILS)
    return min(float(low), value), max(float(high), value)


def without_chance(value: float, draws: Floats, chance: float) -> Floats:
    """Draws of a calibration error without what noise adds to it.

    Noise pushes a calibration error up, in squares by about the squared null mean m^2, and pushes its resamples up
    once more. So the squared draws are centred at value^2 - m^2, with floor 0: near 0 the null mean is taken off, for
    a clear miscalibration the correction vanishes.
    """
    squares = draws**2
    return np.asarray(np.sqrt(np.maximum(0.0, squares - squares.mean() + value**2 - chance**2)))


def interval_of(
    method: Method[MetricSpec], predictions: Predictions, options: dict[str, Any], value: float
) -> tuple[float, float]:
    """The 95 % interval of one metric."""
    if method.spec.whole:
        null = whole_null(method, predictions, options, value)
        return whole_interval(method, MetricSamples(predictions), options, value, null)
    base = MetricSamples(predictions)
    draws, factor = bootstrap(base, [lambda view: method.spec.value(view, **options)])
    null = nulls(base, [(method, options)])[0] if method.spec.info.kind == "calibration" else None
    return interval_from(method, value, len(predictions), draws[0], null, factor)


def interval_from(
    method: Method[MetricSpec], value: float, n: int, draws: Floats, null: Null | None, factor: float
) -> tuple[float, float]:
    """The interval that fits the kind of metric, from its bootstrap draws."""
    if null is not None:
        unbiased = Null(0.0, null.high, null.p_value, null.draws) if method.spec.debiased else null
        return calibration_interval(value, draws, unbiased, factor)
    if method.spec.rate and value in (0.0, 1.0):
        return wilson_interval(value, n)
    return percentile_interval(value, draws, factor)


def whole_null(
    method: Method[MetricSpec], predictions: Predictions, options: dict[str, Any], value: float, seed: int = 0
) -> Null | None:
    """The null of a metric that needs all probabilities, where it has one for these options."""
    facts_suffice = options.get("of") == "top"
    if not predictions.outputs.all_classes and not facts_suffice:
        return None
    return null_from(value, method.spec.null(predictions, options, seed))


def whole_interval(
    method: Method[MetricSpec],
    base: MetricSamples,
    options: dict[str, Any],
    value: float,
    null: Null | None,
    seed: int = 0,
) -> tuple[float, float]:
    """The interval of a metric that needs all probabilities; NaN where they are not at hand."""
    if null is None:
        return math.nan, math.nan
    draws, factor = method.spec.resample(base, options, seed)
    # A mean of powers without a root is corrected as its root, which is an error like the others.
    root = 1 / options.get("p", 1)
    chance = Null(float((null.draws**root).mean()), null.high, null.p_value, null.draws)
    low, high = calibration_interval(value**root, draws**root, chance, factor)
    return low ** (1 / root), high ** (1 / root)


def nulls(
    base: MetricSamples,
    requests: Sequence[tuple[Method[MetricSpec], dict[str, Any]]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Null]:
    """Consistency resampling: the confidences and bins stay, correctness is drawn as Bernoulli(confidence)."""
    values = [float(method.spec.value(View(base), **options)) for method, options in requests]
    if base.n > EXACT_DRAWS:
        draws_of = [large_null(base, method, options, resamples, seed) for method, options in requests]
        return [null_from(value, draws) for value, draws in zip(values, draws_of, strict=True)]
    sure = base.ordered("msp").values.astype(np.float64)
    base.running  # noqa: B018 - made once, before the threads share it
    draws = np.empty((len(requests), resamples))

    def chunk(first: int) -> None:
        rng = generator(seed, "null", first)
        for b in range(first, min(first + CHUNK, resamples)):
            view = View(base, wrong=rng.random(base.n) >= sure)
            draws[:, b] = [method.spec.value(view, **options) for method, options in requests]

    run_chunks(chunk, resamples)
    return [null_from(value, row) for value, row in zip(values, draws, strict=True)]


class BinnedView:
    """Bins of confidence whose errors are drawn at once."""

    def __init__(self, base: MetricSamples, rng: np.random.Generator) -> None:
        self.base, self.rng = base, rng

    def bins(self, binning: str = "width", bins: int = 15, closed: str = "right") -> BinSums:
        """Sums per bin with errors drawn from the confidences."""
        at = self.base.positions(binning, bins, closed)
        total = np.diff(at)[::-1].astype(np.float64)
        sums = (self.base.running, self.base.running_variance)
        confidence, variance = (np.diff(np.where(at > 0, v[at - 1], 0.0))[::-1] for v in sums)
        errors = bernoulli_sums(total - confidence, variance, self.rng)
        return BinSums(total, confidence, total - np.minimum(errors, total))


def large_null(
    base: MetricSamples, method: Method[MetricSpec], options: dict[str, Any], resamples: int, seed: int
) -> Floats:
    """Null draws beyond 200,000 samples: per bin where the metric is binned, else from some samples, shrunk.

    The noise of a calibration error falls with the square root of the number of samples.
    """
    rng = generator(seed, "large null")
    if method.spec.binned and options.get("edges", "rank") == "rank":
        view = BinnedView(base, rng)
        return np.array([method.spec.value(view, **options) for _ in range(resamples)])
    rows = np.sort(rng.choice(base.n, EXACT_DRAWS, replace=False))
    part = nulls(MetricSamples(base.predictions.take(rows)), [(method, options)], resamples=resamples, seed=seed)[0]
    return part.draws * math.sqrt(EXACT_DRAWS / base.n)


def null_from(value: float, draws: Floats) -> Null:
    """Summary of null draws: p = (1 + #{draws >= value}) / (B + 1), with ties by rounding counted as equal."""
    reached = int((draws >= value - 1e-12).sum())
    return Null(float(draws.mean()), float(np.quantile(draws, 1 - LEVEL)), (1 + reached) / (len(draws) + 1), draws)
