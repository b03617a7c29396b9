"""Names in a file of predictions: what people call labels, logits and probabilities, told as one layout.

A column says by its name whether it holds logits or probabilities; nothing is guessed from values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError

Columns = dict[str, NDArray[Any]]

LABEL_COLUMNS = ("label", "labels", "true_label", "y_true", "target", "targets", "y")
OUTPUT_COLUMNS = {"logits": ("logits",), "probs": ("probs", "probabilities")}
PREDICTED_COLUMNS = ("pred_label", "prediction")
# Of class 1 alone; beside a predicted class they may as well be its confidence, so there they stay unread.
BINARY_COLUMNS = {"logits": ("logit",), "probs": ("prob", "probability", "p")}
NUMBERED_COLUMNS = {"logits": re.compile(r"logits?_?(\d+)"), "probs": re.compile(r"p(?:rob(?:s|ability)?)?_?(\d+)")}
NAMED_COLUMNS = {"logits": re.compile(r"logits?_(.+)"), "probs": re.compile(r"prob(?:s|ability)?_(.+)")}


def pop_first(columns: Columns, names: Sequence[str]) -> NDArray[Any] | None:
    """The first of these columns that is there, taken out."""
    return next((columns.pop(name) for name in names if name in columns), None)


def take_outputs(columns: Columns, where: str) -> tuple[dict[str, NDArray[Any]], tuple[str, ...] | None]:
    """Logits or probabilities, taken out of the columns, and the classes where columns are named by them.

    One column of all classes (`logits`, `probs`), a column a class by number (`logit_0`, `p0`), or by name
    (`logit_cat`, `prob_cat`), in the order of the file.
    """
    for kind, names in OUTPUT_COLUMNS.items():
        if (whole := pop_first(columns, names)) is not None:
            # Columns by number beside a whole one say the same again; they are no columns of the user.
            _pop_matching(columns, NUMBERED_COLUMNS["probs"])
            return {kind: _check_numbers(whole, kind, where)}, None
    for kind, pattern in NUMBERED_COLUMNS.items():
        if numbered := _pop_matching(columns, pattern):
            return {kind: _in_order(numbered, pattern, where)}, None
    for kind, pattern in NAMED_COLUMNS.items():
        a_class_each = [name for name in columns if pattern.fullmatch(name)]
        if len(a_class_each) > 1:
            classes = tuple(pattern.sub(r"\1", name) for name in a_class_each)
            return {kind: np.stack([columns.pop(name) for name in a_class_each], axis=1)}, classes
    for kind, single in BINARY_COLUMNS.items():
        if not set(PREDICTED_COLUMNS) & set(columns) and (whole := pop_first(columns, single)) is not None:
            return {kind: _check_numbers(whole, kind, where)}, None
    return {}, None


def _check_numbers(values: NDArray[Any], kind: str, where: str) -> NDArray[Any]:
    if are_words(values):
        short = {"logits": "logit", "probs": "prob"}[kind]
        raise InputError(
            f"{kind} of {where} must be numbers, got the text '{str(values.flat[0])[:24]}'; "
            f"give a column for every class: {short}_0, {short}_1, ..."
        )
    return values


def _pop_matching(columns: Columns, pattern: re.Pattern[str]) -> Columns:
    return {name: columns.pop(name) for name in list(columns) if pattern.fullmatch(name)}


def _in_order(numbered: Columns, pattern: re.Pattern[str], where: str) -> NDArray[Any]:
    order = sorted(numbered, key=lambda name: int(pattern.sub(r"\1", name)))
    if [int(pattern.sub(r"\1", name)) for name in order] != list(range(len(order))):
        lone = "call one of class 1 alone 'logits' or 'probs'" if len(order) == 1 else "add what is missing"
        raise InputError(
            f"{where} must have a column for every class, numbered from 0, got {', '.join(order[:6])}; {lone}"
        )
    return np.stack([numbered[name] for name in order], axis=1)


def class_names_of(
    columns: Columns, metadata: Mapping[str, str], named: tuple[str, ...] | None, width: int
) -> tuple[str, ...] | None:
    """Names of the classes: of the columns, of the metadata, or an array `class_names` beside them."""
    if named is not None:
        return named
    if "class_names" in metadata:
        return tuple(json.loads(metadata["class_names"]))
    if "class_names" in columns and columns["class_names"].shape == (width,):
        return tuple(str(name) for name in columns.pop("class_names").tolist())
    return None


def are_words(values: NDArray[Any]) -> bool:
    """Whether a column holds words instead of numbers."""
    return values.dtype.kind in "US" or (
        values.dtype == object and len(values) > 0 and all(isinstance(value, str) for value in values.flat)
    )


def class_indices_of(words: NDArray[Any], classes: tuple[str, ...] | None, where: str) -> NDArray[np.int64]:
    """Class indices of labels that are words; their order must be known from the names of the classes."""
    told = [str(word).strip() for word in words.tolist()]
    if classes is None:
        first = told[0] if told else ""
        raise InputError(
            f"labels of {where} are words such as '{first}', but nothing says which column is which class; "
            f"call them logit_{first}, ... or prob_{first}, ..., add an array 'class_names', or give class indices"
        )
    place = {name: k for k, name in enumerate(classes)}
    known = np.array([place.get(word, -1) for word in told], dtype=np.int64)
    if (known < 0).any():
        bad = int((known < 0).argmax())
        raise InputError(
            f"labels of {where} must be among the classes {', '.join(classes[:6])}{', ...' * (len(classes) > 6)}, "
            f"got '{told[bad]}' at sample {bad} of {len(told)}; mend it or drop that sample"
        )
    return known
