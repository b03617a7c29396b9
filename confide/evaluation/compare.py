"""Paired tests between predictions on the same samples: what resamples show of a difference."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from confide.checks import InputError, known_keywords
from confide.evaluation.evaluate import MetricRequest, kind_tables, metric_words, why_unavailable
from confide.metrics.base import MetricSpec, metric_name, parse_metric
from confide.metrics.influence import Influence, Spread, mean_interval, spread_of
from confide.metrics.intervals import chance_of, jumps, without_noise
from confide.metrics.resampling import RESAMPLES, bootstrap_draws
from confide.metrics.view import Design, MetricSamples, View, metric_samples
from confide.predictions import Predictions, label_doubt, need_predictions
from confide.registry import Method
from confide.results import LEVEL, TAILS, ComparedRow, Comparison
from confide.types import Floats

EXACT_FREEDOM = 30
"""Degrees of freedom up to which the tail of Student's t is integrated: two or three runs leave one or two."""
FEW = 10
"""Fewer draws than this do not tell a share."""


@known_keywords
def compare(
    a: Predictions | Mapping[str, Predictions],
    b: Predictions | None = None,
    *more: Predictions,
    names: Sequence[str] | None = None,
    metrics: str | Sequence[str] = "core",
    score: str = "msp",
    pairs: Sequence[tuple[str, str]] | None = None,
    weights: Any = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Paired tests of every metric between every two predictions on the same samples, Holm-corrected over all.

    Interval and p-value of the difference (b minus a) come from how each sample moves it. Of calibration errors the
    part owed to chance is taken off both sides. Samples of one `unit` of the first predictions count as one.

    Args:
        a: predictions, or all of them by name ("model/stage").
        b: predictions of the same samples, in any order: they are joined by id.
        more: further predictions of the same samples.
        names: names of `a`, `b` and the rest; by default a, b, c, ...
        metrics: "core", "all", or words.
        score: what ranks the samples, a word.
        pairs: names to compare; every two when left out.
        weights: how much each sample of the first counts, n numbers or the name of its column, where the predictions do
            not carry weights.
        resamples: draws from the law of a calibration error, and of metrics that have no theory.
        seed: of these draws.

    Returns:
        One `Comparison` per metric and pair: difference, interval, p, Holm-corrected p, and which side is better.

    Raises:
        InputError: the ids or labels differ, or a metric that was named cannot be compared.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> sharper = confide.Predictions([[4.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 6.0]], [0, 1, 1, 1])
        >>> for c in confide.compare(p, sharper, metrics=["accuracy", "nll"], resamples=50):
        ...     print(f"{c.metric}: {c.b} minus {c.a} is {c.difference:+.2f}, better: {c.winner}")
        accuracy: b minus a is +0.00, better: None
        nll: b minus a is +0.12, better: None
    """
    records = predictions_by_name(a, (b, *more), names)
    first = next(iter(records.values())).weighted(weights)
    if doubt := label_doubt(first):
        warnings.warn(doubt, stacklevel=3)
    if weights is not None:
        records = {name: record.replace(weights=None) for name, record in records.items()}
    aligned = {name: same_samples(first, record, name) for name, record in records.items()}
    requests = comparable_requests(metrics, list(aligned.values()), score)
    samples = {name: paired_samples(p, first) for name, p in aligned.items()}
    design = metric_samples(first).design
    estimates = {name: [estimate(base, r, resamples, seed) for r in requests] for name, base in samples.items()}
    rows = []
    for left, right in combinations(aligned, 2) if pairs is None else pairs:
        sides = ComparedRow.of(left), ComparedRow.of(right)
        for request, of_a, of_b in zip(requests, estimates[left], estimates[right], strict=True):
            low, high, p_value = paired_test(of_a, of_b, design, resamples, seed)
            metric = metric_name(request.method, request.options)
            rows.append(Comparison(metric, *sides, of_b.value - of_a.value, low, high, p_value, p_value))
    return tuple(holm_corrected(rows))


def paired_samples(predictions: Predictions, first: Predictions) -> MetricSamples:
    """The samples of one side, drawn and weighted as those of the first, in whose order they stand."""
    base = metric_samples(first)
    record = predictions if base.rows is None else predictions.take(base.rows)
    return MetricSamples(record, resampled=True, rows=base.rows, design=base.design)


ROUNDING = 1e-12
"""A smaller part of two values is what rounding leaves of equal ones, which no test may take for a difference."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value, the same without what noise adds to it (None where it is no calibration error), how samples move it,
    and the error that chance alone would show.

    A metric without influence values has `draws` of resamples instead, the same for every record. With neither there is
    no interval and no test.
    """

    value: float
    without_noise: float | None
    influence: Influence | None = None
    draws: Floats | None = None
    chance: float | None = None


def estimate(base: MetricSamples, request: MetricRequest, resamples: int, seed: int) -> Estimate:
    """What a paired test needs to know of one side."""
    method, options, view = request.method, request.options, View(base)
    value = request(view)
    chance = chance_of(method, view, options, value, draws=resamples, seed=seed)
    level = None if chance is None else chance.mean
    if not math.isfinite(value) or jumps(method, options):
        return Estimate(value, None)
    if method.spec.influence is None:
        centre = None if chance is None else without_noise(method, None, value, chance)
        return Estimate(value, centre, draws=bootstrap_draws(method, base, options, seed), chance=level)
    influence = method.spec.influence(view, **options).of_samples()
    centre = None if chance is None else without_noise(method, influence, value, chance)
    return Estimate(value, centre, influence, chance=level)


def paired_test(a: Estimate, b: Estimate, design: Design, resamples: int, seed: int) -> tuple[float, float, float]:
    """Interval and p-value of b minus a; the difference lies inside.

    By the influence values of b less those of a. Of calibration errors what chance adds is taken off both sides first.
    """
    difference = b.value - a.value
    if not math.isfinite(difference) or (a.influence is None and a.draws is None):
        return math.nan, math.nan, math.nan
    if abs(difference) <= ROUNDING * max(abs(a.value), abs(b.value)):
        difference = 0.0
    if a.influence is None or b.influence is None:
        assert a.draws is not None
        assert b.draws is not None
        first, second = (centred(draws - np.nanmean(draws), side) for draws, side in ((a.draws, a), (b.draws, b)))
        return drawn_test(difference, second - first)
    of_a, of_b = a.influence, b.influence
    errors = None if of_a.errors is None or of_b.errors is None else of_a.errors | of_b.errors
    spread = spread_of(Influence(of_b.psi - of_a.psi, errors=errors, noise=of_a.noise + of_b.noise), design)
    if a.without_noise is None or b.without_noise is None:
        low, high = mean_interval(difference, spread)
        return low, high, student_tail(difference, spread)
    own, other = (spread_of(side, design).variance for side in (of_a, of_b))
    shared = (own + other - spread.variance) / 2
    if shared < 0:  # soft signs understate how far errors of opposite directions move apart: as far as they can
        shared = -math.sqrt(own * other)
    draws = correlated_normals(own, other, shared, resamples, seed)
    low, high, p_value = drawn_test(difference, centred(draws[1], b) - centred(draws[0], a))
    # A difference must be clear as it is printed too, with what chance adds to both sides.
    plain = student_tail(difference, replace(spread, variance=own + other - 2 * shared))
    return low, high, max(p_value, plain)


def centred(noise: Floats, side: Estimate) -> Floats:
    """Draws of what a metric would be of all samples there are: of a calibration error without what chance adds."""
    if side.without_noise is None:
        return side.value + noise
    # In squares, as in the interval of one error.
    drawn = np.maximum(side.value + noise, 0.0)
    return np.asarray(np.sqrt(np.maximum(0.0, drawn**2 - side.value**2 + side.without_noise**2)))


def correlated_normals(first: float, second: float, shared: float, draws: int, seed: int) -> Floats:
    """Normal draws of two estimates with these variances and covariance, `2 draws`."""
    own = np.random.default_rng(seed).standard_normal((2, draws))
    slope = shared / first if first > 0 else 0.0
    rest = math.sqrt(max(second - slope * shared, 0.0))
    return np.stack([own[0] * math.sqrt(first), slope * math.sqrt(first) * own[0] + rest * own[1]])


def student_tail(difference: float, spread: Spread) -> float:
    """Two-sided p-value of Student's t."""
    if spread.variance <= 0 or difference == 0:
        return 1.0
    square, freedom = difference**2 / spread.variance, spread.freedom
    if freedom > EXACT_FREEDOM:  # the normal tail of its equivalent deviate (Wallace, 1959)
        scale = (8 * freedom + 1) / (8 * freedom + 3)
        return math.erfc(scale * math.sqrt(freedom * math.log1p(square / freedom)) / math.sqrt(2))
    # With t = sqrt(f) / tan(a) the density is sin(a)^(f - 1): a smooth integral from 0 to the angle of this t.
    nodes, weights = np.polynomial.legendre.leggauss(40)
    angle = math.atan2(math.sqrt(freedom), math.sqrt(square))
    integral = angle / 2 * float(weights @ np.sin(angle * (nodes + 1) / 2) ** (freedom - 1))
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    return min(integral / whole, 1.0)


def drawn_test(difference: float, draws: Floats) -> tuple[float, float, float]:
    """Interval and p-value of a difference from draws of it; the difference lies inside.

    p is twice the share of draws on the other side of 0; where these are few, the tail of a normal with the spread of
    all: no p-value could survive Holm's correction over more tests than there are draws per 0.05 otherwise.
    """
    known = draws[np.isfinite(draws)]
    if not len(known):
        return math.nan, math.nan, math.nan
    low, high = (float(q) for q in np.quantile(known, TAILS))
    other = known <= 1e-12 if difference > 0 else known >= -1e-12
    count = int(other.sum())
    p_value = min(1.0, 2 * (1 + count) / (len(known) + 1))
    if difference and count < FEW and float(known.std()) > 0:
        p_value = min(p_value, math.erfc(abs(float(known.mean())) / float(known.std()) / math.sqrt(2)))
    return min(low, difference), max(high, difference), p_value if difference else 1.0


def predictions_by_name(
    a: Predictions | Mapping[str, Predictions], rest: Sequence[Predictions | None], names: Sequence[str] | None
) -> dict[str, Predictions]:
    """All predictions by name."""
    if isinstance(a, Mapping):
        records = dict(a)
    else:
        several = [a, *(r for r in rest if r is not None)]
        words = list(names) if names is not None else [chr(ord("a") + k) for k in range(len(several))]
        if len(words) != len(several) or len(set(words)) != len(words):
            raise InputError(f"names must be {len(several)} different words, got {words}")
        records = dict(zip(words, several, strict=True))
    if len(records) < 2:
        raise InputError("compare needs at least two predictions, got one; pass a and b")
    for record in records.values():
        need_predictions(record, "compare")
    return records


def same_samples(first: Predictions, other: Predictions, name: str) -> Predictions:
    """The other's rows in the order of the first, with its weights; refuses other ids, labels or weights."""
    metric_samples(other)
    if len(first) != len(other) or set(first.ids.tolist()) != set(other.ids.tolist()):
        raise InputError(
            f"compare needs the same samples, but the ids of '{name}' differ from the first ({len(other)} against "
            f"{len(first)} samples); predict the same split with both"
        )
    aligned = other if np.array_equal(first.ids, other.ids) else other.align(first.ids)
    if aligned.weights is None:
        aligned = aligned if first.weights is None else aligned.replace(weights=first.weights)
    elif first.weights is None or not np.allclose(aligned.weights, first.weights, rtol=1e-9, atol=0.0):
        raise InputError(
            f"compare needs the same weights, but those of '{name}' differ from the first; give weights= for all"
        )
    if not (aligned.has_labels and first.has_labels):
        return aligned
    unequal = (aligned.labels.cpu() != first.labels.cpu()).nonzero()
    if len(unequal):
        place = int(unequal[0])
        raise InputError(
            f"compare needs the same labels, but '{name}' has {int(aligned.labels[place])} where the first has "
            f"{int(first.labels[place])} at id '{first.ids[place]}'; check which split each comes from"
        )
    return aligned


def comparable_requests(
    metrics: str | Sequence[str], records: Sequence[Predictions], score: str
) -> list[MetricRequest]:
    """Metrics that have a direction and that all predictions allow."""
    chosen = []
    tables = [table for record in records for table in kind_tables(record)]
    for word in dict.fromkeys(metric_words(metrics, tables)):
        method, options = parse_metric(word)
        if method.spec.info.better == "neither" or any(cannot_be_paired(method, record) for record in records):
            if not isinstance(metrics, str):
                raise InputError(f"metric '{word}' cannot be compared on these predictions")
            continue
        ranked = "score" in method.options
        chosen.append(
            MetricRequest(method, {**options, "score": score} if ranked else options, score if ranked else None)
        )
    return chosen


def cannot_be_paired(method: Method[MetricSpec], predictions: Predictions) -> bool:
    """Whether a metric has no paired test on these predictions."""
    return bool(why_unavailable(method, predictions)) or bool(method.spec.whole and not predictions.outputs.all_classes)


def holm_corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons with p-values corrected over those of the same metric (Holm, 1979), and the side then better."""
    families: dict[str, list[int]] = {}
    for place, c in enumerate(comparisons):
        families.setdefault(c.metric, []).append(place)
    corrected_p = [0.0] * len(comparisons)
    for family in families.values():
        for place, p in zip(family, holm([comparisons[place].p_value for place in family]), strict=True):
            corrected_p[place] = p
    judged = []
    for c, corrected in zip(comparisons, corrected_p, strict=True):
        better = None
        if corrected < LEVEL and c.difference != 0:
            higher = parse_metric(c.metric)[0].spec.info.better == "higher"
            better = "b" if (c.difference > 0) == higher else "a"
        judged.append(replace(c, p_holm=corrected, better=better))
    return judged


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p_(k) becomes the largest of (m - j) p_(j) over the j <= k smallest, at most 1.

    Args:
        p_values: of the tests; those that are NaN stay so and do not count.

    Returns:
        The corrected p-values, in the same order.

    Example:
        >>> confide.evaluation.holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted((k for k, p in enumerate(p_values) if not math.isnan(p)), key=lambda k: p_values[k])
    corrected, largest = [math.nan] * len(p_values), 0.0
    for place, k in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[k]))
        corrected[k] = largest
    return corrected


def mcnemar(only_first: int, only_second: int) -> float | None:
    """Exact McNemar test of two classifiers: the two-sided binomial p-value of k successes in n = b + c fair draws.

    Args:
        only_first: b, the samples that only the first has right.
        only_second: c, those that only the second has right.

    Returns:
        The p-value; None where the two are right on the same samples.

    Example:
        >>> mcnemar(1, 4)
        0.375
    """
    n, k = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return None
    if n > 10_000:  # beyond this the normal approximation with continuity correction is exact to all digits shown
        return math.erfc(max(abs(only_first - only_second) - 1, 0) / math.sqrt(2 * n))
    log_half = n * math.log(0.5)
    tail = sum(
        math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + log_half) for i in range(k + 1)
    )
    return min(1.0, 2 * tail)
