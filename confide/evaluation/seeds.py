"""Several runs of a way of training on the same test samples: their mean and spread, and which of two ways is better.

Two things are drawn: the runs (seeds) and the test samples, which all runs share. Runs that differ a lot on few samples
tell little about either. With D_s the difference of pair s, its mean has the variance

    var(D_s) / S  +  what the samples that all pairs share would move the mean,

where the second term is the variance of the mean's influence values, less the part of each pair's own sample noise that
the first term already holds. The interval of a single way (`over_seeds`) adds the squared half-lengths of both sources
and takes nothing off, so it is rather too wide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
from confide.results import LEVEL, SEED_BAND, Curve, Evaluation, Measurement, MetricInfo, join
from confide.types import Floats


@dataclass(frozen=True)
class GroupComparison:
    """A test of one metric between two groups of runs on the same samples; difference is the mean of b minus that of a.

    `sd_a` and `sd_b` are over the runs; `sd_seeds` and `sd_samples` are what runs and samples add to the uncertainty of
    the difference. `chance_a` and `chance_b` are what perfectly calibrated runs would show of a calibration error, on
    average; None of other metrics.
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
    chance_a: float | None = None
    chance_b: float | None = None


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
    difference = float(of_b.mean() - of_a.mean())
    means = (float(of_a.mean()), float(of_a.std(ddof=1)), float(of_b.mean()), float(of_b.std(ddof=1)))
    if len(a) == len(b):
        of_seeds = [float((of_b - of_a).var(ddof=1)) / len(a)]
    else:
        of_seeds = [float(values.var(ddof=1)) / len(values) for values in (of_a, of_b)]
    seed_deviation, levels = math.sqrt(sum(of_seeds)), (_mean_chance(a), _mean_chance(b))
    if any(estimate.influence is None and estimate.draws is None for estimate in (*a, *b)):
        # A value is missing, or no interval of it would hold.
        nothing = math.nan
        return GroupComparison(
            metric, *means, difference, nothing, nothing, seed_deviation, nothing, nothing, nothing, None, *levels
        )
    moves_a, moves_b = (np.stack([_moves(estimate) for estimate in side]) for side in (a, b))
    by_influence = all(estimate.influence is not None for estimate in (*a, *b))

    def variance(moves: Floats) -> float:
        return spread_of(Influence(moves), design).variance if by_influence else float(np.nanvar(moves))

    sides = [moves_b - moves_a] if len(a) == len(b) else [moves_a, moves_b]
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
    low, high = mean_interval(difference, spread)
    p_value = student_tail(difference, spread)
    sample_deviation = math.sqrt(of_samples)
    return GroupComparison(
        metric, *means, difference, low, high, seed_deviation, sample_deviation, p_value, p_value, None, *levels
    )


def _mean_chance(side: Sequence[Estimate]) -> float | None:
    known = [estimate.chance for estimate in side if estimate.chance is not None]
    return sum(known) / len(known) if known else None


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


# Several runs of one way of training, as one evaluation.

PLACES = {"risk_coverage": "coverage", "reliability_smooth": "confidence", "training": "epoch", "gammas": "epoch"}
"""Kinds of curves that may have other rows for another seed, and the column by which rows belong together."""
SPREAD = {"risk_coverage": ("risk",), "reliability_smooth": ("accuracy",)}
"""Columns that keep the lowest and the highest of the seeds; of a training, all do."""


def over_seeds(evaluations: Sequence[Evaluation], model: str) -> Evaluation:
    """Several runs of one way of training on the same samples as one evaluation: means, and how far the seeds differ.

    Args:
        evaluations: of the runs, all with the same metrics; two or more.
        model: the name of them all.

    Returns:
        Measurements with the mean as `value`, `sd` over the runs and a 95 % interval of both sources, the runs' own
        intervals and Student's over the runs; a calibration test counts where every run fails it. Curves are means,
        with the lowest and the highest run beside them. Operating points stay those of each run.

    Raises:
        InputError: fewer than two runs.

    Example:
        >>> import torch
        >>> labels = torch.arange(200) % 2
        >>> def run(seed):
        ...     noise = torch.randn((200, 2), generator=torch.Generator().manual_seed(seed))
        ...     return confide.Predictions(2.0 * torch.nn.functional.one_hot(labels, 2) + noise, labels)
        >>> runs = [confide.evaluate(run(seed), "accuracy") for seed in range(3)]
        >>> accuracy = confide.evaluation.over_seeds(runs, "small").find("accuracy")
        >>> accuracy.value == sum(run.value("accuracy") for run in runs) / 3, accuracy.sd > 0
        (True, True)
    """
    if len(evaluations) < 2:
        raise InputError(f"over_seeds needs two runs or more, got {len(evaluations)}; one run is an evaluation already")
    first = evaluations[0]
    rows = _together([e.measurements for e in evaluations], ("metric", "split", "stage", "group", "score"))
    curves = _together([e.curves for e in evaluations], ("kind", "stage", "split", "group", "score"))
    joined = join(evaluations)
    return replace(
        joined,
        measurements=tuple(replace(_mean_measurement(runs, first.info(runs[0].metric)), model=model) for runs in rows),
        curves=tuple(replace(curve, model=model) for runs in curves if (curve := _mean_curve(runs)) is not None),
        about=replace(joined.about, seeds={model: len(evaluations)}),
    )


