"""Thresholds of multilabel predictions, one a label: by cost, by F, or with a promised precision; what then holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError, check_range
from confide.decisions.rules import DecisionRule
from confide.evaluation.operating_points import Outcomes
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted
from confide.predictions import LABEL_NAME, SAMPLE, Predictions
from confide.records import Ids
from confide.types import Floats

GROWTH = 1.25
"""Each part that is tested for a promised precision holds so many times the samples of the one before."""


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Which labels hold for each sample: `holds` `n c`, rows in the order of `ids`, columns in that of `names`."""

    ids: Ids
    names: tuple[str, ...]
    holds: NDArray[np.bool_]

    def of(self, row: int) -> tuple[str, ...]:
        """The labels that hold for one sample."""
        return tuple(name for name, own in zip(self.names, self.holds[row], strict=True) if own)

    def save(self, path: str | Path) -> None:
        """Write a table with `id` and a column of 0 and 1 for every label."""
        columns = {name: self.holds[:, k].astype(np.int64) for k, name in enumerate(self.names)}
        formats.write_table(path, {"id": self.ids, **columns})


@dataclass(frozen=True)
class LabelThresholds:
    """A label holds where its probability is above its threshold; None where nothing is promised: it never does.

    `by` says how they were chosen. Of a promised precision, `promised` and `confidence` hold for all labels together.
    """

    thresholds: Mapping[str, float | None]
    by: str
    n: int
    promised: float | None = None
    confidence: float | None = None
    notes: tuple[str, ...] = ()

    def __call__(self, predictions: Predictions) -> LabelSets:
        """The labels that hold for each sample; a label that is not there, or is not known here, does not hold."""
        probs, rows, places, samples, names = label_cells(predictions)
        if unknown := [name for name in names if name not in self.thresholds]:
            raise InputError(f"these thresholds know no label '{unknown[0]}'; make them with all labels")
        limits = np.array([math.inf if (t := self.thresholds[name]) is None else t for name in names])
        holds = np.zeros((len(samples), len(names)), dtype=bool)
        holds[rows, places] = probs > limits[places]
        return LabelSets(samples, names, holds)

    def save(self, path: str | Path) -> None:
        """Write as JSON, atomically."""
        record = {**vars(self), "thresholds": dict(self.thresholds), "notes": list(self.notes)}
        save_fitted(path, formats.LABEL_THRESHOLDS, FittedState(record))

    @classmethod
    def load(cls, path: str | Path) -> LabelThresholds:
        """What `save` wrote."""

        def restored(state: FittedState) -> LabelThresholds:
            record = dict(state.record)
            record.pop("format", None)
            limits = {str(k): None if v is None else float(v) for k, v in record.pop("thresholds").items()}
            return cls(limits, **{**record, "notes": tuple(record["notes"])})

        return load_fitted(path, formats.LABEL_THRESHOLDS, restored)


def label_cells(
    predictions: Predictions,
) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp], Ids, tuple[str, ...]]:
    """Probability, row and column of every cell, with the samples and labels in the order in which they come."""
    if not predictions.is_multilabel:
        raise InputError(
            f"thresholds of labels need multilabel predictions, got {predictions!r}; "
            "make them with Predictions.multilabel, or use operating_point"
        )
    probs = predictions.probabilities()[:, 1].double().cpu().numpy()
    samples, rows = _in_order(predictions.columns[SAMPLE])
    names, places = _in_order(predictions.columns[LABEL_NAME])
    return probs, rows, places, samples, tuple(str(name) for name in names)


