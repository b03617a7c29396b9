"""CIFAR-100 from its official binary archive."""

from __future__ import annotations

from pathlib import Path

from confide.data.cifar_binary import read_names, read_records
from confide.data.download import Archive, provide
from confide.data.family import DATASETS, recognises
from confide.data.parts import Found, Part

ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-binary",
    ("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"),
)


@DATASETS.add("cifar100", paper="Krizhevsky, 2009, Learning multiple layers of features from tiny images", takes="word")
def cifar100(where: Path, *, coarse: bool = False, download: bool = True) -> Found:
    """CIFAR-100, 50,000 / 10,000 colour images of 32 x 32 in 100 classes; ids follow the original order.

    Args:
        coarse: the 20 superclasses as labels; the other labelling is always kept as a column.
        download: fetch the archive when it is not in the data folder.
    """
    folder = where if (where / "fine_label_names.txt").exists() else provide(ARCHIVE, where, download)
    parts = {}
    for split in ("train", "test"):
        images, labels = read_records([folder / f"{split}.bin"], label_bytes=2)
        columns = {"fine" if coarse else "coarse": labels[:, 1 if coarse else 0]}
        parts[split] = Part(images, labels[:, 0 if coarse else 1], None, columns)
    names = read_names(folder / ("coarse_label_names.txt" if coarse else "fine_label_names.txt"))
    return Found(parts, names, "cifar100", {"place": str(folder)})


def _is_cifar100(path: Path) -> bool:
    return any((place / "fine_label_names.txt").is_file() for place in (path, path / ARCHIVE.folder))


recognises("cifar100", _is_cifar100)
