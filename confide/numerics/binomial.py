"""Exact bounds on a rate from counted events: one-sided for promises, two-sided for intervals."""

from __future__ import annotations

import math

from confide.checks import check_range


def upper_bound(events: int, n: int, delta: float) -> float:
    """Clopper-Pearson upper bound b: with probability 1 - delta the true rate is at most b."""
    from scipy.special import betaincinv

    return 1.0 if events >= n else float(betaincinv(events + 1, n - events, 1 - delta))


def lower_bound(events: int, n: int, delta: float) -> float:
    """Clopper-Pearson lower bound b: with probability 1 - delta the true rate is at least b."""
    from scipy.special import betaincinv

    return 0.0 if events <= 0 else float(betaincinv(events, n - events + 1, delta))


def clopper_pearson(events: int, n: int, level: float = 0.05) -> tuple[float, float]:
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
