"""Decisions by cost: the action with the smallest expected cost under the probabilities, and whom to ask.

Costs stand in a matrix, a row a true class and a column an action; gains are costs below zero. The expected cost of an
action is sum over classes of p_k cost_k. Asking a person costs something too, and only so many can be asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, as_tensor, check_number
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted
from confide.metrics.base import calibration_test
from confide.metrics.influence import Influence, mean_interval, spread_of
from confide.metrics.view import Design
from confide.predictions import Predictions, class_values, class_words, label_doubt, probability_blocks
from confide.results import LEVEL, BreakEvenPoint, DecisionResult, Measurement
from confide.types import Floats

ASK = -1
"""The action of a sample that a person is asked about."""
POINTS = 100
"""Steps of the break-even curve."""
FEW = 10
"""Below so many samples with an unusual cost, a normal interval of the mean is not to be believed."""
PURPOSE = "a decision by cost"
TWO_CLASSES = ("miss", "false_alarm")


def cost_matrix(costs: Any, num_classes: int) -> Floats:
    """The cost of every action (column) for every true class (row).

    Args:
        costs: that matrix, `c` rows; or c numbers, what an error costs by true class; or one number, what any error
            costs; or {"miss": 20, "false_alarm": 1} for two classes, of which class 1 is the one to find.
        num_classes: c.

    Returns:
        `c a`.

    Raises:
        InputError: another shape, or numbers that are not finite.

    Example:
        >>> confide.decisions.cost_matrix({"miss": 20, "false_alarm": 1}, 2).tolist()
        [[0.0, 1.0], [20.0, 0.0]]
        >>> confide.decisions.cost_matrix([1, 2, 5], 3).tolist()
        [[0.0, 1.0, 1.0], [2.0, 0.0, 2.0], [5.0, 5.0, 0.0]]
    """
    if not num_classes:
        raise InputError(
            "decisions by cost need the probabilities of all classes, but these predictions name no class; give "
            "logits or probs, or choose what to accept with: confide operating-point"
        )
    if isinstance(costs, Mapping):
        if num_classes != 2 or set(costs) != set(TWO_CLASSES):
            raise InputError(
                f"costs by name must be miss and false_alarm of two classes, got {', '.join(map(str, costs))} for "
                f"{num_classes} classes; give a matrix, a row a true class"
            )
        costs = [costs["false_alarm"], costs["miss"]]
    values: Floats = as_tensor(costs, "costs").double().cpu().numpy()
    if not np.isfinite(values).all():
        raise InputError("costs must be finite numbers, got NaN or infinity; give a large number instead")
    if values.ndim == 0 or values.shape == (num_classes,):
        return np.where(np.eye(num_classes, dtype=bool), 0.0, np.broadcast_to(values, num_classes)[:, None])
    if values.ndim != 2 or len(values) != num_classes or not values.shape[1]:
        shape = " x ".join(map(str, values.shape))
        raise InputError(
            f"costs must have a row for each of the {num_classes} true classes and a column an action, or a number a "
            f"class, got {shape}; check which way round they are"
        )
    return values


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """What to do by cost: `rule(predictions)` gives an action for every sample.

    `costs` is `c a`, by true class and action; `abstain` c numbers, what asking a person costs by true class, or None
    where nobody is asked; at most `capacity` samples of a call are asked about.
    """

    costs: Floats
    abstain: Floats | None = None
    capacity: int | None = None
    actions: tuple[str, ...] | None = None
    """What the actions are called; the classes where left out."""

    @classmethod
    def of(
        cls, costs: Any, num_classes: int, abstain: Any = None, capacity: int | None = None, actions: Any = None
    ) -> DecisionRule:
        """A rule of checked costs; with a capacity alone, asking costs nothing."""
        matrix = cost_matrix(costs, num_classes)
        if actions is not None and len(actions) != matrix.shape[1]:
            raise InputError(f"actions must be {matrix.shape[1]} names, one a column of the costs, got {len(actions)}")
        capacity = check_number(capacity, "capacity", None, 0, math.inf)
        if capacity is not None and capacity != int(capacity):
            raise InputError(f"capacity must be a whole number of samples, got {capacity!r}")
        asking = None
        if abstain is not None or capacity is not None:
            asking = as_tensor(0.0 if abstain is None else abstain, "abstain").double().cpu().numpy()
            if asking.shape not in ((), (num_classes,)) or not np.isfinite(asking).all():
                raise InputError(
                    f"abstain must be one finite number, or one for each of {num_classes} classes, got {abstain!r:.60}"
                )
            asking = np.broadcast_to(asking, num_classes).copy()
        names = None if actions is None else tuple(map(str, actions))
        return cls(matrix, asking, None if capacity is None else int(capacity), names)

    @property
    def threshold(self) -> float | None:
        """For two classes: class 1 is decided where its probability is above this; None where it is no threshold."""
        if self.costs.shape != (2, 2) or self.abstain is not None:
            return None
        false_alarm, miss = self.costs[0, 1] - self.costs[0, 0], self.costs[1, 0] - self.costs[1, 1]
        return float(false_alarm / (false_alarm + miss)) if false_alarm > 0 and miss > 0 else None

    def __call__(self, predictions: Predictions, *, model: str = "model", stage: str = "raw") -> Decisions:
        class_values(predictions, PURPOSE)
        if len(self.costs) != predictions.num_classes:
            raise InputError(
                f"the costs are of {len(self.costs)} classes, got predictions of {predictions.num_classes}; "
                "give a row for every class"
            )
        if not len(predictions):
            raise InputError("a decision needs at least one prediction, got none")
        n = len(predictions)
        best, own, asking = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
        for rows, probs in probability_blocks(predictions, PURPOSE):
            chances = probs.astype(np.float64)
            costs = chances @ self.costs
            best[rows] = costs.argmin(axis=1)
            own[rows] = np.take_along_axis(costs, best[rows, None], axis=1)[:, 0]
            asking[rows] = np.inf if self.abstain is None else chances @ self.abstain
        saving = own - asking
        deferred = saving > 0
        if self.capacity is not None:
            deferred[np.argsort(-saving, kind="stable")[self.capacity :]] = False
        actions = np.where(deferred, ASK, best)
        expected = np.where(deferred, asking, own)
        order = np.argsort(-(own if self.abstain is None else saving), kind="stable")
        result = self._result(predictions, actions, best, own, expected, order)
        return Decisions(
            torch.from_numpy(actions), torch.from_numpy(expected), replace(result, model=model, stage=stage), self
        )

    def _result(
        self,
        predictions: Predictions,
        actions: NDArray[np.int64],
        best: NDArray[np.int64],
        own: Floats,
        expected: Floats,
        order: NDArray[np.intp],
    ) -> DecisionResult:
        n, deferred = len(actions), actions == ASK
        names = self.actions or (
            class_words(predictions) if self.costs.shape[1] == len(self.costs) else map(str, range(self.costs.shape[1]))
        )
        weights = predictions.relative_weights
        design = Design(weights, clusters=predictions.clusters)
        counts = np.bincount(
            best[~deferred], None if weights is None else weights[~deferred], minlength=self.costs.shape[1]
        )
        shares = {name: float(count / n) for name, count in zip(names, counts, strict=True)}
        if self.abstain is not None:
            shares["ask"] = float(np.average(deferred, weights=weights))
        measured = saved = true_own = None
        warnings = list(self._doubts(predictions))
        if predictions.has_labels:
            labels = predictions.labels.cpu().numpy()
            true_own = self.costs[labels, best]
            real = true_own if self.abstain is None else np.where(deferred, self.abstain[labels], true_own)
            measured = _mean_cost("measured_cost", real, design)
            warnings += _cost_doubts(expected, real, design)
            if self.costs.shape[1] == len(self.costs):
                likeliest = self.costs[labels, predictions.facts.prediction.cpu().numpy()]
                saved = _mean_cost("saved_cost", likeliest - real, design)
        return DecisionResult(
            n=n,
            shares=shares,
            expected=_mean_cost("expected_cost", expected, design),
            measured=measured,
            saved=saved,
            deferred=int(deferred.sum()),
            threshold=self.threshold,
            break_even=_break_even(own, true_own, order, weights),
            warnings=tuple(warnings),
        )

    def _doubts(self, predictions: Predictions) -> list[str]:
        """What a person should know before believing the expected cost."""
        doubts = []
        if self.costs.shape[1] == len(self.costs):
            odd = np.flatnonzero(np.diag(self.costs) > self.costs.min(axis=1))
            if len(odd):
                names = ", ".join(class_words(predictions)[k] for k in odd[:3])
                doubts.append(f"deciding the true class is not the cheapest for {names}; rows are true classes")
        if not predictions.has_labels:
            return [*doubts, "without labels neither the measured cost nor the calibration of these samples is known"]
        if doubt := label_doubt(predictions):
            doubts.append(doubt)
        if predictions.clusters is not None and not predictions.clusters.any():
            return [
                *doubts,
                f"all samples lie in one '{predictions.unit}': neither their calibration nor an interval is known",
            ]
        p_value = calibration_test(predictions, "ece").p_value
        if p_value < LEVEL:
            doubts.append(
                f"the probabilities fail the calibration test (p = {p_value:.2g}): expected costs may be off, "
                "and other decisions cheaper; calibrate first"
            )
        return doubts

    def save(self, path: str | Path) -> None:
        """Write as JSON, atomically."""
        abstain = None if self.abstain is None else self.abstain.tolist()
        record = {"costs": self.costs.tolist(), "abstain": abstain, "capacity": self.capacity, "actions": self.actions}
        save_fitted(path, formats.DECISIONS, FittedState(record))


@dataclass(frozen=True, eq=False)
class Decisions:
    """What to do with every sample, -1 to ask about it, what that is expected to cost, and the summary of all."""

    actions: Tensor
    costs: Tensor
    """Expected cost of every sample's action."""
    result: DecisionResult
    rule: DecisionRule

    def __repr__(self) -> str:
        questions = int(self.deferred.sum())
        return f"<Decisions: {len(self.actions):,} samples, {questions:,} of them to ask about; {self.expected_cost}>"

    @property
    def deferred(self) -> Tensor:
        """Which samples a person is asked about."""
        return self.actions == ASK

    @property
    def expected_cost(self) -> Measurement:
        """Mean expected cost with its 95 % interval."""
        return self.result.expected

    @property
    def measured_cost(self) -> Measurement | None:
        """Mean cost by the labels with its 95 % interval; None without labels."""
        return self.result.measured

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before believing the expected cost."""
        return self.result.warnings


def decide(
    predictions: Predictions,
    costs: Any,
    abstain: Any = None,
    capacity: int | None = None,
    *,
    actions: Any = None,
    model: str = "model",
    stage: str = "raw",
) -> Decisions:
    """The action of smallest expected cost, argmin over a of sum_k p_k costs[k, a], for every sample.

    Args:
        predictions: calibrated ones; with labels the cost is measured too, and the calibration tested.
        costs: a matrix, a row a true class and a column an action; or what an error costs by true class; or one
            number; or {"miss": 20, "false_alarm": 1} for two classes. Gains are costs below zero.
        abstain: what asking a person costs, one number or one a true class; left out, nobody is asked.
        capacity: at most so many of these samples are asked about, those where it saves most; without `abstain`
            asking costs nothing.
        actions: names of the columns, where they are not the classes.
        model: whose predictions they are, for a report.
        stage: of the predictions.

    Returns:
        `Decisions`: `actions` (-1 where a person is asked), `expected_cost` and `measured_cost` with 95 % intervals,
        `warnings`, and `result` with shares, threshold and break-even curve.

    Raises:
        InputError: costs of the wrong shape, or predictions without all probabilities.

    Example:
        >>> p = confide.Predictions.from_probs([[0.97, 0.03], [0.9, 0.1], [0.2, 0.8]])
        >>> decided = confide.decisions.decide(p, {"miss": 20, "false_alarm": 1})
        >>> decided.actions.tolist(), round(decided.result.threshold, 4)
        ([0, 1, 1], 0.0476)
        >>> confide.decisions.decide(p, {"miss": 20, "false_alarm": 1}, capacity=1).deferred.tolist()
        [False, True, False]
    """
    if not isinstance(predictions, Predictions):
        raise InputError(f"decisions are made on Predictions, got {type(predictions).__name__}; wrap them")
    rule = DecisionRule.of(costs, predictions.num_classes, abstain, capacity, actions)
    return rule(predictions, model=model, stage=stage)


def load(path: str | Path) -> DecisionRule:
    """The rule that `save` wrote.

    Args:
        path: a .json file.

    Returns:
        The `DecisionRule`, to be called with predictions.

    Raises:
        InputError: the file is missing, damaged, of another kind, or of a newer confide.

    Example:
        >>> p = confide.Predictions.from_probs([[0.97, 0.03], [0.9, 0.1]])
        >>> confide.decisions.decide(p, [1, 20]).rule.save("rule.json")
        >>> confide.decisions.load("rule.json")(p).actions.tolist()
        [0, 1]
    """

    def restored(state: FittedState) -> DecisionRule:
        record = state.record
        return DecisionRule.of(
            record["costs"], len(record["costs"]), record["abstain"], record["capacity"], record["actions"]
        )

    return load_fitted(path, formats.DECISIONS, restored)


def _mean_cost(name: str, costs: Floats, design: Design) -> Measurement:
    """The mean with Student's 95 % interval over the samples, or over what was drawn as one."""
    n, mean = len(costs), float(np.average(costs, weights=design.weights))
    if n < 2 or design.single:
        return Measurement(name, mean, n)
    bounds = mean_interval(mean, spread_of(Influence(costs - mean), design))
    return Measurement(name, mean, n, bounds=bounds)


