"""npz files: `images labels`, or the same with a split in their names (`images_train`, `train_images`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.files import read_table
from confide.data.columns import INPUTS, LABELS, pick
from confide.data.family import DATASETS, recognises
from confide.data.parts import SPLIT_WORDS, WHOLE, Found, Part, as_inputs

CLASS_WORDS = ("class_names", "classes", "label_names")


@DATASETS.add("npz", paper="format: NumPy's npz", takes="path")
def npz(path: Path, *, inputs: str | None = None, labels: str | None = None) -> Found:
    """Arrays of an npz file by name: inputs, labels, and where there are `ids`, `class_names` and other columns.

    Args:
        inputs: name of the array of inputs; the first of images, inputs, x, features, texts and the like by default.
        labels: name of the array of labels; the first of labels, y, targets and the like by default.
    """
    table, metadata = read_table(path)
    class_names = next((tuple(map(str, table.pop(word))) for word in CLASS_WORDS if word in table), None)
    groups = by_split(table)
    parts = {
        split: _part(columns, inputs, labels, f"{path.name}, {split}" if split != WHOLE else path.name)
        for split, columns in groups.items()
    }
    facts = {"metadata": metadata} if metadata else {}
    return Found(parts, class_names, path.stem, facts)


recognises("npz", lambda path: path.is_file() and path.suffix == ".npz")


def by_split(table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
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
    inputs = pick(columns, inputs, INPUTS, "inputs", where)
    labels = pick(columns, labels, LABELS, "labels", where)
    n = len(columns[inputs])
    rest = {
        name: values
        for name, values in columns.items()
        if name not in (inputs, labels, "ids") and np.ndim(values) > 0 and len(values) == n
    }
    return Part(as_inputs(columns[inputs], where), columns[labels], columns.get("ids"), rest)
