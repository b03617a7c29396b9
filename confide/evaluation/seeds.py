"""Two ways of training, several runs of each, on the same test samples: which is better, and is it more than chance.

Two things are drawn: the runs (seeds) and the test samples, which all runs share. Runs that differ a lot on few samples
tell little about either. With D_s the difference of pair s, its mean has the variance

    var(D_s) / S  +  what the samples that all pairs share would move the mean,

where the second term is the variance of the mean's influence values, less the part of each pair's own sample noise that
the first term already holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from confide.checks import InputError
from confide.evaluation.compare import (
    Estimate,
    comparable_requests,
    estimate,
    holm,
    paired_samples,
    same_samples,
    student_tail,
)
from confide.metrics.base import metric_name
from confide.metrics.influence import Influence, Spread, mean_interval, spread_of, student_quantile
from confide.metrics.resampling import RESAMPLES
from confide.metrics.view import Design
from confide.predictions import Predictions
from confide.results import LEVEL
from confide.types import Floats


@dataclass(frozen=True)
class GroupComparison:
    """A test of one metric between two groups of runs on the same samples; difference is the mean of b minus that of a.

    `sd_a` and `sd_b` are over the runs; `sd_seeds` and `sd_samples` are what runs and samples add to the uncertainty of
    the difference.
    """

    metric: str
    mean_a: float
    sd_a: float
    mean_b: float
    sd_b: float
    difference: float
    low: float
    high: float
    sd_seeds: float
    sd_samples: float
    p_value: float
    p_holm: float
    better: str | None = None  # "a", "b", or None where the test does not say


def compare_groups(
    a: Sequence[Predictions],
    b: Sequence[Predictions],
    *,
    metrics: str | Sequence[str] = "core",
    score: str = "msp",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[GroupComparison, ...]:
    """Tests of every metric between two groups of runs, Holm-corrected; runs are paired in their order.

    Args:
        a: predictions of several runs, such as seeds, on the same samples.
        b: as many of the other way of training, in the same order of seeds; another number is compared unpaired.
        metrics: "core", "all", or words.
        score: what ranks the samples, a word.
        resamples: of metrics that have no influence values.
        seed: of these.

    Returns:
        One `GroupComparison` per metric: means and deviations over runs, difference, interval, p, which is better.

    Raises:
        InputError: fewer than two runs on a side, or other samples.

    Example:
        >>> import torch
        >>> from confide import Predictions
        >>> from confide.evaluation import compare_groups
        >>> labels = torch.arange(200) % 2
        >>> def run(seed, sharpness):
        ...     noise = torch.randn((200, 2), generator=torch.Generator().manual_seed(seed))
        ...     return Predictions(sharpness * torch.nn.functional.one_hot(labels, 2) + noise, labels)
        >>> weak, strong = ([run(seed, sharpness) for seed in range(3)] for sharpness in (1.0, 3.0))
        >>> compare_groups(weak, strong, metrics=["accuracy"])[0].better
        'b'
    """
    if min(len(a), len(b)) < 2:
        raise InputError(
            f"groups must hold at least two runs each, got {len(a)} and {len(b)}; single runs are compared by compare"
        )
    first = a[0]
    sides = [[same_samples(first, record, f"run {k + 1}") for k, record in enumerate(group)] for group in (a, b)]
    requests = comparable_requests(metrics, [record for side in sides for record in side], score)
    samples = [[paired_samples(record, first) for record in side] for side in sides]
    design, rows = samples[0][0].design, []
    for request in requests:
        of_a, of_b = ([estimate(base, request, resamples, seed) for base in side] for side in samples)
        row = _compared(metric_name(request.method, request.options), of_a, of_b, design)
        rows.append((row, request.method.spec.info.better))
    corrected = holm([row.p_value for row, _ in rows])
    return tuple(
        replace(row, p_holm=p, better=_better(row, direction) if p < LEVEL else None)
        for (row, direction), p in zip(rows, corrected, strict=True)
    )


def _better(row: GroupComparison, direction: str) -> str:
    return "b" if (row.difference > 0) == (direction == "higher") else "a"


def _compared(metric: str, a: Sequence[Estimate], b: Sequence[Estimate], design: Design) -> GroupComparison:
    of_a, of_b = (np.array([estimate.value for estimate in side]) for side in (a, b))
    moves_a, moves_b = (np.stack([_moves(estimate) for estimate in side]) for side in (a, b))
    by_influence = all(estimate.influence is not None for estimate in (*a, *b))

    def variance(moves: Floats) -> float:
        return spread_of(Influence(moves), design).variance if by_influence else float(np.nanvar(moves))

    if len(a) == len(b):
        sides = [moves_b - moves_a]
        of_seeds = [float((of_b - of_a).var(ddof=1)) / len(a)]
    else:
        sides = [moves_a, moves_b]
        of_seeds = [float(values.var(ddof=1)) / len(values) for values in (of_a, of_b)]
    of_samples = variance(moves_b.mean(axis=0) - moves_a.mean(axis=0))
    # A run's own sample noise is in the spread over runs already.
    own_noise = sum(
        max(float(np.mean([variance(run) for run in side])) - variance(side.mean(axis=0)), 0.0) / (len(side) - 1)
        for side in sides
    )
    of_samples = max(of_samples - own_noise, 0.0)
    n = moves_a.shape[1]
    freedoms = [len(side) - 1.0 for side in sides]
    spread = _joint_spread([*of_seeds, of_samples], [*freedoms, max(n - 1.0, 1.0)], n)
    difference = float(of_b.mean() - of_a.mean())
    low, high = mean_interval(difference, spread)
    p_value = student_tail(difference, spread)
    deviations = math.sqrt(sum(of_seeds)), math.sqrt(of_samples)
    means = (float(of_a.mean()), float(of_a.std(ddof=1)), float(of_b.mean()), float(of_b.std(ddof=1)))
    return GroupComparison(metric, *means, difference, low, high, *deviations, p_value, p_value)


def _joint_spread(variances: Sequence[float], freedoms: Sequence[float], n: int) -> Spread:
    """The sum of independent variances, with the degrees of freedom at which Student's interval has the half-length
    sqrt(sum of t^2 variance): exact where all but one are 0. Satterthwaite's are too many for two or three runs.
    """
    total = sum(variances)
    if total <= 0:
        return Spread(0.0, 1.0, n)
    squares = sum(student_quantile(f) ** 2 * v for v, f in zip(variances, freedoms, strict=True))
    quantile, low, high = math.sqrt(squares / total), 0.0, math.log(1e9)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_quantile(math.exp(middle)) > quantile else (low, middle)
    return Spread(total, math.exp(low), n)


def _moves(estimate: Estimate) -> Floats:
    """How samples move a run's value: influence values, or draws of resamples that are the same for every run."""
    if estimate.influence is not None:
        return estimate.influence.psi
    assert estimate.draws is not None
    return np.asarray(estimate.draws - np.nanmean(estimate.draws))
