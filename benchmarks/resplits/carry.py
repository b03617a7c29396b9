"""What travels to a machine with a GPU and back: CIFAR-10 in six lossless pictures, results in a few archives.

A machine that takes little at a time gets the pictures in several calls; what is made there is added to archives as it
comes, so that a call that is stopped has given back all it finished.
"""

from __future__ import annotations

import contextlib
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from confide import files
from confide.checks import InputError

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
BATCH, ACROSS, SIDE = 10_000, 100, 32
LARGEST = 14 << 20
"""Bytes after which a new archive is begun."""


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


def unpack(source: Path, target: Path) -> Path:
    """The binary files again, byte for byte; returns their folder."""
    missing = [name for name in BATCHES if not (source / f"{name}.webp").exists()]
    if missing:
        raise InputError(f"{source} must hold {', '.join(f'{name}.webp' for name in missing)}; carry them over first")
    folder = target / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.load(source / "labels.npy").reshape(len(BATCHES), BATCH)
    for name, own in zip(BATCHES, labels, strict=True):
        if not (folder / f"{name}.bin").exists():
            pixels = np.asarray(Image.open(source / f"{name}.webp")).reshape(-1, SIDE, ACROSS, SIDE, 3)
            images = pixels.transpose(0, 2, 4, 1, 3).reshape(BATCH, -1)
            with files.atomic(folder / f"{name}.bin") as temporary:
                np.concatenate([own[:, None], images], axis=1).tofile(temporary)
    return folder


def add_result(path: Path, folder: Path, maker: str) -> None:
    """Add a file to the newest archive of a process, which alone writes to it."""
    folder.mkdir(parents=True, exist_ok=True)
    archives = sorted(folder.glob(f"results-{maker}-*.tar"))
    full = not archives or archives[-1].stat().st_size + path.stat().st_size > LARGEST
    archive = folder / f"results-{maker}-{len(archives) if full else len(archives) - 1}.tar"
    with tarfile.open(archive, "a") as tar:
        tar.add(path, path.name)


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
