"""Street View House Numbers from its cropped-digit .mat files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from confide.core.door import InputError
from confide.data.family import DATASETS, recognises
from confide.data.parts import Found, Part

PLACES = ("", "svhn", "SVHN")
FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


@DATASETS.add("svhn", paper="Netzer et al., 2011, Reading digits in natural images", takes="word")
def svhn(where: Path) -> Found:
    """House numbers, 73,257 / 26,032 colour images of 32 x 32 in 10 classes; one of the two files will do."""
    folder = _place(where)
    if folder is None:
        raise InputError(
            f"svhn must lie at {where / 'svhn'} as train_32x32.mat and test_32x32.mat, but it does not; put the files "
            "there, or say where they are by folder= or CONFIDE_DATA"
        )
    parts = {split: _read(folder / name) for split, name in FILES.items() if (folder / name).is_file()}
    return Found(parts, tuple("0123456789"), "svhn", {"place": str(folder)})


def _place(where: Path) -> Path | None:
    places = (where / place for place in PLACES)
    return next((p for p in places if any((p / name).is_file() for name in FILES.values())), None)


def _read(file: Path) -> Part:
    """Images `h w c n` and labels 1 to 10, where 10 is the digit 0."""
    from scipy.io import loadmat

    try:
        content = loadmat(str(file), variable_names=["X", "y"])
        images, labels = np.asarray(content["X"]), np.asarray(content["y"]).reshape(-1).astype(np.int64)
    except Exception as error:  # the reader of .mat files raises errors of many kinds on damaged ones
        raise InputError(f"{file} must be a readable .mat file with X and y, but: {error}; fetch it again") from None
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[2] != 3 or images.shape[3] != len(labels):
        raise InputError(
            f"{file} must hold X, uint8 h x w x 3 x n, and n labels, got {images.dtype} {images.shape}, {len(labels)}"
        )
    return Part(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels % 10)


recognises("svhn", lambda path: path.is_dir() and _place(path) is not None)
