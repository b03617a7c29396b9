"""Paired tests between predictions on the same samples: bootstrap for the interval, permutation for the p-value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from confide.checks import InputError
from confide.evaluation.evaluate import MetricRequest, metric_words, why_unavailable
from confide.facts import Facts, join_facts
from confide.metrics.base import MetricSpec, metric_name, parse_metric
from confide.metrics.resampling import CHUNK, RESAMPLES, bootstrap, run_chunks
from confide.metrics.view import MetricSamples, View, metric_samples, score_values
from confide.predictions import Predictions
from confide.random import generator
from confide.registry import Method
from confide.results import LEVEL, TAILS, ComparedRow, Comparison, asdict_shallow

LARGEST = 200_000
"""Above so many samples the permutation test works on a random part of this size."""

Floats = NDArray[np.float64]


def compare(
    a: Predictions | Mapping[str, Predictions],
    b: Predictions | None = None,
    *more: Predictions,
    names: Sequence[str] | None = None,
    metrics: str | Sequence[str] = "core",
    score: str = "msp",
    pairs: Sequence[tuple[str, str]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Paired tests of every metric between every two predictions on the same samples, Holm-corrected over all.

    The interval of the difference (b minus a) is a bootstrap with the same resamples on both sides; the p-value is
    that of a permutation test which swaps the two predictions of random samples.

    Args:
        a: predictions, or all of them by name ("model/stage").
        b: predictions of the same samples, in any order: they are joined by id.
        more: further predictions of the same samples.
        names: names of `a`, `b` and the rest; by default a, b, c, ...
        metrics: "core", "all", or words.
        score: what ranks the samples, a word.
        pairs: names to compare; every two when left out.
        resamples: of the bootstrap and of the permutations.
        seed: of both.

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
    first = next(iter(records.values()))
    aligned = {name: same_samples(first, record, name) for name, record in records.items()}
    requests = comparable_requests(metrics, list(aligned.values()), score)
    values = {name: [request(View(metric_samples(p))) for request in requests] for name, p in aligned.items()}
    draws = {name: paired_draws(p, requests, resamples, seed) for name, p in aligned.items()}
    rows = []
    for left, right in combinations(aligned, 2) if pairs is None else pairs:
        p_values = permutation_p_values(aligned[left], aligned[right], requests, resamples, seed)
        sides = ComparedRow.of(left), ComparedRow.of(right)
        for k, request in enumerate(requests):
            difference = values[right][k] - values[left][k]
            (first_draws, factor), (second_draws, _) = draws[left][k], draws[right][k]
            low, high = difference_interval(difference, second_draws - first_draws, factor)
            metric, p_value = metric_name(request.method, request.options), p_values[k]
            rows.append(Comparison(metric, *sides, difference, low, high, p_value, p_value))
    return tuple(holm_corrected(rows))


def paired_draws(
    predictions: Predictions, requests: Sequence[MetricRequest], resamples: int, seed: int
) -> list[tuple[Floats, float]]:
    """Bootstrap draws of every metric and their factor; the same seed draws the same samples for every record."""
    light = [request for request in requests if not request.whole]
    drawn, factor = np.empty((0, resamples)), 1.0
    if light:
        drawn, factor = bootstrap(metric_samples(predictions), light, resamples=resamples, seed=seed)
    rows = iter(drawn)
    return [r.method.spec.resample(predictions, r.options, seed) if r.whole else (next(rows), factor) for r in requests]


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
    return records


def same_samples(first: Predictions, other: Predictions, name: str) -> Predictions:
    """The other's rows in the order of the first; refuses other ids or other labels."""
    metric_samples(other)
    if len(first) != len(other) or set(first.ids.tolist()) != set(other.ids.tolist()):
        raise InputError(
            f"compare needs the same samples, but the ids of '{name}' differ from the first ({len(other)} against "
            f"{len(first)} samples); predict the same split with both"
        )
    aligned = other if np.array_equal(first.ids, other.ids) else other.align(first.ids)
    if not (aligned.has_labels and first.has_labels):
        return aligned
    unequal = (aligned.labels.cpu() != first.labels.cpu()).nonzero()
    if len(unequal):
        place = int(unequal[0])
        raise InputError(
            f"compare needs the same labels, but '{name}' has {int(aligned.labels[place])} where the first has "
            f"{int(first.labels[place])} at id {first.ids[place]!r}; check which split each comes from"
        )
    return aligned


def comparable_requests(
    metrics: str | Sequence[str], records: Sequence[Predictions], score: str
) -> list[MetricRequest]:
    """Metrics that have a direction and that all predictions allow."""
    chosen = []
    only_confidence = any(record.outputs.only_confidence for record in records)
    for word in dict.fromkeys(metric_words(metrics, only_confidence=only_confidence)):
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


