"""Alarms that may be looked at after every label and for ever: wealth of bets that pay only if a promise is broken.

A bet on x with E[x | past] <= 0 and x >= -low multiplies wealth by 1 + f x / low, f in [0, 1): as long as the promise
holds, wealth of 1 exceeds 1/delta with probability at most delta, ever (Ville's inequality). Wealth is a mean over
fractions f, over streams (bands, signs) and over start times: a bet that was started once loses all in a long good
period and is blind afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from confide.types import Floats

FRACTIONS: Floats = np.geomspace(0.005, 0.5, 8)
"""Of the largest bet that cannot ruin: errors of a few times the promise are met within a factor of two."""
BLOCK = 100
"""Samples between two start times; start j has the weight 1/(j(j+1)), which sum to 1."""
MOST_WEALTH = 1e250
"""Wealth stops growing here, long after any alarm, before it overflows."""


@dataclass
class Wealth:
    """The mean wealth of bets on `streams` things at once, and the first sample at which it reached 1/delta."""

    streams: int
    delta: float
    seen: int = 0
    value: float = 1.0
    highest: float = 1.0
    alarm_at: int | None = None
    """How many samples had been seen when it was raised."""
    history: list[tuple[int, float]] = field(default_factory=list)
    """(samples seen, wealth) at the end of every block and batch."""
    _started: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._started = np.zeros((self.streams, len(FRACTIONS)))

    @property
    def alarmed(self) -> bool:
        """Whether wealth has ever reached 1/delta."""
        return self.alarm_at is not None

    def add(self, gain: Floats, low: Floats) -> None:
        """Bet on samples in their order: `n streams` of x, and of what x can fall below 0 at most (known before x)."""
        position = 0
        while position < len(gain):
            if self.seen % BLOCK == 0:
                block = self.seen // BLOCK + 1
                self._started += 1 / (block * (block + 1))
            rows = slice(position, position + BLOCK - self.seen % BLOCK)
            steps = 1 + FRACTIONS * (gain[rows] / low[rows])[:, :, None]
            with np.errstate(over="ignore"):
                grown = np.minimum(self._started * np.cumprod(steps, axis=0), MOST_WEALTH)
            # What has not been staked yet: the weight of the start times to come.
            waiting = 1 / (self.seen // BLOCK + 2)
            wealth = grown.mean(axis=(1, 2)) + waiting
            reached = np.flatnonzero(wealth >= 1 / self.delta)
            if len(reached) and self.alarm_at is None:
                self.alarm_at = self.seen + int(reached[0]) + 1
            self._started = grown[-1]
            self.value, self.highest = float(wealth[-1]), max(self.highest, float(wealth.max()))
            position += len(wealth)
            self.seen += len(wealth)
            self.history.append((self.seen, self.value))


def risk_bets(wrong: Floats, risk: float, weights: Floats, most: float = 1.0) -> tuple[Floats, Floats]:
    """Bets against "the error rate is at most risk": x = w (wrong - risk).

    Args:
        wrong: 0 or 1 of every labelled sample.
        risk: that was promised.
        weights: 1 / how likely each was to be labelled, up to a factor.
        most: the largest weight there may be. The stake must not depend on the sample's own weight: it would undo it.

    Returns:
        The bets `n 1`, and the most that each can lose.

    Example:
        >>> import numpy as np
        >>> from confide import monitor
        >>> monitor.risk_bets(np.array([0.0, 1.0]), 0.25, np.ones(2))[0]
        array([[-0.25],
               [ 0.75]])
    """
    return (weights * (wrong - risk))[:, None], np.full((len(wrong), 1), most * risk)


def calibration_bets(
    right: Floats, confidence: Floats, bands: Floats, tolerance: Floats, weights: Floats, most: float = 1.0
) -> tuple[Floats, Floats]:
    """Bets against "within every band, and overall, |E[right - confidence]| is at most its tolerance", on both signs.

    Args:
        right: 0 or 1 of every labelled sample.
        confidence: of every sample.
        bands: inner edges of the bands of confidence.
        tolerance: of every band, and last that of all samples.
        weights: 1 / how likely each was to be labelled, up to a factor.
        most: the largest weight there may be.

    Returns:
        x and what it can fall, `n (bands + 1) * 2`; a sample outside a band has x = 0 there. What it can fall is that
        of the band, not of the sample: a stake that follows confidence within a band could win where none is broken.
    """
    band = np.searchsorted(bands, confidence, side="left")
    inside = np.concatenate([band[:, None] == np.arange(len(bands) + 1), np.ones((len(right), 1), bool)], axis=1)
    gap = (right - confidence)[:, None]
    gain = np.concatenate([inside * (gap - tolerance), inside * (-gap - tolerance)], axis=1)
    highest, lowest = np.array([*bands, 1.0, 1.0]), np.array([0.0, *bands, 0.0])
    low = most * np.concatenate([highest + tolerance, 1 - lowest + tolerance])
    return weights[:, None] * gain, np.broadcast_to(low, gain.shape)
