"""Calibrators of a yes or no, one class against the rest or the top class against all: `platt`, `venn_abers`,
`centred_isotonic`, `top_versus_all`.

A map of one number has two functions: its fit on scores and hits gives tensors of one dimension, its application takes
them, or those of many maps stacked, to scores. One against the rest normalises the classes' values by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from confide.calibrators.base import CALIBRATORS, FittedValues, Values, log_odds, with_log_odds
from confide.calibrators.probability_maps import (
    all_tops,
    class_columns,
    interpolated,
    isotonic_map,
    normalised,
    padded,
)
from confide.facts import SMALLEST_PROBABILITY
from confide.numerics.logistic import fit_logistic
from confide.types import Flags, Floats, Labels, Logits, Probs

Tables = dict[str, Floats]


@dataclass(frozen=True)
class BinaryMap:
    """A map of one number: `fit(scores, hits, weights) -> tables`, `apply(tensors, scores) -> probabilities`."""

    fit: Callable[[Floats, Flags, Floats | None], Tables]
    apply: Callable[[Values, Probs], Probs]


# Platt: sigmoid(a u + b) of the log odds u, with targets that keep the fit finite.


def platt_line(scores: Floats, hits: Flags, weights: Floats | None = None) -> Tables:
    """Slope and shift of the log odds by logistic regression with Platt's targets."""
    odds = np.log(_inside(scores)) - np.log1p(-_inside(scores))
    fitted = fit_logistic(odds[:, None], hits, penalty=0.0, weights=weights)
    slope = fitted.weight / fitted.deviation
    return {"slope": slope, "shift": np.array([fitted.bias]) - slope * fitted.mean}


def _inside(scores: Floats) -> Floats:
    return np.clip(scores, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)


def apply_line(values: Values, scores: Probs) -> Probs:
    """sigmoid(slope u + shift)."""
    return torch.sigmoid(values["slope"] * finite_logit(scores) + values["shift"])


def finite_logit(probs: Probs) -> Tensor:
    """log p / (1 - p), with p kept off 0 and 1 by as little as its digits allow."""
    return torch.logit(probs, SMALLEST_PROBABILITY if probs.dtype == torch.float64 else 1e-7)


# Centred isotonic regression: every step of the isotonic one becomes a point at its centre, joined by lines.


def centred_nodes(scores: Floats, hits: Flags, weights: Floats | None = None) -> Tables:
    """Mean score and level of every step."""
    points, counts, right = outcomes_by_score(scores, hits, weights)
    fitted = isotonic_regression(right / counts, weights=counts)
    # Steps of one level are one step, also where rounding parts them.
    starts = fitted.blocks[:-1]
    starts = starts[np.append(True, np.diff(np.asarray(fitted.x)[starts]) > 1e-12)]
    nodes = np.add.reduceat(points * counts, starts) / np.add.reduceat(counts, starts)
    return {"nodes": nodes, "levels": np.asarray(fitted.x)[starts]}


def outcomes_by_score(scores: Floats, hits: Flags, weights: Floats | None) -> tuple[Floats, Floats, Floats]:
    """The different scores, how many samples have each, and how many of these are hits; by weight."""
    points, place = np.unique(scores, return_inverse=True)
    right = hits if weights is None else hits * weights
    counts, hit_counts = (np.bincount(place, values).astype(np.float64) for values in (weights, right))
    return points, counts, hit_counts


def step_nodes(scores: Floats, hits: Flags, weights: Floats | None = None) -> Tables:
    """Nodes of plain isotonic regression."""
    nodes, levels = isotonic_map(scores, hits, weights) if hits.any() else (scores[:1], np.zeros(1))
    return {"nodes": nodes, "levels": levels}


def apply_nodes(values: Values, scores: Probs) -> Probs:
    """Piecewise linear, constant outside."""
    return interpolated(values["nodes"], values["levels"], scores)


# Venn-Abers: isotonic regression with the new point as a miss (p0) and as a hit (p1); p1 / (1 - p0 + p1).

BEYOND = 2.0
"""Above every probability: what short lists of scores are filled up with."""


