"""What travels to a machine with a GPU and back: CIFAR-10 in six lossless pictures, results in a few archives.

A machine that takes little at a time gets the pictures in several calls, and what is made there comes back in several.
"""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from confide import files
from confide.checks import InputError

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CLASSES = "batches.meta.txt"
"""The file of the classes' names."""
BATCH, ACROSS, SIDE = 10_000, 100, 32
LARGEST, MOST_ARCHIVES = 14 << 20, 4
"""Bytes of an archive and archives of a call: what a machine gives back at once."""
KINDS = ("seen", "gaussians", "logistic", "cell", "knn", "corrupted", "shifted_logistic")
"""What the names of results begin with, in order of value."""
ENDINGS = (".npz", ".safetensors")


def pack(source: Path, target: Path) -> None:
    """CIFAR-10's binary files as one WebP picture each, some 17 MB, and the labels."""
    target.mkdir(parents=True, exist_ok=True)
    labels = []
    for name in BATCHES:
        rows = np.fromfile(source / f"{name}.bin", dtype=np.uint8).reshape(BATCH, -1)
        labels.append(rows[:, 0])
        images = rows[:, 1:].reshape(-1, ACROSS, 3, SIDE, SIDE).transpose(0, 3, 1, 4, 2)
        picture = Image.fromarray(np.ascontiguousarray(images.reshape(BATCH // ACROSS * SIDE, ACROSS * SIDE, 3)))
        with files.atomic(target / f"{name}.webp") as temporary:
            picture.save(temporary, "webp", lossless=True, quality=50)
    np.save(target / "labels.npy", np.concatenate(labels))
    shutil.copyfile(source / CLASSES, target / CLASSES)


def unpack(source: Path, target: Path) -> Path:
    """The binary files again, byte for byte; returns their folder."""
    missing = [name for name in BATCHES if not (source / f"{name}.webp").exists()]
    if missing:
        raise InputError(f"{source} must hold {', '.join(f'{name}.webp' for name in missing)}; carry them over first")
    folder = target / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / CLASSES, folder / CLASSES)
    labels = np.load(source / "labels.npy").reshape(len(BATCHES), BATCH)
    for name, own in zip(BATCHES, labels, strict=True):
        if not (folder / f"{name}.bin").exists():
            pixels = np.asarray(Image.open(source / f"{name}.webp")).reshape(-1, SIDE, ACROSS, SIDE, 3)
            images = pixels.transpose(0, 2, 4, 1, 3).reshape(BATCH, -1)
            with files.atomic(folder / f"{name}.bin") as temporary:
                np.concatenate([own[:, None], images], axis=1).tofile(temporary)
    return folder


def ship(state: Path, out: Path, done: frozenset[str] = frozenset()) -> int:
    """Put what was made and is not `done` into archives, as many as may go back at once; returns how many files wait.

    What is still being written has another name until it is whole.
    """
    out.mkdir(parents=True, exist_ok=True)
    whole = [path for kind in KINDS for path in sorted(state.glob(f"{kind}-*")) if path.suffix in ENDINGS]
    paths = [path for path in whole if path.name not in done]
    archives: list[list[Path]] = []
    size = LARGEST
    for number, path in enumerate(paths):
        if size + path.stat().st_size > LARGEST:
            if len(archives) == MOST_ARCHIVES:
                return len(paths) - number
            archives.append([])
            size = 0
        archives[-1].append(path)
        size += path.stat().st_size
        with tarfile.open(out / f"results-{len(archives) - 1}.tar", "a") as tar:
            tar.add(path, path.name)
    return 0


def collect(folder: Path, state: Path) -> int:
    """Put the files of all archives into the state; returns how many. A file torn at the end was not finished."""
    state.mkdir(parents=True, exist_ok=True)
    count = 0
    for archive in sorted(folder.glob("results-*.tar")):
        with contextlib.suppress(tarfile.ReadError), tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is None or Path(member.name).name != member.name:
                    continue
                whole = content.read()
                if len(whole) < member.size:
                    break
                with files.atomic(state / member.name) as temporary:
                    temporary.write_bytes(whole)
                count += 1
    return count
