"""A folder of images or of texts: one folder per class, alone or within train, val and test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from confide.checks import InputError
from confide.data.base import (
    DATASETS,
    SPLIT_WORDS,
    WHOLE,
    RawDataset,
    RawSplit,
    recognises,
    sorted_class_names,
)
from confide.data.images import EncodedImages, ImageFiles, ImageOptions, read_images
from confide.records import OtherFiles, Provenance

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm")


@DATASETS.add("folder", paper="format: one folder of images per class", takes="path")
def folder(
    path: Path,
    *,
    data_folder: Path,
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    channels: int | None = None,
    memory_gb: float = 1.0,
) -> RawDataset:
    """Images in one folder per class, with or without train, val and test above; ids are the paths below the folder.

    When: images as files, sorted into folders by class.
    When not: they are very many small files: parquet reads faster.

    Args:
        path: of the folder.
        data_folder: where lists of checked images are kept; `load_dataset` fills it in.
        size: side, or (height, width); by default the size all images have, else their median short side up to 224.
        fit: crop cuts the centre of the wanted aspect, stretch keeps all of the image.
        channels: 1 or 3; by default 1 if all images are grey.
        memory_gb: decoded images up to this stay in memory, more are decoded when asked for; 0 always does that.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: where no image can be read, or splits and classes are mixed up.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from confide import data
        >>> for name in ("cat", "dog"):
        ...     (Path("photos") / name).mkdir(parents=True)
        ...     for number in range(10):
        ...         Image.new("L", (8, 8), number).save(Path("photos") / name / f"{number}.png")
        >>> data.load_dataset("photos", folder="cache")
        <Dataset 'photos': image, 2 classes; train 16, val 2, test 2>
    """
    places, left_out = _split_folders(path)
    class_names = sorted_class_names({name for place in places.values() for name in _folders(place)})
    parts: dict[str, tuple[EncodedImages, RawSplit]] = {}
    others: list[str] = []
    for split, place in places.items():
        listed = list_images(path, place, class_names)
        others += listed.other_files
        parts[split] = image_part(path, split, listed.names, listed.labels)
    provenance = Provenance(
        left_out=left_out, other_files=OtherFiles(len(others), tuple(others[:20])) if others else None
    )
    raw = RawDataset({}, class_names, path.resolve().name, provenance)
    return read_images(parts, ImageOptions(size, fit, channels, memory_gb), data_folder, raw)


def image_part(root: Path, split: str, names: list[str], labels: list[int]) -> tuple[EncodedImages, RawSplit]:
    """Files of images by their paths below the root, which are their ids too."""
    part = RawSplit(names, np.array(labels, dtype=np.int64), np.array(names, dtype=np.str_))
    return ImageFiles(root, split, names), part


def is_image_folder(path: Path) -> bool:
    """Some folder inside holds images."""
    return path.is_dir() and any(_has_images(path / name) for name in _folders(path))


recognises("folder", is_image_folder)


@dataclass(frozen=True)
class ListedImages:
    """Paths of images below a root, their class indices, and paths of files that are no images."""

    names: list[str]
    labels: list[int]
    other_files: list[str]


def list_images(root: Path, place: Path, class_names: Iterable[str]) -> ListedImages:
    """Images below the class folders of a place, sorted within each class."""
    names: list[str] = []
    labels: list[int] = []
    others: list[str] = []
    for index, class_name in enumerate(class_names):
        paths: list[str] = []
        for folder_path, _, files in os.walk(place / class_name):
            above = os.path.relpath(folder_path, root).replace(os.sep, "/")
            paths += [f"{above}/{file}" for file in files]
        images = sorted(name for name in paths if name.lower().endswith(IMAGE_ENDINGS))
        others += sorted(set(paths) - set(images))
        names += images
        labels += [index] * len(images)
    return ListedImages(names, labels, others)


def _split_folders(path: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Split name -> its folder, and what beside them was left out and why."""
    words = _split_words(path)
    named = list(words)
    splits = [name for name in named if _folders(path / name) or not any((path / name).iterdir())]
    if named and not splits:
        raise InputError(
            f"{path / named[0]} must hold one folder of images per class, got none; sort the images by class"
        )
    if not named:
        return {WHOLE: path}, {}
    places: dict[str, Path] = {}
    for name in splits:
        word = words[name]
        if word in places:
            raise InputError(
                f"{path} must have one folder per split, got '{places[word].name}' and '{name}'; join them"
            )
        places[word] = path / name
    return places, {name: "no class folders" for name in _folders(path) if name not in splits}