@dataclass(frozen=True, eq=False)
class _Steps:
    """Isotonic regressions of the first i groups for every i, as one tree of steps: `top[i]` is the last step, each
    step knows its weight, hits and the one before it (-1: none).
    """

    top: NDArray[np.int64]
    weight: Floats
    hits: Floats
    before: NDArray[np.int64]

    @classmethod
    def of(cls, weights: Floats, hits: Floats) -> _Steps:
        top: list[int] = [-1]
        weight: list[float] = []
        total: list[float] = []
        before: list[int] = []
        for w, h in zip(weights.tolist(), hits.tolist(), strict=True):
            last = top[-1]
            while last >= 0 and total[last] * w >= h * weight[last]:
                w, h, last = w + weight[last], h + total[last], before[last]
            top.append(len(weight))
            weight.append(w)
            total.append(h)
            before.append(last)
        return cls(np.array(top), np.array(weight), np.array(total), np.array(before, dtype=np.int64))


def venn_abers_table(scores: Floats, hits: Flags, weights: Floats | None = None) -> Tables:
    """The probability at every place a new score can take: between two known ones (even) or on one (odd).

    The new point weighs 1, as much as the known ones do on average.
    """
    points, weight, total = outcomes_by_score(scores, hits, weights)
    left = _Steps.of(weight, total)
    # From the right a step must fall: the same with misses for hits.
    right = _Steps.of(weight[::-1], (weight - total)[::-1])
    m = len(points)
    at = np.arange(2 * m + 1)
    own = (at % 2 == 1).astype(np.float64)
    known = np.minimum(at // 2, m - 1)
    start = [left.top[at // 2], right.top[m - (at + 1) // 2]]
    low, high = (
        _merged(1 + own * weight[known], label + own * total[known], left, right, *start) for label in (0.0, 1.0)
    )
    return {"scores": points, "table": high / (1 - low + high)}


def _merged(
    weight: Floats, hits: Floats, left: _Steps, right: _Steps, before: NDArray[np.int64], after: NDArray[np.int64]
) -> Floats:
    """Level of the step that holds the new point, at all places at once: neighbours out of order are pooled."""
    before, after = before.copy(), after.copy()
    while True:
        pool_left = (before >= 0) & (left.hits[before] * weight >= hits * left.weight[before])
        rows = np.flatnonzero(pool_left)
        steps = before[rows]
        weight[rows], hits[rows] = weight[rows] + left.weight[steps], hits[rows] + left.hits[steps]
        before[rows] = left.before[steps]
        hits_right = right.weight[after] - right.hits[after]
        pool_right = (after >= 0) & (hits_right * weight <= hits * right.weight[after])
        others = np.flatnonzero(pool_right)
        steps = after[others]
        weight[others], hits[others] = weight[others] + right.weight[steps], hits[others] + hits_right[others]
        after[others] = right.before[steps]
        if not len(rows) and not len(others):
            return np.asarray(hits / weight)


def rounded_table(scores: Floats, hits: Flags, weights: Floats | None = None) -> Tables:
    """The table of scores in single precision: equal ones must stay equal, however they were computed."""
    return venn_abers_table(scores.astype(np.float32).astype(np.float64), hits, weights)


def apply_table(values: Values, scores: Probs) -> Probs:
    """The table's entry at the place of every score."""
    known, table, scores = values["scores"], values["table"], scores.float().to(values["scores"].dtype)
    if torch.onnx.is_in_onnx_export():
        # ONNX has no binary search.
        below, at_most = ((sign(known[..., None, :], scores[..., None])).sum(dim=-1) for sign in (torch.lt, torch.le))
    else:
        below, at_most = (torch.searchsorted(known, scores.contiguous(), right=right) for right in (False, True))
    index = below + at_most
    return table[index] if table.dim() == 1 else table.gather(1, index)


BINARY_MAPS = {
    "platt": BinaryMap(platt_line, apply_line),
    "isotonic": BinaryMap(step_nodes, apply_nodes),
    "centred_isotonic": BinaryMap(centred_nodes, apply_nodes),
    "venn_abers": BinaryMap(rounded_table, apply_table),
}


# One class against the rest.


def fit_one_versus_rest(logits: Logits, labels: Labels, weights: Floats | None, word: str) -> FittedValues:
    """The map of every class, stacked."""
    maps, known, fit = [], labels.numpy(), BINARY_MAPS[word].fit
    for first, probs in class_columns(logits):
        maps += [fit(np.array(column), known == k, weights) for k, column in enumerate(probs, start=first)]
    return FittedValues({name: _stacked(name, [tables[name] for tables in maps]) for name in maps[0]})


def _stacked(name: str, rows: list[Floats]) -> Tensor:
    if name != "scores":
        return padded(rows) if name in ("nodes", "levels", "table") else torch.from_numpy(np.stack(rows))
    width = max(map(len, rows))
    filled = [np.append(row, np.linspace(BEYOND, BEYOND + 1, width - len(row))) for row in rows]
    return torch.from_numpy(np.stack(filled))


def one_versus_rest(word: str) -> Callable[[Values, Logits], Logits]:
    """The transform of a map of every class, normalised by row."""

    def transform(values: Values, logits: Logits) -> Logits:
        probs = torch.softmax(logits, dim=1)
        return normalised(BINARY_MAPS[word].apply(values, probs.T.contiguous()).T, logits)

    return transform


@CALIBRATORS.add(
    "platt",
    paper="Platt, 1999, Probabilistic outputs for support vector machines",
    title="Platt scaling",
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 2, 0),
    transform=one_versus_rest("platt"),
)
def platt(logits: Logits, labels: Labels, weights: Floats | None = None) -> FittedValues:
    """Platt scaling, q_k proportional to sigmoid(a_k u_k + b_k) with u_k the log odds of class k.

    When: two classes, or pairs of confidence and correctness without logits.
    When not: one temperature will do.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("platt", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.77]
    """
    return fit_one_versus_rest(logits, labels, weights, "platt")


@CALIBRATORS.add(
    "venn_abers",
    paper="Vovk and Petej, 2014, arXiv:1211.0025; Vovk et al., 2015, arXiv:1511.00213",
    title="Venn-Abers calibration",
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 10, 0),
    transform=one_versus_rest("venn_abers"),
)
def venn_abers(logits: Logits, labels: Labels, weights: Floats | None = None) -> FittedValues:
    """Venn-Abers, q_k proportional to p1 / (1 - p0 + p1), isotonic fits with the new point as a miss and as a hit.

    Both fits at every place between the known scores are made at once, in time n log n.

    When: probabilities must hold on average whatever the model, with two classes.
    When not: classes are many: its ECE on clean CIFAR-10 was above that of one temperature.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("venn_abers", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.76]
    """
    return fit_one_versus_rest(logits, labels, weights, "venn_abers")


@CALIBRATORS.add(
    "centred_isotonic",
    paper="Oron and Flournoy, 2017, arXiv:1701.05964",
    title="centred isotonic calibration",
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 10, 0),
    transform=one_versus_rest("centred_isotonic"),
)
def centred_isotonic(logits: Logits, labels: Labels, weights: Floats | None = None) -> FittedValues:
    """Centred isotonic regression, isotonic steps drawn together to their centres, lines between them, per class.

    When: the map of a probability must be monotone, without steps, and samples are many.
    When not: samples are few: its NLL was near that of the raw network on CIFAR-10.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("centred_isotonic", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    return fit_one_versus_rest(logits, labels, weights, "centred_isotonic")


# The top class against all others.


def apply_top(values: Values, logits: Logits) -> Logits:
    """The mapped confidence of the top class; the others share the rest as before."""
    lead = logits.argmax(dim=1)
    kind = "platt" if "slope" in values else "venn_abers" if "table" in values else "isotonic"
    confidence = torch.sigmoid(log_odds(logits, lead))
    mapped = BINARY_MAPS[kind].apply(values, confidence)
    return with_log_odds(logits, lead, finite_logit(mapped))


@CALIBRATORS.add(
    "top_versus_all",
    paper="Le Coz et al., 2024, arXiv:2411.02988",
    title="top-versus-all calibration",
    corners=({"method": "platt"}, {"method": "venn_abers"}, {"method": "centred_isotonic"}),
    choices={"method": tuple(BINARY_MAPS)},
    keeps_argmax=True,
    yields="probabilities",
    parameters=(10, 0, 0),
    transform=apply_top,
)
def top_versus_all(
    logits: Logits, labels: Labels, weights: Floats | None = None, *, method: str = "isotonic"
) -> FittedValues:
    """Top-versus-all, a calibrator of a yes or no on the top probability and whether it is right.

    When: classes are many and only the top confidence is used.
    When not: all probabilities are used.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        method: `isotonic` (the paper's best), `platt`, `centred_isotonic` or `venn_abers`.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("top_versus_all", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    confidence, predicted = all_tops(logits)
    tables = BINARY_MAPS[method].fit(confidence, predicted == labels.numpy(), weights)
    return FittedValues({name: _stacked(name, [table])[0] for name, table in tables.items()})
