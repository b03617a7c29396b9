"""Resamples as weights on samples sorted once: the reference for intervals by theory, and for what has none."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from confide.metrics.view import Design, MetricSamples, View
from confide.numerics.binomial import matched_binomial, wilson_interval
from confide.random import generator
from confide.registry import Method
from confide.results import LEVEL, TAILS, Z
from confide.types import Floats, Options

if TYPE_CHECKING:
    from confide.metrics.base import MetricSpec


def bernoulli_sums(mean: Floats, variance: Floats, rng: np.random.Generator, draws: int | None = None) -> Floats:
    """Binomial draws with the mean and variance of sums of Bernoulli draws: sum p and sum p (1 - p)."""
    trials, chance = matched_binomial(mean, variance)
    if draws is None:
        return rng.binomial(trials, chance).astype(np.float64)
    # All draws of one sum after another: numpy prepares a distribution anew whenever its numbers change.
    return rng.binomial(trials[:, None], chance[:, None], (len(mean), draws)).astype(np.float64).T


RESAMPLES = 1000
CHUNK = 25
COSTLY_RESAMPLES = 200  # of what is a search itself
FEWEST_DRAWS, MOST_DRAWN = 99, 20_000_000
"""Draws of correctness sample by sample: as many as this many numbers allow, and no fewer than these."""

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
) -> Floats:
    """Values of every statistic (rows) on resamples drawn as the samples were."""
    if not base.resampled:
        base = replace(base, resampled=True, _sorted={}, _vectors={})
    source = Resamples(base.n, base.design)
    # Sorts and vectors are made once, before the threads share them.
    rows = sum(np.size(statistic(View(base))) for statistic in statistics)
    out = np.empty((rows, resamples))

    def chunk(first: int) -> None:
        rng = generator(seed, "bootstrap", first)
        for b in range(first, min(first + CHUNK, resamples)):
            view = View(base, source.draw(rng))
            out[:, b] = np.concatenate([np.atleast_1d(statistic(view)) for statistic in statistics])

    run_chunks(chunk, resamples)
    return out


class Resamples:
    """How often each sample counts in a resample: units are drawn independently, or within strata of fixed size."""

    def __init__(self, n: int, design: Design) -> None:
        self.weights, self.unit = design.weights, None
        strata = np.zeros(n, dtype=np.intp) if design.strata is None else design.strata
        if design.clusters is not None:
            _, first, unit = np.unique(design.clusters, return_index=True, return_inverse=True)
            self.unit, strata = unit.reshape(-1), strata[first]
        counts = np.bincount(strata)
        self.units, self.order = len(strata), np.argsort(strata, kind="stable")
        self.start = np.repeat(np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        self.size = np.repeat(counts, counts)

    def draw(self, rng: np.random.Generator) -> Floats:
        """The weight of every sample in one resample."""
        drawn = self.order[self.start + (rng.random(self.units) * self.size).astype(np.intp)]
        times = np.bincount(drawn, minlength=self.units).astype(np.float64)
        if self.unit is not None:
            times = times[self.unit]
        return times if self.weights is None else times * self.weights

    def several(self, resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Weights of several resamples, one a row."""
        return np.stack([self.draw(rng) for _ in range(resamples)]).astype(np.float32)


def run_chunks(work: Callable[[int], None], total: int) -> None:
    """Chunks of resamples on the threads; each chunk has its own stream, so the result does not depend on them."""
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(work, range(0, total, CHUNK)))


def bootstrap_draws(method: Method[MetricSpec], base: MetricSamples, options: Options, seed: int) -> Floats:
    """A metric on resamples; where it needs all probabilities, on at most some rows, with the spread of all."""
    if method.spec.whole:
        draws, factor = method.spec.resample(base, options, seed)
        return np.asarray(draws.mean() + (draws - draws.mean()) * factor)
    resamples = COSTLY_RESAMPLES if method.spec.costly else RESAMPLES
    statistic = partial(method.spec.value, **options)
    return np.asarray(bootstrap(base, [statistic], resamples=resamples, seed=seed)[0])


def bootstrap_interval(
    method: Method[MetricSpec],
    base: MetricSamples,
    options: Options,
    value: float,
    chance: Null | None,
    seed: int = 0,
) -> tuple[float, float]:
    """The interval that fits the kind of metric, from resamples."""
    draws = bootstrap_draws(method, base, options, seed)
    known = draws[np.isfinite(draws)]
    if not len(known):
        return math.nan, math.nan
    if chance is not None:
        # A mean of powers without a root is corrected as its root, which is an error like the others.
        root = 1 / options.get("p", 1)
        bias = 0.0 if method.spec.debiased else float((chance.draws**root).mean())
        known = without_chance(value**root, known**root, bias) ** (1 / root)
    elif method.spec.rate and value in (0.0, 1.0):
        return wilson_interval(value, base.effective_n, Z)
    low, high = np.quantile(known, TAILS)
    return float(low), float(high)


def without_chance(value: float, draws: Floats, chance: float) -> Floats:
    """Draws of a calibration error without what noise adds to it.

    Noise pushes a calibration error up, in squares by about the squared chance level m^2, and pushes its resamples up
    once more. So the squared draws are centred at value^2 - m^2, with floor 0: near 0 the chance level is taken off,
    for a clear miscalibration the correction vanishes.
    """
    squares = draws**2
    return np.asarray(np.sqrt(np.maximum(0.0, squares - squares.mean() + value**2 - chance**2)))


def null_draws(method: Method[MetricSpec], base: MetricSamples, options: Options, resamples: int, seed: int) -> Floats:
    """A calibration error with correctness drawn as Bernoulli(confidence), the confidences as they are."""
    resamples = min(resamples, max(FEWEST_DRAWS, MOST_DRAWN // base.n))
    sure = base.ordered("msp").values.astype(np.float64)
    base.running  # noqa: B018 - made once, before the threads share it
    draws = np.empty(resamples)

    def chunk(first: int) -> None:
        rng = generator(seed, "null", first)
        for b in range(first, min(first + CHUNK, resamples)):
            draws[b] = method.spec.value(View(base, wrong=rng.random(base.n) >= sure), **options)

    run_chunks(chunk, resamples)
    return draws


def null_from(value: float, draws: Floats) -> Null:
    """Summary of null draws: p = (1 + #{draws >= value}) / (B + 1), with ties by rounding counted as equal."""
    reached = int((draws >= value - 1e-12).sum())
    return Null(float(draws.mean()), float(np.quantile(draws, 1 - LEVEL)), (1 + reached) / (len(draws) + 1), draws)
