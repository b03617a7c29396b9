"""Arrays in memory and in npz files: one set, or one per split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError
from confide.data.base import (
    DATASETS,
    SPLIT_WORDS,
    WHOLE,
    ColumnNames,
    RawDataset,
    RawSplit,
    as_inputs,
    recognises,
)
from confide.files.formats import read_table
from confide.records import Provenance

# ---- In memory: one pair, one mapping, or one of either per split ----


@DATASETS.add("arrays", paper="arrays, tensors, lists or data-frame columns in memory", takes="memory")
def arrays(values: Any) -> RawDataset:
    """Arrays in memory: `(inputs, labels)`, `{"inputs": ..., "labels": ..., "ids": ...}`, or one of these per split.

    When: data are in memory: a notebook, a frame, tensors.
    When not: they do not fit into memory: take parquet or a folder.

    Args:
        values: the arrays; tensors, lists and data-frame columns will do.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where inputs or labels are missing.

    Example:
        >>> import numpy as np
        >>> from confide import data
        >>> raw = data.arrays({"train": (np.eye(6), [0, 1] * 3), "test": (np.eye(6), [0, 1] * 3)})
        >>> list(raw.parts)
        ['train', 'test']
    """
    if isinstance(values, Mapping) and values and all(str(key) in SPLIT_WORDS for key in values):
        parts = {SPLIT_WORDS[str(key)]: _part_in_memory(value, str(key)) for key, value in values.items()}
        if len(parts) < len(values):
            raise InputError(f"splits must have different names, got {', '.join(map(str, values))}; rename one")
        return RawDataset(parts, name="arrays")
    return RawDataset({WHOLE: _part_in_memory(values, WHOLE)}, name="arrays")


def _part_in_memory(values: Any, where: str) -> RawSplit:
    if isinstance(values, Mapping):
        missing = [key for key in ("inputs", "labels") if key not in values]
        if missing:
            raise InputError(
                f"arrays of '{where}' must have 'inputs' and 'labels', got {', '.join(map(str, values)) or 'nothing'}; "
                f"add '{missing[0]}'"
            )
        columns = {str(k): np.asarray(v) for k, v in values.items() if k not in ("inputs", "labels", "ids")}
        ids = np.asarray(values["ids"]) if values.get("ids") is not None else None
        return RawSplit(as_inputs(values["inputs"], where), values["labels"], ids, columns)
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2:
        return RawSplit(as_inputs(values[0], where), values[1])
    raise InputError(
        f"arrays of '{where}' must be (inputs, labels) or a mapping with both, got {type(values).__name__}; "
        "for example load_dataset((images, labels))"
    )


# ---- npz files: `images labels`, or the same with a split in their names (`images_train`, `train_images`) ----

CLASS_WORDS = ("class_names", "classes", "label_names")


@DATASETS.add("npz", paper="format: NumPy's npz", takes="path")
def npz(path: Path, *, inputs: str | None = None, labels: str | None = None) -> RawDataset:
    """Arrays of an npz file by name: inputs, labels, and where there are `ids`, `class_names` and other columns.

    When: arrays saved by NumPy.
    When not: they do not fit into memory.

    Args:
        path: of the file.
        inputs: name of the array of inputs; the first of images, inputs, x, features, texts and the like by default.
        labels: name of the array of labels; the first of labels, y, targets and the like by default.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: for a file without inputs or labels.

    Example:
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from confide import data
        >>> np.savez("small.npz", images=np.zeros((4, 8, 8), dtype=np.uint8), labels=[0, 1, 0, 1])
        >>> data.npz(Path("small.npz")).parts["all"].inputs.shape
        (4, 1, 8, 8)
    """
    table, metadata = read_table(path)
    class_names = next((tuple(map(str, table.pop(word))) for word in CLASS_WORDS if word in table), None)
    names = ColumnNames(inputs, labels)
    parts = {
        split: _part_of_arrays(columns, names, f"{path.name}, {split}" if split != WHOLE else path.name)
        for split, columns in arrays_by_split(table).items()
    }
    return RawDataset(parts, class_names, path.stem, Provenance(metadata=metadata))


recognises("npz", lambda path: path.is_file() and path.suffix == ".npz")


def arrays_by_split(table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
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


def _part_of_arrays(columns: dict[str, NDArray[Any]], names: ColumnNames, where: str) -> RawSplit:
    inputs, labels = names.pick(columns, where)
    shape = np.shape(columns[inputs])[:1]
    others = (item for item in columns.items() if item[0] not in (inputs, labels, "ids"))
    rest = {name: values for name, values in others if np.shape(values)[:1] == shape}
    return RawSplit(as_inputs(columns[inputs], where), columns[labels], columns.get("ids"), rest)
