"""Regularised logistic regression of being right on a few signals, by Newton's method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import expit

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Logistic:
    """g(s) = sigmoid(w . (s - mean) / deviation + b)."""

    mean: Float64
    deviation: Float64
    weight: Float64
    bias: float

    def contributions(self, signals: Float64) -> tuple[Float64, float]:
        """What every signal adds to the logit, `n j`, and the logit without any."""
        parts: Float64 = (signals - self.mean) / self.deviation * self.weight
        return parts, self.bias

    def state(self) -> dict[str, Float64]:
        """Arrays that hold all of it."""
        return {
            "mean": self.mean,
            "deviation": self.deviation,
            "weight": self.weight,
            "bias": np.array([self.bias]),
        }

    @classmethod
    def restored(cls, arrays: dict[str, Float64]) -> Logistic:
        """The regression of a state."""
        return cls(arrays["mean"], arrays["deviation"], arrays["weight"], float(arrays["bias"][0]))


def platt_targets(correct: Flags) -> Float64:
    """(N+ + 1) / (N+ + 2) for right and 1 / (N- + 2) for wrong: keeps the fit finite under separation."""
    right = int(correct.sum())
    return np.where(correct, (right + 1) / (right + 2), 1 / (len(correct) - right + 2))


def fit_logistic(signals: Float64, correct: Flags, penalty: float = 1.0) -> Logistic:
    """Minimise sum_i BCE(t_i, g(s_i)) + penalty/2 |w|^2 with Platt targets t; the bias is free.

    Args:
        penalty: pseudo-counts against large weights; the sum over samples makes it mean the same at any n.
    """
    mean, deviation = signals.mean(axis=0), signals.std(axis=0)
    # A constant signal: divided by one it stays zero, and the penalty gives it weight zero.
    deviation = np.where(deviation > 1e-12, deviation, 1.0)
    columns = np.column_stack([(signals - mean) / deviation, np.ones(len(signals))])
    targets = platt_targets(correct)
    ridge = np.append(np.full(signals.shape[1], penalty), 0.0)
    weight = np.zeros(columns.shape[1])
    value = _objective(columns, targets, ridge, weight)
    for _ in range(100):
        probability = expit(columns @ weight)
        gradient = columns.T @ (probability - targets) + ridge * weight
        curvature = (columns * (probability * (1 - probability))[:, None]).T @ columns + np.diag(ridge + 1e-10)
        step = linalg.solve(curvature, gradient, assume_a="pos")
        if float(gradient @ step) < 1e-14 * max(1.0, value):
            break
        size = 1.0
        while size > 1e-8 and (tried := _objective(columns, targets, ridge, weight - size * step)) > value:
            size /= 2
        weight, value = weight - size * step, tried
    return Logistic(mean, deviation, weight[:-1], float(weight[-1]))


def _objective(columns: Float64, targets: Float64, ridge: Float64, weight: Float64) -> float:
    logit = columns @ weight
    # BCE(t, sigmoid(l)) = log(1 + e^l) - t l
    return float((np.logaddexp(0, logit) - targets * logit).sum() + (ridge * weight**2).sum() / 2)