def _in_order(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Different values in the order in which they come, and the place of each."""
    unique, first, index = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return unique[order], place[index.reshape(-1)]


def label_thresholds(
    predictions: Predictions,
    *,
    costs: Any = None,
    f_beta: float | None = None,
    precision: float | None = None,
    confidence: float = 0.95,
) -> LabelThresholds:
    """A threshold for every label, by one of three ways: cost, F-beta, or a promised precision.

    By cost t = false_alarm / (false_alarm + miss), the best there is if the probabilities are calibrated. By F-beta the
    t with the largest F on these samples, which looks better here than it will elsewhere. With a promised precision the
    lowest t that exact tests allow, from the surest samples on, at the level (1 - confidence) / c: with that confidence
    all labels keep the promise.

    Args:
        predictions: multilabel, labelled, not of the test split.
        costs: {"miss": 20, "false_alarm": 1}, or such by label name.
        f_beta: how many times recall counts as precision: 1 for F1.
        precision: the share of claims that must be right, of every label.
        confidence: of the promise.

    Returns:
        `LabelThresholds`: called with multilabel predictions it gives the labels that hold; it has `save`.

    Raises:
        InputError: not exactly one way is given, or the predictions are not multilabel.

    Example:
        >>> rows = [[3.0, -2.0], [2.0, 1.0], [-1.0, 2.0], [-3.0, -1.0]] * 20
        >>> p = confide.Predictions.multilabel(rows, [[1, 0], [1, 0], [0, 1], [0, 0]] * 20, label_names=["cat", "dog"])
        >>> made = confide.evaluation.label_thresholds(p, costs={"miss": 3, "false_alarm": 1})
        >>> made.thresholds
        {'cat': 0.25, 'dog': 0.25}
        >>> made(p).of(1)
        ('cat', 'dog')
    """
    ways = [
        name for name, value in (("costs", costs), ("f_beta", f_beta), ("precision", precision)) if value is not None
    ]
    if len(ways) != 1:
        raise InputError(f"thresholds of labels need one of costs, f_beta and precision, got {len(ways)}; give one")
    predictions.need_not_test("thresholds of labels")
    predictions.need_unweighted("a choice of thresholds of labels")
    probs, _, places, samples, names = label_cells(predictions)
    n = len(samples)
    if costs is not None:
        limits = {name: _cost_threshold(costs, name) for name in names}
        return LabelThresholds(limits, "cost", n)
    holds = predictions.labels.cpu().numpy().astype(bool)
    parts = {name: (probs[places == k], holds[places == k]) for k, name in enumerate(names)}
    if f_beta is not None:
        check_range(f_beta, "f_beta", 0.0, low_open=True)
        best = {name: _best_f(*part, f_beta) for name, part in parts.items()}
        none = [name for name, part in parts.items() if not part[1].any()]
        notes = (f"no sample has the labels {', '.join(none[:5])}: these never hold",) if none else ()
        return LabelThresholds(best, f"F{f_beta:g}", n, notes=notes)
    assert precision is not None
    check_range(precision, "precision", 0.0, 1.0, low_open=True, high_open=True)
    check_range(confidence, "confidence", 0.0, 1.0, low_open=True, high_open=True)
    delta = (1 - confidence) / len(names)
    promised = {name: _promised(*part, precision, delta) for name, part in parts.items()}
    short = [name for name, limit in promised.items() if limit is None]
    notes = (
        (f"no threshold passed its tests for {len(short)} of {len(names)} labels: {', '.join(short[:5])}",)
        if short
        else ()
    )
    return LabelThresholds(promised, "precision", n, precision, confidence, notes)


def _cost_threshold(costs: Any, name: str) -> float:
    by_name = isinstance(costs, Mapping) and any(isinstance(value, Mapping) for value in costs.values())
    if by_name and name not in costs:
        raise InputError(f"costs by label must name every label, got none for '{name}'; add it")
    threshold = DecisionRule.of(costs[name] if by_name else costs, 2).threshold
    if threshold is None:
        raise InputError(f"costs of label '{name}' must make errors dearer than being right; give miss and false_alarm")
    return float(threshold)


def _best_f(probs: Floats, holds: NDArray[np.bool_], beta: float) -> float | None:
    """The middle between the last claimed and the first not claimed of the largest F; None without a sample."""
    if not holds.any():
        return None
    order = np.argsort(-probs, kind="stable")
    falling, hits = probs[order], np.cumsum(holds[order])
    claimed = np.arange(1, len(probs) + 1)
    scores = (1 + beta**2) * hits / (claimed + beta**2 * holds.sum())
    ends = np.append(falling[1:] != falling[:-1], True)
    best = int(np.flatnonzero(ends)[np.argmax(scores[ends])])
    below = falling[best + 1] if best + 1 < len(falling) else 0.0
    return float((falling[best] + below) / 2)


def _promised(probs: Floats, holds: NDArray[np.bool_], precision: float, delta: float) -> float | None:
    """The lowest threshold that fixed-sequence tests of the precision allow; sizes are chosen without the labels."""
    falling, best = np.sort(probs)[::-1], None
    size = math.ceil(math.log(delta) / math.log(precision))  # fewer could not pass even without an error
    while size <= len(falling):
        tried = Outcomes(probs, ~holds, None).at(float(falling[size - 1]), delta)
        if tried.bound > 1 - precision:
            break
        best = np.nextafter(tried.threshold, -math.inf)  # a label holds above it
        size = max(size + 1, math.ceil(tried.accepted * GROWTH))
    return None if best is None else float(best)
