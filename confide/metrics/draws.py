"""Sums of many independent Bernoulli draws, drawn at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def bernoulli_sums(mean: Floats, variance: Floats, rng: np.random.Generator) -> Floats:
    """Binomial draws with the mean and variance of sums of Bernoulli draws: sum p and sum p (1 - p)."""
    expected = np.maximum(mean, 0.0)
    chance = np.clip(1 - variance / np.maximum(expected, 1e-300), 1e-9, 1.0)
    trials = np.maximum(np.ceil(expected), np.round(expected / chance)).clip(1)
    return rng.binomial(trials.astype(np.int64), np.minimum(expected / trials, 1.0)).astype(np.float64)
