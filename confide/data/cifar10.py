"""CIFAR-10 from its official binary archive."""

from __future__ import annotations

from pathlib import Path

from confide.data.cifar_binary import read_names, read_records
from confide.data.download import Archive, provide
from confide.data.family import DATASETS, recognises
from confide.data.parts import Found, Part

TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-batches-bin",
    (*TRAIN, "test_batch.bin", "batches.meta.txt"),
)


@DATASETS.add("cifar10", paper="Krizhevsky, 2009, Learning multiple layers of features from tiny images", takes="word")
def cifar10(where: Path, *, download: bool = True) -> Found:
    """CIFAR-10, 50,000 / 10,000 colour images of 32 x 32 in 10 classes; ids follow the original order.

    Args:
        download: fetch the archive when it is not in the data folder.
    """
    folder = where if (where / TRAIN[0]).exists() else provide(ARCHIVE, where, download)
    parts = {}
    for split, names in (("train", TRAIN), ("test", ("test_batch.bin",))):
        images, labels = read_records([folder / name for name in names], label_bytes=1)
        parts[split] = Part(images, labels[:, 0])
    return Found(parts, read_names(folder / "batches.meta.txt"), "cifar10", {"place": str(folder)})


def _is_cifar10(path: Path) -> bool:
    return any((place / TRAIN[0]).is_file() for place in (path, path / ARCHIVE.folder))


recognises("cifar10", _is_cifar10)
