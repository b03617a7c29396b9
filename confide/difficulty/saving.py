"""A fitted difficulty on disk: one .safetensors file, numbers as tensors, words as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core import files
from confide.core.door import InputError

FORMAT = "difficulty/1"
Arrays = dict[str, NDArray[Any]]
State = tuple[dict[str, Any], Arrays]
"""What a model is made of: plain numbers and words, and arrays."""


def write(path: str | Path, words: Mapping[str, Any], arrays: Arrays) -> None:
    """Write words and arrays as one file, atomically, with a digest of everything in it."""
    check_ending(path)
    try:
        text = {name: json.dumps(files.plain(value), allow_nan=False) for name, value in words.items()}
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"options and source of a difficulty must be plain JSON values to be saved, but: {error}"
        ) from None
    tensors = {name: torch.from_numpy(np.array(values, order="C")) for name, values in arrays.items()}
    files.write_checkpoint(path, tensors, {"format": FORMAT, **text})


def check_ending(path: str | Path) -> None:
    """Only one format is written; whoever wants another should know before the fit."""
    if Path(path).suffix != ".safetensors":
        raise InputError(f"{path} must end in .safetensors to hold a fitted difficulty, got '{Path(path).suffix}'")


def need_arrays(arrays: Arrays, kinds: Mapping[str, str]) -> None:
    """Exactly these arrays, each of its dtype, not empty and finite."""
    if set(arrays) != set(kinds):
        raise ValueError(f"it must hold {', '.join(sorted(kinds))}, got {', '.join(sorted(arrays))[:200] or 'nothing'}")
    for name, kind in kinds.items():
        if arrays[name].dtype != np.dtype(kind):
            raise ValueError(f"{name} must be {kind}, got {arrays[name].dtype}")
        if not arrays[name].size or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} must be finite numbers, got {'others' if arrays[name].size else 'none'}")


def need_shape(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape of an array; None stands for any length."""
    found = arrays[name].shape
    if len(found) != len(shape) or any(
        wanted not in (None, length) for wanted, length in zip(shape, found, strict=True)
    ):
        wanted_text = " x ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"{name} must be {wanted_text} numbers, got {' x '.join(map(str, found))}")
    return tuple(found)


def need_counts(counts: NDArray[np.int64]) -> None:
    """Numbers of samples by class: none below zero, not all zero."""
    if int(counts.min()) < 0 or not counts.any():
        raise ValueError(f"counts must be numbers of samples, got {int(counts.min())} to {int(counts.max())}")
