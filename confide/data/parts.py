"""What a source hands over before the door has checked it: parts as they were found, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, check_finite
from confide.core.records import Ids

WHOLE = "all"
"""Name of the part of a source that came without splits."""

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True, eq=False)
class Part:
    """Samples as found: inputs, raw labels (class indices or class names), ids where the source has some."""

    inputs: Any
    labels: Any
    ids: Ids | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Found:
    """All that a source knows: parts by name (`train`, `val`, `test` or `all`), class names, facts of its making."""

    parts: Mapping[str, Part]
    class_names: tuple[str, ...] | None = None
    name: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    set_aside: tuple[tuple[str, str], ...] = ()


def as_inputs(values: Any, where: str) -> Any:
    """Inputs as every room expects them: uint8 images `n c h w`, float32 rows `n d`, or an object array of texts.

    Layout is told by shape: `n c h w` when the second dimension is 1, 3 or 4, `n h w c` when only the last is.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.dtype.kind in "UO":
        return _texts(array, where)
    if array.dtype.kind not in "uifb":
        raise InputError(f"inputs of '{where}' must be numbers or texts, got {array.dtype}; convert them")
    if array.ndim == 2:
        return _rows(array, where)
    return _images(array, where)


def _texts(array: NDArray[Any], where: str) -> NDArray[np.object_]:
    texts = array.astype(object)
    bad = [i for i, text in enumerate(texts.reshape(-1)) if not isinstance(text, str)]
    if texts.ndim != 1 or bad:
        came = f"{type(texts.reshape(-1)[bad[0]]).__name__} at sample {bad[0]}" if bad else f"shape {texts.shape}"
        raise InputError(
            f"inputs of '{where}' must be arrays of numbers or one text per sample, got {came}; convert it"
        )
    return texts


def _rows(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    import torch

    rows = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(torch.from_numpy(rows), f"inputs of '{where}'")
    return rows


def _images(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if array.ndim not in (3, 4):
        raise InputError(
            f"inputs of '{where}' must be rows (n d) or images (n h w, n c h w, n h w c), got shape {array.shape}"
        )
    if array.dtype != np.uint8:
        raise InputError(
            f"images of '{where}' must be uint8 from 0 to 255, got {array.dtype}; "
            "for pixels from 0 to 1 give (255 * images).round().astype('uint8')"
        )
    if array.ndim == 3:
        return array[:, None]
    if array.shape[1] in (1, 3, 4):
        return array
    if array.shape[3] in (1, 3, 4):
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    raise InputError(f"images of '{where}' must have 1, 3 or 4 channels, got shape {array.shape}; give n c h w")


def default_ids_of(part: str, n: int) -> NDArray[np.str_]:
    """Ids of samples that came without: the name of the part and the position, such as `train-00017`."""
    prefix = "sample" if part == WHOLE else part
    return np.array([f"{prefix}-{i:05d}" for i in range(n)], dtype=np.str_)


def in_order(names: set[str]) -> tuple[str, ...]:
    """Class names sorted; numbers by value, so that class 10 comes after class 9."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def kind_of(inputs: Any) -> str:
    """`image`, `rows` or `text`, by shape and type."""
    if inputs.dtype == object:
        return "text"
    return "image" if len(inputs.shape) == 4 else "rows"