def permutation_p_values(
    a: Predictions, b: Predictions, requests: Sequence[MetricRequest], resamples: int, seed: int
) -> list[float]:
    """Share of random swaps with a difference at least as large."""
    light = iter(permutation_tests(a, b, [request for request in requests if not request.whole], resamples, seed))
    return [tail_p_value(*r.method.spec.permute(a, b, r.options, seed)) if r.whole else next(light) for r in requests]


def permutation_tests(
    a: Predictions, b: Predictions, requests: Sequence[MetricRequest], resamples: int, seed: int
) -> list[float]:
    """p-values of metrics of the facts: both sides of a swap are weights on 2n samples sorted once."""
    if not requests:
        return []
    if len(a) > LARGEST:
        rng = generator(seed, "permutation rows")
        rows = np.sort(rng.choice(len(a), LARGEST, replace=False))
        a, b = a.take(rows), b.take(rows)
    n = len(a)
    pair = Predictions.from_facts(
        join_facts([_on_cpu(a), _on_cpu(b)]),
        torch.cat([a.labels.cpu(), b.labels.cpu()]) if a.has_labels and b.has_labels else None,
        max(a.num_classes, b.num_classes),
        trust=None if a.trust is None or b.trust is None else torch.cat([a.trust.cpu(), b.trust.cpu()]),
        from_probabilities=a.from_probabilities or b.from_probabilities,
    )
    base = MetricSamples(pair, resampled=True)
    requests = on_one_scale(a, b, requests)

    def difference(swap: NDArray[np.bool_]) -> Floats:
        to_b = np.concatenate([swap, ~swap]).astype(np.float64)
        of_a, of_b = View(base, 1 - to_b), View(base, to_b)
        return np.array([request(of_b) - request(of_a) for request in requests])

    seen = np.abs(difference(np.zeros(n, dtype=bool)))
    null = np.empty((len(requests), resamples))

    def chunk(first: int) -> None:
        rng = generator(seed, "permutation", first)
        for k in range(first, min(first + CHUNK, resamples)):
            with np.errstate(invalid="ignore"):
                null[:, k] = np.abs(difference(rng.random(n) < 0.5))

    run_chunks(chunk, resamples)
    return [tail_p_value(value, draws) for value, draws in zip(seen, null, strict=True)]


def on_one_scale(a: Predictions, b: Predictions, requests: Sequence[MetricRequest]) -> list[MetricRequest]:
    """The metrics with each side's score as its ranks, where only the order counts.

    A swap mixes the scores of both sides: if one is merely sharper than the other, the mixture ranks worse than either
    and hides a real difference. Ranks change no ranking metric and put both on one scale.
    """
    ranks: dict[str, Floats] = {}
    changed = []
    for request in requests:
        score, method = request.options.get("score"), request.method
        if method.spec.info.kind != "ranking" or "threshold" in method.options or not isinstance(score, str):
            changed.append(request)
            continue
        if score not in ranks:
            ranks[score] = np.concatenate([rankdata(score_values(side, score)) for side in (a, b)])
        changed.append(replace(request, options={**request.options, "score": ranks[score]}))
    return changed


def tail_p_value(seen: float, null: Floats) -> float:
    """p = (1 + #{draws >= seen}) / (B + 1); where none reaches, the tail of a normal with their mean square.

    Without it no p-value could survive Holm's correction over more tests than there are draws per 0.05.
    """
    if math.isnan(seen):
        return math.nan
    count = int((null >= seen - 1e-12).sum())
    smallest = 1 / (len(null) + 1)
    scale = math.sqrt(float(np.nanmean(null**2)))
    if count or scale == 0:
        return (1 + count) * smallest
    return min(smallest, math.erfc(seen / scale / math.sqrt(2)))


def _on_cpu(predictions: Predictions) -> Facts:
    known = asdict_shallow(predictions.facts)
    return Facts(**{k: None if v is None else v.cpu() for k, v in known.items()})  # type: ignore[arg-type]


def difference_interval(difference: float, draws: Floats, factor: float) -> tuple[float, float]:
    """Basic bootstrap interval: the spread of the resampled differences about their mean, set about the difference."""
    known = draws[np.isfinite(draws)]
    if not len(known) or not math.isfinite(difference):
        return math.nan, math.nan
    low, high = np.quantile(known - known.mean(), TAILS) * factor
    return difference + float(low), difference + float(high)


def holm_corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons with p-values corrected over all of them (Holm, 1979), and with the side that is then better."""
    judged = []
    for c, corrected in zip(comparisons, holm([c.p_value for c in comparisons]), strict=True):
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