def _split_words(path: Path) -> dict[str, str]:
    """Folder -> the split that it holds: by its name, by what follows the name of the whole (`news/news-train`), or by
    what follows the beginning that all folders share (`any/news-train` and `any/news-test`).
    """
    folders, whole = [name.lower() for name in _folders(path)], path.resolve().name.lower()
    own = [SPLIT_WORDS.get(name.removeprefix(whole).lstrip("-_. "), "") for name in folders]
    if not any(own):
        endings = [re.split("[-_. ]", name)[-1] for name in folders]
        shared = {name.removesuffix(ending) for name, ending in zip(folders, endings, strict=True)}
        words = [SPLIT_WORDS.get(ending, "") for ending in endings]
        own = words if len(shared) == 1 and all(words) else own
    return {name: word for name, word in zip(_folders(path), own, strict=True) if word}


def _folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__")))


def _has_images(path: Path) -> bool:
    return any(file.lower().endswith(IMAGE_ENDINGS) for _, _, files in os.walk(path) for file in files)


# ---- Texts: one file each, in one folder per class, as 20 Newsgroups and movie reviews come ----


@DATASETS.add("text_folder", paper="format: one folder of texts per class", takes="path")
def text_folder(path: Path) -> RawDataset:
    """Texts in one folder per class, a file each, with or without train, val and test above: 20 Newsgroups as it comes.

    When: texts as files, sorted into folders by class.
    When not: they are in a table: take csv or jsonl.

    Args:
        path: of the folder. Files are read as UTF-8, and as Latin-1 where they are not; ids are the paths below it.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Example:
        >>> from pathlib import Path
        >>> from confide import data
        >>> for name in ("greeting", "farewell"):
        ...     (Path("mails") / name).mkdir(parents=True)
        ...     for number in range(10):
        ...         _ = (Path("mails") / name / str(number)).write_text(f"{name} number {number}")
        >>> data.load_dataset("mails").class_names
        ('farewell', 'greeting')
    """
    places, left_out = _split_folders(path)
    class_names = sorted_class_names({name for place in places.values() for name in _folders(place)})
    parts = {split: _text_part(path, place, class_names) for split, place in places.items()}
    return RawDataset(parts, class_names, path.resolve().name, Provenance(left_out=left_out))


def _text_part(root: Path, place: Path, class_names: Sequence[str]) -> RawSplit:
    texts, labels, ids = [], [], []
    for label, name in enumerate(class_names):
        for file in sorted((place / name).glob("*")) if (place / name).is_dir() else ():
            if not file.is_file() or file.name.startswith("."):
                continue
            content = file.read_bytes()
            try:
                texts.append(content.decode("utf-8"))
            except UnicodeDecodeError:
                texts.append(content.decode("latin-1"))
            labels.append(label)
            ids.append(file.relative_to(root).as_posix())
    inputs = np.empty(len(texts), dtype=object)
    inputs[:] = texts
    return RawSplit(inputs, np.array(labels, dtype=np.int64), np.array(ids))


def is_text_folder(path: Path) -> bool:
    """Whether a folder holds texts by class: class folders, the first file of which is named `.txt` or by a number."""
    if not path.is_dir() or not (folders := _folders(path)):
        return False
    place = path
    if folders[0] in _split_words(path) and (inner := _folders(path / folders[0])):
        place, folders = path / folders[0], inner
    if len(folders) < 2:
        return False
    place = place / folders[0]
    files = sorted(entry.name for entry in os.scandir(place) if entry.is_file() and not entry.name.startswith("."))
    return bool(files) and (files[0].isdigit() or files[0].lower().endswith(".txt"))


recognises("text_folder", is_text_folder)
