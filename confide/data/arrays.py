"""Arrays in memory: one pair, one mapping, or one of either per split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confide.core.door import InputError
from confide.data.family import DATASETS
from confide.data.parts import SPLIT_WORDS, WHOLE, Found, Part, as_inputs


@DATASETS.add("arrays", paper="arrays, tensors, lists or data-frame columns in memory", takes="memory")
def arrays(values: Any) -> Found:
    """Arrays in memory: `(inputs, labels)`, `{"inputs": ..., "labels": ..., "ids": ...}`, or one of these per split."""
    if isinstance(values, Mapping) and values and all(str(key) in SPLIT_WORDS for key in values):
        parts = {SPLIT_WORDS[str(key)]: _part(value, str(key)) for key, value in values.items()}
        if len(parts) < len(values):
            raise InputError(f"splits must have different names, got {', '.join(map(str, values))}; rename one")
        return Found(parts, name="arrays")
    return Found({WHOLE: _part(values, WHOLE)}, name="arrays")


def _part(values: Any, where: str) -> Part:
    if isinstance(values, Mapping):
        missing = [key for key in ("inputs", "labels") if key not in values]
        if missing:
            raise InputError(
                f"arrays of '{where}' must have 'inputs' and 'labels', got {', '.join(map(str, values)) or 'nothing'}; "
                f"add '{missing[0]}'"
            )
        columns = {str(k): np.asarray(v) for k, v in values.items() if k not in ("inputs", "labels", "ids")}
        ids = np.asarray(values["ids"]) if values.get("ids") is not None else None
        return Part(as_inputs(values["inputs"], where), values["labels"], ids, columns)
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2:
        return Part(as_inputs(values[0], where), values[1])
    raise InputError(
        f"arrays of '{where}' must be (inputs, labels) or a mapping with both, got {type(values).__name__}; "
        "for example load_dataset((images, labels))"
    )
