"""Tensors to a safetensors file; what the disk refuses is an OSError, as with every other file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from confide.core.door import InputError


def save_tensors(tensors: dict[str, Any], path: Path, notes: dict[str, str]) -> None:
    """Write contiguous CPU tensors that share no memory, with notes in the header."""
    try:
        save_file(tensors, str(path), metadata=notes)
    except SafetensorError as error:
        # The library hides the system's error in one of its own; only its number is left, in words.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path.parent)) from None


def notes_of(path: str | Path) -> dict[str, str]:
    """The notes in a file's header; no tensor is read, however large a foreign file may be."""
    if not Path(path).is_file():
        raise InputError(f"{path} must be a safetensors file, but there is no such file; check the path")
    try:
        with safe_open(str(path), framework="pt") as archive:
            return dict(archive.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} must be a whole safetensors file, but reading it failed: {error}") from None
