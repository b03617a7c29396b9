"""Logistic regressions: of being right on a few signals by Newton's method, of classes on feature rows by L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import expit
from torch import Tensor
from torch.nn import functional

from confide.numerics.minimise import box_newton
from confide.types import Flags, Floats

# Of being right on a few signals.


@dataclass(frozen=True, eq=False)
class Logistic:
    """g(s) = sigmoid(w . (s - mean) / deviation + b)."""

    mean: Floats
    deviation: Floats
    weight: Floats
    bias: float

    def contributions(self, signals: Floats) -> tuple[Floats, float]:
        """What every signal adds to the logit, `n j`, and the logit without any."""
        parts: Floats = (signals - self.mean) / self.deviation * self.weight
        return parts, self.bias

    def state(self) -> dict[str, Floats]:
        """Arrays that hold all of it."""
        return {"mean": self.mean, "deviation": self.deviation, "weight": self.weight, "bias": np.array([self.bias])}

    @classmethod
    def restored(cls, arrays: dict[str, Floats]) -> Logistic:
        """The regression of a state."""
        return cls(arrays["mean"], arrays["deviation"], arrays["weight"], float(arrays["bias"][0]))


def platt_targets(correct: Flags) -> Floats:
    """(N+ + 1) / (N+ + 2) for right and 1 / (N- + 2) for wrong: keeps the fit finite under separation."""
    right = int(correct.sum())
    return np.where(correct, (right + 1) / (right + 2), 1 / (len(correct) - right + 2))


def fit_logistic(signals: Floats, correct: Flags, penalty: float = 1.0) -> Logistic:
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
    value = _logistic_objective(columns, targets, ridge, weight)
    for _ in range(100):
        probability = expit(columns @ weight)
        gradient = columns.T @ (probability - targets) + ridge * weight
        curvature = (columns * (probability * (1 - probability))[:, None]).T @ columns + np.diag(ridge + 1e-10)
        step = linalg.solve(curvature, gradient, assume_a="pos")
        if float(gradient @ step) < 1e-14 * max(1.0, value):
            break
        size = 1.0
        while size > 1e-8 and (tried := _logistic_objective(columns, targets, ridge, weight - size * step)) > value:
            size /= 2
        weight, value = weight - size * step, tried
    return Logistic(mean, deviation, weight[:-1], float(weight[-1]))


def _logistic_objective(columns: Floats, targets: Floats, ridge: Floats, weight: Floats) -> float:
    logit = columns @ weight
    # BCE(t, sigmoid(l)) = log(1 + e^l) - t l
    return float((np.logaddexp(0, logit) - targets * logit).sum() + (ridge * weight**2).sum() / 2)


# Of being right on log odds: the line through them that predicts best.

IDENTITY = np.array([1.0, 0.0])


@dataclass(frozen=True, eq=False)
class Odds:
    """Log odds of being right, and whether it was right."""

    values: Floats
    right: Flags

    @classmethod
    def empty(cls, n: int) -> Odds:
        """Room for n samples."""
        return cls(np.zeros(n), np.zeros(n, dtype=bool))

    def put(self, rows: NDArray[np.intp], part: Odds) -> None:
        """Fill some rows."""
        self.values[rows], self.right[rows] = part.values, part.right

    def take(self, rows: NDArray[np.intp]) -> Odds:
        return Odds(self.values[rows], self.right[rows])

    def losses(self, line: Floats = IDENTITY) -> Floats:
        """-log of the probability given to what came, log odds moved by s u + t."""
        moved = line[0] * self.values + line[1]
        return np.asarray(np.logaddexp(0.0, np.where(self.right, -moved, moved)))

    def line(self, penalty: float) -> Floats:
        """(s, t), s not below 0, with the smallest loss + penalty/2 ((s - 1)^2 + t^2): infinite is the identity."""
        if math.isinf(penalty):
            return IDENTITY.copy()
        # Log odds of 700 and more, of samples that are certain, would decide the slope alone.
        clipped = np.clip(self.values, -50.0, 50.0)
        columns, target = np.stack([clipped, np.ones_like(clipped)]), self.right.astype(np.float64)

        def moments(line: Floats) -> tuple[float, Floats, Floats]:
            away, probability = line - IDENTITY, expit(line @ columns)
            loss = float(Odds(clipped, self.right).losses(line).sum()) + penalty / 2 * float(away @ away)
            weight = probability * (1 - probability)
            slope = columns @ (probability - target) + penalty * away
            return loss, slope, (columns * weight) @ columns.T + penalty * np.eye(2)

        return box_newton(moments, IDENTITY.copy(), np.array([0.0, -50.0]), np.array([50.0, 50.0]))

    def chosen_map(self, folds: NDArray[np.int64], penalties: Sequence[float]) -> Floats:
        """The line whose penalty predicts best held out; of equals the one nearest to the identity."""
        losses = np.zeros(len(penalties))
        for fold in np.unique(folds):
            train, held = self.take(np.flatnonzero(folds != fold)), self.take(np.flatnonzero(folds == fold))
            losses += [held.losses(train.line(penalty)).sum() for penalty in penalties]
        best = int(np.flatnonzero(losses <= losses.min() + 1e-12 * abs(losses.min()))[-1])
        return self.line(penalties[best])


# Of classes on standardised feature rows.


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """Logits x W + b of feature rows."""

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        return rows.to(self.weight.dtype) @ self.weight + self.bias


def fit_linear_classifier(rows: Tensor, labels: Tensor, num_classes: int, penalty: float) -> LinearClassifier:
    """Mean cross-entropy + penalty |W|^2 / 2 on standardised rows, by L-BFGS; the result takes rows as they come."""
    mean, deviation = rows.mean(dim=0), rows.std(dim=0, correction=0)
    deviation = torch.where(deviation > 1e-6, deviation, 1.0)
    standard = (rows - mean) / deviation
    weight = torch.zeros(rows.shape[1], num_classes, device=rows.device, requires_grad=True)
    bias = torch.zeros(num_classes, device=rows.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(standard @ weight + bias, labels) + penalty / 2 * weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    optimiser.step(closure)
    # The standardisation goes into the weights, in float64 so that large means cost no digits.
    scaled = weight.detach().double() / deviation.double()[:, None]
    return LinearClassifier(scaled, bias.detach().double() - mean.double() @ scaled)
