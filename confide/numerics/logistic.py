"""Logistic regressions: of being right on a few signals, and many of one number at once, by Newton's method; of classes
on feature rows by L-BFGS.
"""

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


def platt_targets(correct: Flags, weights: Floats | None = None) -> Floats:
    """(N+ + 1) / (N+ + 2) for right and 1 / (N- + 2) for wrong: keeps the fit finite under separation."""
    right, n = (int(correct.sum()), len(correct)) if weights is None else (weights[correct].sum(), weights.sum())
    return np.where(correct, (right + 1) / (right + 2), 1 / (n - right + 2))


def fit_logistic(signals: Floats, correct: Flags, penalty: float = 1.0, weights: Floats | None = None) -> Logistic:
    """Minimise sum_i BCE(t_i, g(s_i)) + penalty/2 |w|^2 with Platt targets t; the bias is free.

    Args:
        penalty: pseudo-counts against large weights; the sum over samples makes it mean the same at any n.
        weights: of the samples, of mean 1.
    """
    counts = np.ones(len(signals)) if weights is None else weights
    mean = signals.mean(axis=0) if weights is None else np.average(signals, axis=0, weights=weights)
    deviation = np.sqrt(np.average((signals - mean) ** 2, axis=0, weights=weights))
    # A constant signal: divided by one it stays zero, and the penalty gives it weight zero.
    deviation = np.where(deviation > 1e-12, deviation, 1.0)
    columns = np.column_stack([(signals - mean) / deviation, np.ones(len(signals))])
    targets = platt_targets(correct, weights)
    ridge = np.append(np.full(signals.shape[1], penalty), 0.0)
    weight = np.zeros(columns.shape[1])
    value = _logistic_objective(columns, targets, counts, ridge, weight)
    for _ in range(100):
        probability = expit(columns @ weight)
        gradient = columns.T @ (counts * (probability - targets)) + ridge * weight
        spread = counts * probability * (1 - probability)
        curvature = (columns * spread[:, None]).T @ columns + np.diag(ridge + 1e-10)
        step = linalg.solve(curvature, gradient, assume_a="pos")
        if float(gradient @ step) < 1e-14 * max(1.0, value):
            break
        size = 1.0
        while size > 1e-8:
            tried = _logistic_objective(columns, targets, counts, ridge, weight - size * step)
            if tried <= value:
                break
            size /= 2
        weight, value = weight - size * step, tried
    return Logistic(mean, deviation, weight[:-1], float(weight[-1]))


def _logistic_objective(columns: Floats, targets: Floats, counts: Floats, ridge: Floats, weight: Floats) -> float:
    logit = columns @ weight
    # BCE(t, sigmoid(l)) = log(1 + e^l) - t l
    return float((np.logaddexp(0, logit) - targets * logit) @ counts + (ridge * weight**2).sum() / 2)


# Many at once, each of a few functions of one number.

RIDGE = 1e-11
"""1 / C: next to nothing, but where the samples are told apart perfectly the weights stay finite."""
POOLED_FROM = 4096
POOL_WIDTH = 1 / 8


@dataclass(frozen=True, eq=False)
class PooledPoints:
    """Points `k m` that stand for k rows of numbers, each so many times, or once where `counts` is None.

    Two points in every interval have its number, mean and variance, so sums of a function that bends little within an
    interval are those over all numbers: at width w they err by the third power of w.
    """

    at: Floats
    counts: Floats | None

    @classmethod
    def of(cls, rows: Floats, times: Floats | None = None) -> PooledPoints:
        """Points of rows `k n`, whose n numbers count so many times; of few numbers the numbers themselves."""
        if rows.shape[1] <= POOLED_FROM:
            return cls(rows, None if times is None else np.broadcast_to(times, rows.shape))
        interval = np.floor(rows / POOL_WIDTH)
        first = interval.min()
        number = int(interval.max() - first) + 1
        place = (interval - first).astype(np.int64) + number * np.arange(len(rows))[:, None]
        offset = rows - (interval + 0.5) * POOL_WIDTH
        sums_of: tuple[Floats | None, ...] = (None, offset.ravel(), np.square(offset).ravel())
        if times is not None:
            each = np.broadcast_to(times, rows.shape)
            sums_of = (each.ravel(), (each * offset).ravel(), (each * np.square(offset)).ravel())
        counts, sums, squares = (
            np.bincount(place.ravel(), weights, minlength=number * len(rows)).reshape(len(rows), number)
            for weights in sums_of
        )
        used = counts.any(axis=0)
        counts, centres = counts[:, used], (first + np.flatnonzero(used) + 0.5) * POOL_WIDTH
        mean, square = (total[:, used] / np.where(counts > 0, counts, 1) for total in (sums, squares))
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        at = np.concatenate([centres + mean - spread, centres + mean + spread], axis=1)
        return cls(at, np.concatenate([counts, counts], axis=1) / 2)

    def only(self, rows: Flags) -> PooledPoints:
        """Those of some rows."""
        return PooledPoints(self.at[rows], None if self.counts is None else self.counts[rows])


