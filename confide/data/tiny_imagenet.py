"""Tiny-ImageNet's folder layout: train/<wnid>/images, val/images with val_annotations.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from confide.core.door import InputError
from confide.data.encoded import Encoded, Files
from confide.data.family import DATASETS, recognises
from confide.data.folder import list_images
from confide.data.images import ImageOptions, read_images
from confide.data.parts import Found, Part

FOLDER = "tiny-imagenet-200"


@DATASETS.add("tiny-imagenet", paper="Le and Yang, 2015, Tiny ImageNet visual recognition challenge", takes="word")
def tiny_imagenet(
    where: Path,
    *,
    data_folder: Path,
    size: int | tuple[int, int] | None = None,
    memory_gb: float = 2.0,
) -> Found:
    """Tiny-ImageNet, 100,000 / 10,000 colour images of 64 x 64 in 200 classes, unpacked in the data folder.

    The official validation images are `test` here, since the labels of the official test images are not public.

    Args:
        size: side, or (height, width), instead of 64.
        memory_gb: decoded images up to this stay in memory; the whole set takes 1.4.
    """
    root = where if (where / "wnids.txt").exists() else where / FOLDER
    if not (root / "wnids.txt").exists():
        raise InputError(
            f"tiny-imagenet must lie at {root}, but it does not; unpack {FOLDER}.zip there, or say where it is by "
            "folder= or CONFIDE_DATA"
        )
    wnids = sorted((root / "wnids.txt").read_text(encoding="utf-8").split())
    names, labels, _ = list_images(root, root / "train", wnids)
    parts: dict[str, tuple[Encoded, Part]] = {"train": _part(root, "train", names, labels)}
    parts["test"] = _part(root, "test", *_validation(root, wnids))
    unlabelled = sum(1 for _ in (root / "test" / "images").glob("*")) if (root / "test" / "images").is_dir() else 0
    facts: dict[str, Any] = {"place": str(root), "roles": "the official validation images are the split 'test'"}
    if unlabelled:
        facts["left_out"] = {"test/images": f"{unlabelled} images without labels"}
    found = Found({}, _class_names(root, wnids), "tiny-imagenet", facts)
    return read_images(parts, ImageOptions(size, "crop", 3, memory_gb), data_folder, found)


def _is_tiny_imagenet(path: Path) -> bool:
    return any((place / "wnids.txt").is_file() and (place / "train").is_dir() for place in (path, path / FOLDER))


recognises("tiny-imagenet", _is_tiny_imagenet)


def _part(root: Path, split: str, names: list[str], labels: list[int]) -> tuple[Encoded, Part]:
    return Files(root, split, names), Part(names, np.array(labels, dtype=np.int64), np.array(names, dtype=np.str_))


def _validation(root: Path, wnids: list[str]) -> tuple[list[str], list[int]]:
    file = root / "val" / "val_annotations.txt"
    if not file.exists():
        raise InputError(f"{file} must list the validation images, but it does not exist; unpack the archive again")
    index = {wnid: i for i, wnid in enumerate(wnids)}
    names, labels = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("\t")
        if len(words) < 2 or words[1] not in index:
            raise InputError(f"{file} must give image and class in every line, got {line[:60]!r} in line {number}")
        names.append(f"val/images/{words[0]}")
        labels.append(index[words[1]])
    return names, labels


def _class_names(root: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first of each class's words; the wnid where there are none."""
    words: dict[str, str] = {}
    if (root / "words.txt").exists():
        lines = (root / "words.txt").read_text(encoding="utf-8").splitlines()
        words = {wnid: text.split(",")[0].strip() for wnid, _, text in (line.partition("\t") for line in lines)}
    return tuple(words.get(wnid) or wnid for wnid in wnids)