def _cost_doubts(expected: Floats, real: Floats, design: Design) -> list[str]:
    """Where the labels cost otherwise than the probabilities say, and where too few samples tell what they cost."""
    doubts = []
    gap = _mean_cost("gap", real - expected, design)
    if gap.has_interval and not gap.low <= 0 <= gap.high:
        ends = sorted((abs(gap.low), abs(gap.high)))
        doubts.append(
            f"the decisions cost {abs(gap.value):.4g} a sample {'more' if gap.value > 0 else 'less'} than the "
            f"probabilities say (95 % {ends[0]:.4g} to {ends[1]:.4g})"
        )
    usual = np.unique(real, return_counts=True)[1].max()
    if len(real) - usual < FEW:
        doubts.append(
            f"only {len(real) - usual} of {len(real):,} samples cost other than the usual, so the interval of the "
            "measured cost is too narrow"
        )
    return doubts


def _break_even(
    own: Floats, real: Floats | None, order: NDArray[np.intp], weights: Floats | None
) -> tuple[BreakEvenPoint, ...]:
    """What remains to be paid when the first of this order are asked about, at up to a hundred shares."""
    n = len(own)
    counts = np.unique(np.round(np.linspace(0, n, min(POINTS, n) + 1)).astype(np.int64))
    times = np.ones(n) if weights is None else weights[order]
    shares = np.append(0.0, np.cumsum(times)) / n
    remaining = np.append(np.cumsum((own[order] * times)[::-1])[::-1], 0.0) / n
    left = None if real is None else np.append(np.cumsum((real[order] * times)[::-1])[::-1], 0.0) / n
    return tuple(
        BreakEvenPoint(
            float(shares[count]),
            # Asking about the next sample pays while it costs less than deciding it.
            float(own[order[min(count, n - 1)]]),
            float(remaining[count]),
            math.nan if left is None else float(left[count]),
        )
        for count in counts
    )
