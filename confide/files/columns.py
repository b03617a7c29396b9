"""Columns of a file of predictions: what people call ids, labels, logits and probabilities, and which is which.

A column says by its name whether it holds logits or probabilities; nothing is guessed from values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError
from confide.types import Columns

LABEL_COLUMNS = ("label", "labels", "true_label", "y_true", "target", "targets", "y")
ID_COLUMNS = ("id", "ids")
WEIGHT_COLUMN = "sample_weight"
"""The only name that is used unasked: a `weight` may be a patient's."""
FEATURE_COLUMNS = ("features", "values", "embeddings")
# Of data to train on. The names of labels are others than in a file of predictions, and tried in another order.
INPUT_COLUMNS = (
    *("image", "images", "img", "inputs", "x", "data", "features"),
    *("text", "texts", "sentence", "utterance", "query", "question", "content", "review"),
)
DATASET_LABEL_COLUMNS = ("label", "labels", "category", "intent", "class", "fine_label", "y", "target", "targets")
OUTPUT_COLUMNS = {"logits": ("logits",), "probs": ("probs", "probabilities")}
PREDICTED_COLUMNS = ("pred_label", "prediction", "predicted", "y_pred")
CORRECT_COLUMNS = ("correct", "is_correct", "correctness")
"""Read only where a file names no class: pairs of confidence and correctness."""
CONFIDENCE_COLUMNS = ("confidence", "conf")
SCORE_COLUMNS = ("score", "prob", "probability", "p")
"""A confidence beside correctness alone: where classes are named they may be something else."""
# Of class 1 alone; beside a predicted class they may as well be its confidence, so there they stay unread.
BINARY_COLUMNS = {"logits": ("logit",), "probs": ("prob", "probability", "p")}
NUMBERED_COLUMNS = {"logits": re.compile(r"logits?_?(\d+)"), "probs": re.compile(r"p(?:rob(?:s|ability)?)?_?(\d+)")}
NAMED_COLUMNS = {"logits": re.compile(r"logits?_(.+)"), "probs": re.compile(r"prob(?:s|ability)?_(.+)")}


CANONICAL_COLUMNS = {
    **{"label": "label", "id": "id", "prediction": "pred_label", "confidence": "confidence", "correct": "correct"},
    **{"logits": "logits", "probs": "probs", "weight": WEIGHT_COLUMN},
}
"""Role -> the name that is always understood."""
ROLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "label": LABEL_COLUMNS,
    "id": ID_COLUMNS,
    "prediction": PREDICTED_COLUMNS,
    "confidence": (*CONFIDENCE_COLUMNS, *SCORE_COLUMNS),
    "correct": CORRECT_COLUMNS,
    "weight": (WEIGHT_COLUMN,),
    "logits": (*OUTPUT_COLUMNS["logits"], *OUTPUT_COLUMNS["probs"], *SCORE_COLUMNS, *BINARY_COLUMNS["logits"]),
    "probs": (*OUTPUT_COLUMNS["logits"], *OUTPUT_COLUMNS["probs"], *SCORE_COLUMNS, *BINARY_COLUMNS["logits"]),
}
"""Role -> names that may have it."""


def classes_of_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The classes that columns are named by, with or without what they hold: `prob_cat`, `cat`."""
    for pattern in NAMED_COLUMNS.values():
        if all(pattern.fullmatch(name) for name in names):
            return tuple(pattern.sub(r"\1", name) for name in names)
    return tuple(names)


def columns_by_class(outputs: Columns, class_names: Sequence[str], beside: Iterable[str]) -> Columns:
    """Logits or probabilities as a column a class that names it, where these can be told from the columns beside."""
    [(short, values)] = outputs.items()
    kind = "logits" if short == "logit" else "probs"
    named = {f"{short if kind == 'logits' else 'prob'}_{name}": values[:, k] for k, name in enumerate(class_names)}
    try:
        known = column_roles([*beside, *named], "the file").outputs
    except InputError:  # a class is called by a number, which is not its index
        return outputs
    return named if known is not None and (known.kind, known.classes) == (kind, tuple(class_names)) else outputs


def first_column(columns: Mapping[str, NDArray[Any]], names: Sequence[str], otherwise: Any = None) -> Any:
    """The first of these columns that is there."""
    return next((columns[name] for name in names if name in columns), otherwise)


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Logits that a text file held as double, back in the float32 they were, in which a softmax rounds otherwise."""
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values) else values


