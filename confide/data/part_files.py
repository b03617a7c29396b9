"""Which files of a path belong to which split: one file, or a folder with splits (and shards) in the file names."""

from __future__ import annotations

import re
from pathlib import Path

from confide.data.parts import SPLIT_WORDS, WHOLE


def part_files(path: Path, endings: tuple[str, ...]) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Split name -> its files in order (`train.csv`, `train-00000-of-00002.parquet`), and files left out with why."""
    if path.is_file():
        return {WHOLE: [path]}, {}
    files = data_files(path, endings)
    splits: dict[str, list[Path]] = {}
    for file in files:
        word = SPLIT_WORDS.get(re.split(r"[-_.]", file.name.lower())[0], WHOLE)
        splits.setdefault(word, []).append(file)
    if len(splits) > 1:
        left_out = {file.name: "no split in its name" for file in splits.pop(WHOLE, [])}
        return splits, left_out
    return splits, {}


def data_files(path: Path, endings: tuple[str, ...]) -> list[Path]:
    """Files of these endings in a folder, or in its folder `data`, sorted."""
    for place in (path, path / "data"):
        if place.is_dir():
            files = sorted(f for f in place.iterdir() if f.name.lower().endswith(endings) and f.is_file())
            if files:
                return files
    return []


def holds(path: Path, endings: tuple[str, ...]) -> bool:
    """Whether a path is such a file, or a folder with some."""
    return path.name.lower().endswith(endings) if path.is_file() else bool(data_files(path, endings))
