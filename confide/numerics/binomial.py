"""Exact bounds on a rate from counted events, and the tails of a count of events of unequal chances."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from confide.checks import check_range
from confide.types import Floats, Indices


def upper_bound(events: int, n: int, delta: float) -> float:
    """Clopper-Pearson upper bound b: with probability 1 - delta the true rate is at most b."""
    from scipy.special import betaincinv

    return 1.0 if events >= n else float(betaincinv(events + 1, n - events, 1 - delta))


def lower_bound(events: int, n: int, delta: float) -> float:
    """Clopper-Pearson lower bound b: with probability 1 - delta the true rate is at least b."""
    from scipy.special import betaincinv

    return 0.0 if events <= 0 else float(betaincinv(events, n - events + 1, delta))


def clopper_pearson(events: int, n: int, level: float) -> tuple[float, float]:
    """The exact interval that holds the true rate with probability 1 - level, or more."""
    check_range(n, "n", 0)
    return lower_bound(events, n, level / 2), upper_bound(events, n, level / 2)


def binomial_p(events: int, n: int, rate: float) -> float:
    """P(at most so many events) at that rate: the p-value of "the true rate is above it"."""
    from scipy.special import bdtr

    return 1.0 if not n else float(bdtr(events, n, rate))


def hoeffding_bentkus_p(total: float, n: int, mean: float) -> float:
    """p-value of "the true mean is above `mean`" from the sum of n losses in [0, 1] (Bates et al., 2021, lemma 4)."""
    if not n or not 0 < mean < 1:
        return 1.0
    seen = min(total / n, mean)
    divergence = (seen * math.log(seen / mean) if seen > 0 else 0.0) + (
        (1 - seen) * math.log((1 - seen) / (1 - mean)) if seen < 1 else 0.0
    )
    # The nudge keeps a whole sum whole, where floats lie a little above it.
    return min(1.0, math.exp(-n * divergence), math.e * binomial_p(math.ceil(total - 1e-9), n, mean))


def mean_upper_bound(total: float, n: int, delta: float) -> float:
    """The largest mean that Hoeffding-Bentkus does not refute at delta."""
    low, high = (total / n if n else 1.0), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if hoeffding_bentkus_p(total, n, middle) > delta else (low, middle)
    return high


STAKES = (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)
"""Shares of the largest stake that no loss can ruin."""


def weighted_mean_p(losses: Floats, weights: Floats, mean: float) -> float:
    """p-value of "the weighted mean of the losses is above `mean`", losses and weights in [0, 1].

    The weighted mean is above r where E[w (l - r)] > 0. Then stakes on w (l - r) being below 0 win nothing on average:
    the product over independent samples of 1 - s w (l - r) / (1 - r) has a mean of at most 1, and so has its mean over
    several stakes s. It is above 1 / p with a chance of at most p (Waudby-Smith & Ramdas, 2024, with fixed stakes).
    """
    if not len(losses) or not 0 < mean < 1:
        return 1.0
    moves = weights * ((losses - mean) / (1 - mean))
    with np.errstate(divide="ignore"):
        gains = [float(np.log1p(-stake * moves).sum()) for stake in STAKES]
    highest = max(gains)
    wealth = sum(math.exp(gain - highest) for gain in gains) / len(STAKES)
    return min(1.0, math.exp(min(-highest, 700.0)) / wealth)


def weighted_upper_bound(losses: Floats, weights: Floats, delta: float) -> float:
    """The largest weighted mean that is not refuted at delta."""
    low, high = (float(np.average(losses, weights=weights)) if weights.any() else 1.0), 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if weighted_mean_p(losses, weights, middle) > delta else (low, middle)
    return high


EXACT_BELOW = 40.0
"""The variance of the number right below which it is counted exactly."""


def right_tails(right: int, chances: Floats) -> tuple[float, float]:
    """P(at most so many right) and P(at least so many), where sample i is right with chance p_i.

    Exact by counting the rarer of right and wrong where these are few; else the normal law with its correction for
    skewness (Edgeworth), which is then good to 4 % of a tail of 1e-3.
    """
    variance = float((chances * (1 - chances)).sum())
    mean = float(chances.sum())
    if variance < EXACT_BELOW:
        few_wrong = mean > len(chances) / 2
        counts = _count_law(1 - chances if few_wrong else chances)
        number = len(chances) - right if few_wrong else right
        at_most = float(counts[: number + 1].sum())
        at_least = float(counts[number:].sum()) if number < len(counts) else 0.0
        tails = (at_least, at_most) if few_wrong else (at_most, at_least)
        return min(tails[0], 1.0), min(tails[1], 1.0)
    return count_tails(right, mean, variance, float((chances * (1 - chances) * (1 - 2 * chances)).sum()))


def count_tails(number: int, mean: float, variance: float, third: float) -> tuple[float, float]:
    """P(at most so many) and P(at least so many) of a count with this mean, variance and third central moment."""
    skewness = third / variance**1.5
    # Half a sample towards the middle: the number is a whole one.
    low, high = (number + 0.5 - mean) / math.sqrt(variance), (number - 0.5 - mean) / math.sqrt(variance)
    return _edgeworth(low, skewness), _edgeworth(-high, -skewness)


def _edgeworth(z: float, skewness: float) -> float:
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    tail = 0.5 * math.erfc(-z / math.sqrt(2))
    return min(max(tail - skewness / 6 * (z * z - 1) * density, 0.0), 1.0)


def _count_law(chances: Floats) -> Floats:
    """How likely 0, 1, 2 ... of these events are; beyond what is likelier than 1e-30 the law is cut off."""
    most = min(len(chances), int(chances.sum() + 15 * math.sqrt(EXACT_BELOW) + 60))
    law = np.zeros(most + 1)
    law[0] = 1.0
    # Events that never or always happen only shift the law.
    for chance in chances[chances > 0]:
        law[1:] = law[1:] * (1 - chance) + law[:-1] * chance
        law[0] *= 1 - chance
    return law


def matched_binomial(mean: Floats, variance: Floats) -> tuple[Indices, Floats]:
    """Trials and chance of the binomial law with the mean and variance of a sum of Bernoulli draws."""
    expected = np.maximum(mean, 0.0)
    chance = np.clip(1 - variance / np.maximum(expected, 1e-300), 1e-9, 1.0)
    trials = np.maximum(np.ceil(expected), np.round(expected / chance)).clip(1)
    return trials.astype(np.intp), np.minimum(expected / trials, 1.0)


def binomial_quantiles(trials: Indices, chance: Floats, levels: Sequence[float]) -> Floats:
    """The smallest counts that are not exceeded with these probabilities, one row a level."""
    from scipy.special import bdtr, bdtrik

    level = np.array(levels)[:, None]
    sure = (chance <= 0) | (chance >= 1)
    # Where the continued law passes a level; the count itself may be the next.
    near = np.maximum(np.floor(bdtrik(level, trials, np.where(sure, 0.5, chance))), 0.0)
    count = np.where(bdtr(near, trials, chance) >= level, near, near + 1)
    return np.where(sure, trials * chance, np.minimum(count, trials))


def wilson_interval(rate: float, n: float, quantile: float) -> tuple[float, float]:
    """Wilson's interval of a rate seen in n draws: the rates p with |rate - p| within the spread that p itself has.

    Args:
        quantile: of the standard normal at the upper end.
    """
    if math.isinf(n):
        return rate, rate
    square = quantile * quantile / n
    centre = (rate + square / 2) / (1 + square)
    half = quantile / (1 + square) * math.sqrt(max(rate * (1 - rate), 0.0) / n + square / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)