Row = TypeVar("Row", Measurement, Curve)


def _together(runs: Sequence[Sequence[Row]], fields: Sequence[str]) -> list[list[Row]]:
    """Rows that differ in nothing but their run, where every run has one; those of the same names by their order."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for rows in runs:
        places: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            whose: tuple[object, ...] = tuple(getattr(row, name) for name in fields)
            groups.setdefault((*whose, places[whose]), []).append(row)
            places[whose] += 1
    return [rows for rows in groups.values() if len(rows) == len(runs)]


def _mean_measurement(runs: Sequence[Measurement], info: MetricInfo) -> Measurement:
    values = np.array([run.value for run in runs])
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    of_seeds = student_quantile(len(runs) - 1) * sd / math.sqrt(len(runs))
    ends = np.array([(run.value - run.low, run.high - run.value) for run in runs])
    below, above = np.sqrt((ends**2).mean(axis=0) + of_seeds**2)
    low, high = mean - float(below), mean + float(above)
    if info.kind == "calibration" or info.unit == "%":
        low = max(low, 0.0)
    if info.unit == "%":
        high = min(high, 1.0)

    def mean_of(name: str) -> float | None:
        levels = [getattr(run, name) for run in runs]
        return None if None in levels else float(np.mean(levels))

    tests = [run.p_value for run in runs]
    return replace(
        runs[0],
        value=mean,
        sd=sd,
        bounds=(low, high),
        interval=None,
        chance=mean_of("chance"),
        chance_high=mean_of("chance_high"),
        p_value=None if None in tests else max(p for p in tests if p is not None),
    )


def _mean_curve(runs: Sequence[Curve]) -> Curve | None:
    """The mean curve, with the lowest and the highest run where that is drawn; None where rows do not meet."""
    kind, names = runs[0].kind, [name for name in runs[0].columns if all(name in run.columns for run in runs)]
    tables = [{name: np.asarray(run.columns[name]) for name in names} for run in runs]
    place = PLACES.get(kind)
    if place is not None:
        at = tables[0][place]
        if kind == "risk_coverage":  # ties end at other shares; between two rows nothing happens
            tables = [
                {name: at if name == place else np.interp(at, table[place], table[name]) for name in names}
                for table in tables
            ]
        else:
            shared = [k for k in at.tolist() if all(k in table[place] for table in tables)]
            tables = [{name: table[name][np.isin(table[place], shared)] for name in names} for table in tables]
    if len({len(table[names[0]]) for table in tables}) > 1:
        return None
    stacked = {name: np.stack([table[name] for table in tables]) for name in names}
    columns = {name: _mean_rows(values, stacked, kind, name) for name, values in stacked.items()}
    spread = [name for name in names if name != place] if kind == "training" else SPREAD.get(kind, ())
    for name in spread:
        for ending, values in zip(SEED_BAND, (stacked[name].min(axis=0), stacked[name].max(axis=0)), strict=True):
            columns[name + ending] = values
    return Curve.of(kind, columns, **{k: getattr(runs[0], k) for k in ("stage", "split", "group", "score")})


def _mean_rows(values: Floats, stacked: Mapping[str, Floats], kind: str, name: str) -> Floats:
    """The mean over the runs; what is a mean over the samples of a bin counts by how many these are."""
    of_bins = kind in ("reliability_width", "reliability_mass") and name in ("confidence", "accuracy")
    weights = stacked["count"] if of_bins else np.ones_like(values)
    weights = np.where(np.isfinite(values), weights, 0.0)
    total = weights.sum(axis=0)
    sums = (weights * np.where(weights > 0, values, 0.0)).sum(axis=0)
    return np.asarray(np.where(total > 0, sums / np.maximum(total, 1e-300), np.nan))