@dataclass(frozen=True)
class OutputColumns:
    """Columns of logits or probabilities: one of all classes (or of class 1), or one a class, in their order."""

    kind: str  # "logits" or "probs"
    names: tuple[str, ...]
    classes: tuple[str, ...] | None = None  # where the columns are named by them

    def values(self, columns: Mapping[str, NDArray[Any]], where: str) -> NDArray[Any]:
        """The outputs, `n c` or `n`."""
        if len(self.names) > 1:
            values = np.stack([columns[name] for name in self.names], axis=1)
            return _narrow(values) if self.kind == "logits" and values.dtype == np.float64 else values
        values = columns[self.names[0]]
        if are_words(values):
            short = {"logits": "logit", "probs": "prob"}[self.kind]
            raise InputError(
                f"{self.kind} of {where} must be numbers, got the text '{str(values.flat[0])[:24]}'; "
                f"give a column for every class: {short}_0, {short}_1, ..."
            )
        return values


@dataclass(frozen=True)
class ColumnRoles:
    """Which column of a file of predictions holds what, by its name; `others` are columns of the user."""

    label: str | None
    id: str | None
    outputs: OutputColumns | None
    prediction: str | None
    confidence: str | None
    correct: str | None
    trust: str | None
    weight: str | None
    others: tuple[str, ...]

    @property
    def are_predictions(self) -> bool:
        """Whether a model's outputs are there: all of them, or a confidence with its class or without any."""
        return self.outputs is not None or self.are_pairs or None not in (self.prediction, self.confidence)

    @property
    def are_pairs(self) -> bool:
        """Whether they are confidences that name no class, with or without whether they were right."""
        return self.confidence is not None and not (self.label or self.prediction or self.outputs)


def column_roles(names: Iterable[str], where: str) -> ColumnRoles:
    """Who is who among the columns of a file; no value is read."""
    left = list(names)

    def one_of(candidates: Sequence[str], what: str) -> str | None:
        present = [name for name in candidates if name in left]
        if len(present) > 1:
            raise InputError(
                f"{where} must have one column that holds {what}, got '{present[0]}' and '{present[1]}'; "
                "drop or rename one of them"
            )
        return present[0] if present else None

    label, sample_id = one_of(LABEL_COLUMNS, "the label"), one_of(ID_COLUMNS, "the id")
    prediction, trust = one_of(PREDICTED_COLUMNS, "the predicted class"), one_of(("trust",), "the trust")
    weight = one_of((WEIGHT_COLUMN,), "the weights")
    judged = any(name in left for name in CORRECT_COLUMNS)
    # Beside an answer that was judged and no label, `p` is the confidence in it, not the probability of a class 1.
    classes = [name for name in left if not (judged and label is None and name in SCORE_COLUMNS)]
    outputs = _find_outputs(classes, where)
    if outputs is None and not (label and prediction) and (judged or not (label or prediction)):
        confidence = one_of((*CONFIDENCE_COLUMNS, *SCORE_COLUMNS * judged), "the confidence")
        correct = one_of(CORRECT_COLUMNS, "whether the answer was right")
        if confidence is not None:
            # What was asked and answered, such as the words of a label, stays a column of the user.
            label = prediction = None
    else:
        confidence, correct = one_of(CONFIDENCE_COLUMNS, "the confidence"), None
    taken = {label, sample_id, prediction, confidence, correct, trust, weight, *(outputs.names if outputs else ())}
    if outputs and outputs.names[0] in OUTPUT_COLUMNS[outputs.kind]:
        # Columns by number beside a whole one say the same again; they are no columns of the user.
        taken |= {name for name in left if NUMBERED_COLUMNS["probs"].fullmatch(name)}
    others = tuple(name for name in left if name not in taken)
    return ColumnRoles(label, sample_id, outputs, prediction, confidence, correct, trust, weight, others)