def logistic_regressions(
    columns: Sequence[Floats],
    counts: Floats | None,
    target_sums: Floats,
    free: Flags | None = None,
    start: Floats | None = None,
) -> Floats:
    """Weights `k f` of k regressions by damped Newton, all at once; targets enter by their sums alone.

    Minimises sum_m counts softplus(w . x) - w . target_sums + RIDGE/2 |w|^2, the sum, so that RIDGE means the same at
    any number of samples.

    Args:
        columns: f features `k m`.
        counts: how often each of the points stands, `k m`; once when left out.
        target_sums: sums over the samples of target times feature, `k f`.
        free: which weights may leave zero, `k f`; all when left out.
        start: weights `k f` to begin with; zero when left out.
    """
    features = np.stack(columns)
    free = np.ones(target_sums.shape, dtype=bool) if free is None else free
    weights = np.zeros(target_sums.shape) if start is None else start.copy()
    active = np.arange(len(weights))
    for _ in range(100):
        if not len(active):
            break
        part = _Regressions(features[:, active], None if counts is None else counts[active], target_sums[active])
        loss, slope, curvature = part.moments(weights[active], free[active])
        direction = np.asarray(-np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], dtype=np.float64)
        fall = (slope * direction).sum(axis=1)
        near = -fall <= 1e-9 * np.abs(loss)
        # So near, a full step leaves an error of the square of this one, and rounding would hide it.
        size = np.where(near, 1.0, part.step_sizes(weights[active], direction, loss, fall))
        weights[active] += size[:, None] * direction
        active = active[~near & (size > 0)]
    return weights


@dataclass(frozen=True, eq=False)
class _Regressions:
    """Features `f k m`, counts `k m` and sums of targets `k f` of k regressions."""

    features: Floats
    counts: Floats | None
    sums: Floats

    def losses(self, weights: Floats, scores: Floats) -> Floats:
        """The value of each, from w . x."""
        bends = np.maximum(scores, 0) + np.log1p(np.exp(-np.abs(scores)))
        whole = bends.sum(axis=1) if self.counts is None else np.einsum("km,km->k", bends, self.counts)
        return np.asarray(whole - (weights * self.sums).sum(axis=1) + RIDGE / 2 * (weights**2).sum(axis=1))

    def scores(self, weights: Floats) -> Floats:
        return np.asarray(sum(w[:, None] * x for w, x in zip(weights.T, self.features, strict=True)))

    def step_sizes(self, weights: Floats, direction: Floats, loss: Floats, fall: Floats) -> Floats:
        """1, 1/2, 1/4, ...: the first step of each that lowers its value enough, or 0."""
        size = np.ones(len(weights))
        while True:
            there = weights + size[:, None] * direction
            rises = (size > 0) & ~(self.losses(there, self.scores(there)) <= loss + 1e-4 * size * fall)
            if not rises.any():
                return size
            size[rises] = np.where(size[rises] > 1e-8, size[rises] / 2, 0.0)

    def moments(self, weights: Floats, free: Flags) -> tuple[Floats, Floats, Floats]:
        """Values, slopes `k f` and curvatures `k f f`; weights that are not free have neither."""
        scores = self.scores(weights)
        probs = expit(scores)
        spread = probs * (1 - probs)
        if self.counts is not None:
            probs, spread = probs * self.counts, spread * self.counts
        slope = np.einsum("km,fkm->kf", probs, self.features) - self.sums + RIDGE * weights
        bent = spread * self.features
        curvature = np.einsum("fkm,gkm->kfg", bent, self.features)
        # Two features that say the same leave a flat direction: a touch of the mean curvature settles it.
        touch = 1e-13 * np.einsum("kff->k", curvature) + RIDGE
        pairs = free[:, :, None] & free[:, None, :]
        unit = np.eye(len(self.features))
        curvature = np.where(pairs, curvature + touch[:, None, None] * unit, unit)
        return self.losses(weights, scores), np.where(free, slope, 0.0), curvature


# Of being right on log odds: the line through them that predicts best.

IDENTITY = np.array([1.0, 0.0])


@dataclass(frozen=True, eq=False)
class Odds:
    """Log odds of being right, and whether it was right."""

    values: Floats
    right: Flags
    weights: Floats

    @classmethod
    def empty(cls, weights: Floats) -> Odds:
        """Room for samples of these weights."""
        return cls(np.zeros(len(weights)), np.zeros(len(weights), dtype=bool), weights)

    def put(self, rows: NDArray[np.intp], part: Odds) -> None:
        """Fill some rows."""
        self.values[rows], self.right[rows] = part.values, part.right

    def take(self, rows: NDArray[np.intp]) -> Odds:
        return Odds(self.values[rows], self.right[rows], self.weights[rows])

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
            moved = Odds(clipped, self.right, self.weights)
            loss = float(moved.losses(line) @ self.weights) + penalty / 2 * float(away @ away)
            weight = self.weights * probability * (1 - probability)
            slope = columns @ (self.weights * (probability - target)) + penalty * away
            return loss, slope, (columns * weight) @ columns.T + penalty * np.eye(2)

        return box_newton(moments, IDENTITY.copy(), np.array([0.0, -50.0]), np.array([50.0, 50.0]))

    def chosen_map(self, folds: NDArray[np.int64], penalties: Sequence[float]) -> Floats:
        """The line whose penalty predicts best held out; of equals the one nearest to the identity."""
        losses = np.zeros(len(penalties))
        for fold in np.unique(folds):
            train, held = self.take(np.flatnonzero(folds != fold)), self.take(np.flatnonzero(folds == fold))
            losses += [held.losses(train.line(penalty)) @ held.weights for penalty in penalties]
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
