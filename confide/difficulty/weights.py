"""Training weights s(x, y) in [0, 1] from difficulty scores, s = exp((v - max v) / T) / (1 + c)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, check_choice, check_range
from confide.core.records import Scores

NORMALIZATIONS = ("none", "minmax", "standardize", "rank")


def weights(scores: Any, *, normalize: str = "none", temperature: float = 0.7, c: float = 1e-3) -> NDArray[np.float64]:
    """Weight of every sample, exp((v - max v) / T) / (1 + c): the hardest has 1 / (1 + c), easy ones fade.

    The overflow-safe form of eq. 10 of Cui et al. (2023): only the effective c differs from the printed one.

    Args:
        normalize: what happens to the scores first. "none" is the printed formula, which vanishes for all but a few
            samples at T = 0.7 because raw scores spread over tens; "minmax" to [0, 1]; "standardize" to mean 0,
            deviation 1; "rank" to rank / (n - 1), ties averaged.
        temperature: small values leave weight to the hardest only. Default: the choice of the paper.
        c: the small constant of the paper's denominator.
    """
    check_choice(normalize, NORMALIZATIONS, "normalize")
    check_range(temperature, "temperature", 0, low_open=True)
    check_range(c, "c", 0)
    values = np.asarray(scores.values if isinstance(scores, Scores) else scores, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(f"scores must be a vector of at least one value, got shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).nonzero()[0][0])
        raise InputError(f"scores must be finite, got {values[bad]} at sample {bad} of {len(values)}; drop it")
    normal = _normalized(values, normalize)
    result: NDArray[np.float64] = np.exp((normal - normal.max()) / temperature) / (1 + c)
    return result


def _normalized(values: NDArray[np.float64], normalize: str) -> NDArray[np.float64]:
    if normalize == "none":
        return values
    if normalize == "minmax":
        low, spread = float(values.min()), float(np.ptp(values))
    elif normalize == "standardize":
        low, spread = float(values.mean()), float(values.std())
    else:
        values = average_ranks(values)
        low, spread = 0.0, float(len(values) - 1)
    # Scores that are all the same make no difference between samples.
    result: NDArray[np.float64] = (values - low) / spread if spread > 0 else np.zeros_like(values)
    return result


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank of every value from 0, ties averaged."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = ((2 * np.cumsum(counts) - counts - 1) / 2)[place.reshape(-1)]
    return ranks