def _find_outputs(names: Sequence[str], where: str) -> OutputColumns | None:
    """One column of all classes (`logits`, `probs`), a column a class by number (`logit_0`, `p0`) or by name
    (`logit_cat`, `prob_cat`), in the order of the file, or one of class 1 alone (`logit`, `prob`).
    """
    for kind, whole in OUTPUT_COLUMNS.items():
        if present := [name for name in whole if name in names]:
            return OutputColumns(kind, (present[0],))
    for kind, pattern in NUMBERED_COLUMNS.items():
        if numbered := [name for name in names if pattern.fullmatch(name)]:
            return OutputColumns(kind, _in_order(numbered, pattern, where))
    for kind, pattern in NAMED_COLUMNS.items():
        a_class_each = tuple(name for name in names if pattern.fullmatch(name))
        if len(a_class_each) > 1:
            return OutputColumns(kind, a_class_each, tuple(pattern.sub(r"\1", name) for name in a_class_each))
    for kind, binary in BINARY_COLUMNS.items():
        if not set(PREDICTED_COLUMNS) & set(names) and (present := [name for name in binary if name in names]):
            if len(present) > 1:
                raise InputError(
                    f"{where} must have one column with the probability of class 1, got '{present[0]}' and "
                    f"'{present[1]}'; drop or rename one of them"
                )
            return OutputColumns(kind, (present[0],))
    return None


def _in_order(numbered: list[str], pattern: re.Pattern[str], where: str) -> tuple[str, ...]:
    order = sorted(numbered, key=lambda name: int(pattern.sub(r"\1", name)))
    if [int(pattern.sub(r"\1", name)) for name in order] != list(range(len(order))):
        lone = "call one of class 1 alone 'logits' or 'probs'" if len(order) == 1 else "add what is missing"
        raise InputError(
            f"{where} must have a column for every class, numbered from 0, got {', '.join(order[:6])}; {lone}"
        )
    return tuple(order)


def class_names_of(
    columns: Columns, metadata: Mapping[str, str], named: tuple[str, ...] | None, width: int
) -> tuple[str, ...] | None:
    """Names of the classes: of the columns, of the metadata, or an array `class_names` beside them."""
    if named is not None:
        return named
    if "class_names" in metadata:
        return names_in(metadata["class_names"])
    if "class_names" in columns and columns["class_names"].shape == (width,):
        return tuple(str(name) for name in columns.pop("class_names").tolist())
    return None


def names_in(text: str) -> tuple[str, ...] | None:
    """Class names of a file's metadata; what another program keeps under that name is none of ours."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, (str, int)) for name in names):
        return None
    return tuple(map(str, names))


def are_words(values: NDArray[Any]) -> bool:
    """Whether a column holds words instead of numbers."""
    return values.dtype.kind in "US" or (
        values.dtype == object and len(values) > 0 and all(isinstance(value, str) for value in values.flat)
    )


def class_indices_of(words: NDArray[Any], classes: tuple[str, ...] | None, where: str) -> NDArray[np.int64]:
    """Class indices of labels that are words; their order must be known from the names of the classes."""
    names = [str(word).strip() for word in words.tolist()]
    if classes is None:
        first = names[0] if names else ""
        raise InputError(
            f"labels of {where} are words such as '{first}', but nothing says which column is which class; "
            f"call them logit_{first}, ... or prob_{first}, ..., add an array 'class_names', or give class indices"
        )
    place = {name: k for k, name in enumerate(classes)}
    known = np.array([place.get(word, -1) for word in names], dtype=np.int64)
    if (known < 0).any():
        bad = int((known < 0).argmax())
        raise InputError(
            f"labels of {where} must be among the classes {', '.join(classes[:6])}{', ...' * (len(classes) > 6)}, "
            f"got '{names[bad]}' at sample {bad} of {len(names)}; mend it or drop that sample"
        )
    return known
