"""Exact bounds on a rate from counted events: one-sided for promises, two-sided for intervals."""

from __future__ import annotations

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
