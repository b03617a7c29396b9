"""npz files: `images labels`, or the same with a split in their names (`images_train`, `train_images`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.files import read_table
from confide.data.family import DATASETS, recognises
from confide.data.parts import SPLIT_WORDS, WHOLE, Found, Part, as_inputs

INPUT_WORDS = ("images", "inputs", "x", "data", "features", "texts", "text")
LABEL_WORDS = ("labels", "label", "y", "targets")
CLASS_WORDS = ("class_names", "classes", "label_names")


@DATASETS.add("npz", paper="format: NumPy's npz", takes="path")
def npz(path: Path, *, inputs: str | None = None, labels: str | None = None) -> Found:
    """Arrays of an npz file by name: inputs, labels, and where there are `ids`, `class_names` and other columns.

    Args:
        inputs: name of the array of inputs; the first of images, inputs, x, data, features, texts by default.
        labels: name of the array of labels; the first of labels, label, y, targets by default.
    """
    table, metadata = read_table(path)
    class_names = next((tuple(map(str, table.pop(word))) for word in CLASS_WORDS if word in table), None)
    groups = _by_split(table)
    parts = {
        split: _part(columns, inputs, labels, f"{path.name}, {split}" if split != WHOLE else path.name)
        for split, columns in groups.items()
    }
    facts = {"metadata": metadata} if metadata else {}
    return Found(parts, class_names, path.stem, facts)


recognises("npz", lambda path: path.is_file() and path.suffix == ".npz")


def _by_split(table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Arrays by split, without the split in their name; all in one when no name has one."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, values in table.items():
        words = name.split("_")
        if len(words) > 1 and words[-1].lower() in SPLIT_WORDS:
            split, rest = SPLIT_WORDS[words[-1].lower()], "_".join(words[:-1])
        elif len(words) > 1 and words[0].lower() in SPLIT_WORDS:
            split, rest = SPLIT_WORDS[words[0].lower()], "_".join(words[1:])
        else:
            split, rest = WHOLE, name
        groups.setdefault(split, {})[rest] = values
    named = {split: columns for split, columns in groups.items() if split != WHOLE}
    return named or {WHOLE: dict(table)}


def _part(columns: dict[str, NDArray[Any]], inputs: str | None, labels: str | None, where: str) -> Part:
    inputs = _pick(columns, inputs, INPUT_WORDS, "inputs", where)
    labels = _pick(columns, labels, LABEL_WORDS, "labels", where)
    n = len(columns[inputs])
    rest = {
        name: values
        for name, values in columns.items()
        if name not in (inputs, labels, "ids") and np.ndim(values) > 0 and len(values) == n
    }
    return Part(as_inputs(columns[inputs], where), columns[labels], columns.get("ids"), rest)


def _pick(columns: Mapping[str, NDArray[Any]], asked: str | None, words: tuple[str, ...], what: str, where: str) -> str:
    known = {name.lower(): name for name in columns}
    for word in (asked,) if asked is not None else words:
        if word.lower() in known:
            return known[word.lower()]
    tried = f"'{asked}'" if asked is not None else "one of " + ", ".join(words)
    raise InputError(
        f"{where} must have an array of {what} named {tried}, got {', '.join(columns) or 'nothing'}; "
        f"name it with the option {what}"
    )
