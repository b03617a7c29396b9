"""Tensors to a safetensors file; what the disk refuses is an OSError, as with every other file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file


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
