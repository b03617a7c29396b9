"""Records of the official CIFAR binaries: label bytes, then 3 x 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def read_records(files: Sequence[Path], label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images `n 3 32 32` and labels `n label_bytes` of these files, in the original order."""
    length = label_bytes + PIXELS
    blocks = []
    for file in files:
        content = np.fromfile(file, dtype=np.uint8)
        if len(content) == 0 or len(content) % length:
            raise InputError(
                f"{file} must hold records of {length} bytes, got {len(content)} bytes; it is cut short: delete it"
            )
        blocks.append(content.reshape(-1, length))
    records = np.concatenate(blocks)
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, SIDE, SIDE)
    return images, records[:, :label_bytes].astype(np.int64)


def read_names(file: Path) -> tuple[str, ...]:
    """Class names, one per line."""
    return tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
