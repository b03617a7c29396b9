"""MNIST, or any dataset laid out like it: four idx files, plain or packed by gzip."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.data.family import DATASETS, recognises
from confide.data.parts import Found, Part

PLACES = ("", "mnist", "MNIST", "MNIST/raw", "raw")
FILES = {"train": "train", "test": "t10k"}


@DATASETS.add("mnist", paper="LeCun et al., 1998, doi:10.1109/5.726791", takes="word")
def mnist(where: Path) -> Found:
    """MNIST, 60,000 / 10,000 grey images of 28 x 28 in 10 classes, from its idx files, in their order."""
    folder = _place(where)
    if folder is None:
        raise InputError(
            f"mnist must lie at {where / 'mnist'} as train-images-idx3-ubyte, t10k-images-idx3-ubyte and their labels "
            "(.gz will do), but it does not; put the four files there, or say where they are by folder= or CONFIDE_DATA"
        )
    parts = {}
    for split, prefix in FILES.items():
        images = _read(_file(folder, f"{prefix}-images", 3), 3)
        labels = _read(_file(folder, f"{prefix}-labels", 1), 1)
        if len(images) != len(labels):
            raise InputError(f"{folder} must have a label per image in '{split}', got {len(labels)} and {len(images)}")
        parts[split] = Part(images[:, None], labels.astype(np.int64))
    names = tuple(str(digit) for digit in range(1 + max(int(part.labels.max()) for part in parts.values())))
    name = "fashion-mnist" if "fashion" in str(folder).lower() else "mnist"
    return Found(parts, names, name, {"place": str(folder)})


def _candidates(folder: Path, stem: str, dimensions: int) -> list[Path]:
    return [folder / f"{stem}{sign}idx{dimensions}-ubyte{end}" for sign in "-." for end in ("", ".gz")]


def _file(folder: Path, stem: str, dimensions: int) -> Path:
    found = [file for file in _candidates(folder, stem, dimensions) if file.is_file()]
    if not found:
        raise InputError(f"{folder} must hold {stem}-idx{dimensions}-ubyte (or .gz), but it does not; add the file")
    return found[0]


def _place(where: Path) -> Path | None:
    places = (where / place for place in PLACES)
    return next((p for p in places if any(f.is_file() for f in _candidates(p, "train-images", 3))), None)


def _read(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """Bytes of an idx file: two zeros, type 8 (bytes), the number of dimensions, the sizes, the values."""
    header_bytes = 4 + 4 * dimensions
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as stream:
            header = stream.read(header_bytes)
            is_idx = len(header) == header_bytes and header[:4] == bytes((0, 0, 8, dimensions))
            shape = tuple(np.frombuffer(header[4:], dtype=">u4").astype(int).tolist()) if is_idx else ()
            # One byte more than promised: a file that is too long is found out without reading all of it.
            size = int(np.prod(shape)) if is_idx else 0
            values = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} must be a readable idx file, but: {error}; fetch it again") from None
    if not is_idx or len(values) != size or not size:
        raise InputError(
            f"{file} must be an idx file of bytes with {dimensions} dimensions, but it is not; fetch it again"
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(shape).copy()


recognises("mnist", lambda path: path.is_dir() and _place(path) is not None)
