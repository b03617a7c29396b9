"""Covariance shrinkage towards a multiple of the identity, for rank-deficient or ill-conditioned fits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def ledoit_wolf_intensity(covariance: Float64, n: int, fourth: float) -> float:
    """Ledoit-Wolf: rho = min(beta^2, delta^2) / delta^2, delta^2 = ||S - mu I||^2, beta^2 = (E||r||^4 - ||S||^2) / n.

    Args:
        fourth: mean of ||r||^4 over the centred rows.
    """
    dim = len(covariance)
    mu = np.trace(covariance) / dim
    square = float((covariance**2).sum())
    delta = square - dim * mu**2
    if delta <= 0:
        return 0.0
    beta = (fourth - square) / n
    return float(min(max(beta, 0.0), delta) / delta)


def oas_intensity(covariance: Float64, n: int) -> float:
    """OAS: rho = min(1, [(1 - 2/d) tr S^2 + tr^2 S] / [(n + 1 - 2/d)(tr S^2 - tr^2 S / d)])."""
    dim = len(covariance)
    trace = float(np.trace(covariance))
    square = float((covariance**2).sum())
    spread = square - trace**2 / dim
    if spread <= 0:
        return 0.0
    return float(min(1.0, ((1 - 2 / dim) * square + trace**2) / ((n + 1 - 2 / dim) * spread)))


def shrunk(covariance: Float64, intensity: float) -> Float64:
    """(1 - rho) S + rho mu I, mu = tr S / d."""
    dim = len(covariance)
    mu = float(np.trace(covariance)) / dim
    result: Float64 = (1 - intensity) * covariance + intensity * mu * np.eye(dim)
    return result


def intensity_of(rule: Any, covariance: Float64, n: int, fourth: float) -> float:
    """The shrinkage intensity by a rule's word, or a number taken as it is."""
    if isinstance(rule, (int, float)):
        return float(rule)
    return ledoit_wolf_intensity(covariance, n, fourth) if rule == "ledoit_wolf" else oas_intensity(covariance, n)
