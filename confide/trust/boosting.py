"""Gradient-boosted trees of being right on a few signals: histograms, complete trees of one depth, logistic loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from confide.trust.logistic import Flags, platt_targets

Float64 = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees as arrays `rounds nodes`: node i has children 2i+1 (signal <= threshold) and 2i+2, and each a value."""

    base: float
    signal: Indices
    threshold: Float64
    value: Float64

    def contributions(self, signals: Float64) -> tuple[Float64, float]:
        """What every signal adds to the logit, `n j`: the change of a node's value goes to the signal that split it."""
        parts = np.zeros(signals.shape)
        rows = np.arange(len(signals))
        for signal, threshold, value in zip(self.signal, self.threshold, self.value, strict=True):
            node = np.zeros(len(signals), dtype=np.int64)
            for _ in range(len(value).bit_length() - 1):  # a tree of depth k has 2^(k+1) - 1 nodes
                chosen = signal[node]
                child = 2 * node + 1 + (signals[rows, chosen] > threshold[node])
                parts[rows, chosen] += value[child] - value[node]
                node = child
        return parts, self.base

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Arrays that hold all of it."""
        return {
            "base": np.array([self.base]),
            "signal": self.signal.astype(np.float64),
            "threshold": self.threshold,
            "value": self.value,
        }

    @classmethod
    def restored(cls, arrays: dict[str, Float64]) -> Boosted:
        """The trees of a state."""
        return cls(float(arrays["base"][0]), arrays["signal"].astype(np.int64), arrays["threshold"], arrays["value"])


def fit_boosted(
    signals: Float64,
    correct: Flags,
    penalty: float = 1.0,
    *,
    rounds: int = 60,
    rate: float = 0.1,
    depth: int = 2,
    bins: int = 64,
) -> Boosted:
    """Newton boosting of the logistic loss with Platt targets.

    Args:
        penalty: added to the curvature of every leaf: pseudo-counts against large values.
    """
    targets = platt_targets(correct)
    mean = float(targets.mean())
    base = float(np.log(mean / (1 - mean)))
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1])) for column in signals.T]
    binned = np.stack([np.searchsorted(e, c, side="left") for e, c in zip(edges, signals.T, strict=True)], axis=1)
    nodes = 2 ** (depth + 1) - 1
    shape = (rounds, nodes)
    trees = Boosted(base, np.zeros(shape, np.int64), np.full(shape, np.inf), np.zeros(shape))
    logit = np.full(len(signals), base)
    for tree in range(rounds):
        probability = expit(logit)
        pull, curve = targets - probability, probability * (1 - probability)
        leaf = _grow(trees, tree, binned, edges, pull, curve, (penalty, rate, depth, bins))
        logit += trees.value[tree, leaf]
    return trees


def _grow(
    trees: Boosted,
    tree: int,
    binned: Indices,
    edges: list[Float64],
    pull: Float64,
    curve: Float64,
    how: tuple[float, float, int, int],
) -> Indices:
    """Fill one tree level by level; the leaf of every sample."""
    penalty, rate, depth, bins = how
    node = np.zeros(len(binned), dtype=np.int64)
    for level in range(depth):
        for one in range(2**level - 1, 2 ** (level + 1) - 1):
            rows = np.flatnonzero(node == one)
            signal, cut = _best_split(binned[rows], pull[rows], curve[rows], penalty, bins, edges)
            trees.signal[tree, one] = signal
            if cut >= 0:
                trees.threshold[tree, one] = edges[signal][cut]
            right = binned[rows, signal] > cut if cut >= 0 else np.zeros(len(rows), dtype=bool)
            node[rows] = 2 * one + 1 + right
            for child, inside in ((2 * one + 1, rows[~right]), (2 * one + 2, rows[right])):
                # A node without samples keeps its parent's value.
                step = rate * pull[inside].sum() / (curve[inside].sum() + penalty)
                trees.value[tree, child] = step if len(inside) else trees.value[tree, one]
    return node


def _best_split(
    binned: Indices, pull: Float64, curve: Float64, penalty: float, bins: int, edges: list[Float64]
) -> tuple[int, int]:
    """(signal, last bin that goes left) of largest gain, bin -1 where no split helps."""
    best, found = 1e-9, (0, -1)
    for signal, known in enumerate(edges):
        left_pull = np.bincount(binned[:, signal], pull, bins)[: len(known)].cumsum()
        left_curve = np.bincount(binned[:, signal], curve, bins)[: len(known)].cumsum()
        right_pull, right_curve = pull.sum() - left_pull, curve.sum() - left_curve
        gain = (
            left_pull**2 / (left_curve + penalty)
            + right_pull**2 / (right_curve + penalty)
            - pull.sum() ** 2 / (curve.sum() + penalty)
        )
        if len(gain) and gain.max() > best:
            best, found = float(gain.max()), (signal, int(gain.argmax()))
    return found
