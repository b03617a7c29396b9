"""Fitted difficulties from their files, checked: what comes from outside is one clear line or a model that scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from confide.core import files
from confide.core.door import InputError
from confide.core.tensor_files import notes_of
from confide.difficulty.family import DIFFICULTY, Fitted
from confide.difficulty.saving import FORMAT

KINDS = {"method": str, "options": dict, "num_classes": int, "notes": list, "source": dict, "numbers": dict}
"""Of what kind the words in the header are."""


def load(path: str | Path) -> Fitted:
    """Read what `Fitted.save` wrote; it scores as the difficulty that was saved, to the last digit on a CPU."""
    header = notes_of(path)
    _check_format(path, header.get("format"))
    tensors, _ = files.read_checkpoint(path)
    try:
        return _restored(_words(header), tensors)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise InputError(f"{path} must be what `save` wrote, but it is not ({what}); fit and save again") from None


def _check_format(path: str | Path, found: str | None) -> None:
    if found == FORMAT:
        return
    is_other_version = found is not None and found.startswith("difficulty/")
    mend = "use the version of confide that wrote it" if is_other_version else "give a fitted difficulty that was saved"
    raise InputError(f"{path} must be of format '{FORMAT}', got {_short(found)}; {mend}, or fit again")


def _short(value: Any) -> str:
    return repr(value)[:60]


def _words(header: Mapping[str, str]) -> dict[str, Any]:
    if "digest" not in header:
        raise ValueError("it has no digest")
    words = {name: json.loads(header[name]) for name in KINDS}
    for name, kind in KINDS.items():
        if not isinstance(words[name], kind) or isinstance(words[name], bool):
            raise TypeError(f"{name} is {_short(words[name])}")
    if not all(isinstance(note, str) for note in words["notes"]):
        raise TypeError("notes must be lines of text")
    return words


def _restored(words: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    word = words["method"]
    restore = DIFFICULTY.get(word).facts.get("restore") if word in DIFFICULTY else None
    if restore is None:
        raise ValueError(f"it was fitted by {_short(word)}, which cannot be loaded by this version")
    # Copies: the file may go, and a difficulty that was loaded must not change with it.
    arrays = {name: np.array(tensor.numpy()) for name, tensor in tensors.items()}
    model = restore(words["numbers"], arrays, tuple(words["notes"]))
    classes = getattr(model, "num_classes", max(words["num_classes"], 0))
    if classes != words["num_classes"]:
        raise ValueError(f"num_classes must be {classes}, got {words['num_classes']}")
    return Fitted(word, words["options"], model, words["num_classes"], words["source"])
