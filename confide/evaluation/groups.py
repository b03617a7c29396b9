"""Groups of samples: by class, by difficulty, by a column of the predictions or of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, did_you_mean
from confide.core.predictions import Predictions
from confide.metrics.view import View

MOST_GROUPS = 100
FIFTHS = ("easiest fifth", "second fifth", "middle fifth", "fourth fifth", "hardest fifth")
MEAN_FACTS = ("accuracy", "confidence_gap", "nll", "brier")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which group every sample is in."""

    kind: str
    names: tuple[str, ...]
    index: NDArray[np.intp]

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.index, minlength=len(self.names))

    def label(self, group: int) -> str:
        """As it stands in a measurement: `class=Shirt`."""
        return f"{self.kind}={self.names[group]}"


def class_groups(predictions: Predictions) -> Grouping:
    """One group per class of the labels; classes without samples are left out of the table later."""
    count = max(predictions.num_classes, int(predictions.labels.max()) + 1)
    names = predictions.class_names or ()
    words = tuple(str(names[k]) if k < len(names) else str(k) for k in range(count))
    return Grouping("class", words, predictions.labels.cpu().numpy().astype(np.intp))


def difficulty_groups(difficulty: Floats) -> Grouping:
    """Fifths by rank of difficulty; fewer than five samples give fewer groups."""
    index = np.empty(len(difficulty), dtype=np.intp)
    index[np.argsort(difficulty, kind="stable")] = np.arange(len(difficulty)) * len(FIFTHS) // len(difficulty)
    return Grouping("difficulty", FIFTHS, index)


def column_groups(name: str, values: Any) -> Grouping:
    """One group per value of a column."""
    array = np.asarray(values)
    if array.dtype == object:
        array = array.astype(np.str_)
    unique, index = np.unique(array, return_inverse=True)
    if len(unique) > MOST_GROUPS:
        raise InputError(
            f"column '{name}' must have at most {MOST_GROUPS} different values to group by, got {len(unique)}; "
            "cut it into ranges first"
        )
    return Grouping(name, tuple(str(v) for v in unique), index.reshape(-1).astype(np.intp))


def groupings(predictions: Predictions, by: Any, difficulty: Floats | None) -> list[Grouping]:
    """The groupings asked for: "class", "difficulty", a column's name, {name: values}, or a list of these."""
    if by is None:
        return []
    if isinstance(by, Mapping):
        return [column_groups(str(k), _checked(str(k), v, len(predictions))) for k, v in by.items()]
    words = [by] if isinstance(by, str) else list(by)
    found = []
    for word in words:
        if word == "class":
            found.append(class_groups(predictions))
        elif word == "difficulty":
            if difficulty is None:
                raise InputError("by='difficulty' needs scores=; pass the Scores of these samples")
            found.append(difficulty_groups(difficulty))
        elif word in predictions.columns:
            found.append(column_groups(word, predictions.columns[word]))
        else:
            known = ("class", "difficulty", *predictions.columns)
            raise InputError(f"cannot group by '{word}'; {did_you_mean(str(word), known)}")
    return found


def _checked(name: str, values: Any, n: int) -> NDArray[Any]:
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.shape != (n,):
        raise InputError(f"column '{name}' must have {n} values, one per sample, got shape {array.shape}")
    return array


def facts_for_means(predictions: Predictions) -> tuple[str, ...]:
    """Which of the means can be had from these predictions."""
    return MEAN_FACTS if predictions.facts.nll is not None else MEAN_FACTS[:2]


def group_means(view: View, grouping: Grouping) -> Floats:
    """Means of accuracy, confidence gap, NLL and Brier in every group, group by group, flat; NaN where empty."""
    index, size, weights = view.base.cut(grouping.index), len(grouping.names), view.weights
    total = np.bincount(index, weights, minlength=size)

    def mean(name: str) -> Floats:
        values = view.base.vector(name)
        sums = np.bincount(index, values if weights is None else weights * values, minlength=size)
        return np.asarray(np.divide(sums, total, out=np.full(size, np.nan), where=total > 0))

    right = mean("correct")
    rows = [right, mean("sureness") - right]
    if view.predictions.facts.nll is not None:
        rows += [mean("nll"), mean("brier")]
    return np.stack(rows, axis=1).reshape(-1)
