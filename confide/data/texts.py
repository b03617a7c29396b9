"""Rows of text files -> parts."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from confide.core.door import InputError
from confide.data.columns import INPUTS, LABELS, pick, pick_id
from confide.data.part_files import part_files
from confide.data.parts import Found, Part

Rows = Iterable[tuple[int, Mapping[str, Any]]]


def open_text(path: Path) -> IO[str]:
    """A text file, plain or gzipped; a byte-order mark is not part of the text."""
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return open(path, encoding="utf-8-sig", newline="")


def read_texts(
    path: Path, endings: tuple[str, ...], reader: Callable[[Path], Rows], inputs: str | None, labels: str | None
) -> Found:
    """Texts and labels of a file, or of a folder with one file or more per split."""
    files, left_out = part_files(path, endings)
    parts = {}
    for split, shards in files.items():
        columns = Columns()
        for file in shards:
            columns.extend(file, reader, inputs, labels)
        parts[split] = columns.part()
    name = path.resolve().name.split(".")[0]
    return Found(parts, None, name, {"left_out": left_out} if left_out else {})


@dataclass
class Columns:
    """Texts, labels and (where every file has them) ids of the files of one split, as they are read."""

    texts: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)

    def extend(self, file: Path, reader: Callable[[Path], Rows], inputs: str | None, labels: str | None) -> None:
        """Read one file to its end."""
        names: tuple[str, str, str | None] | None = None
        try:
            for line, row in reader(file):
                if names is None:
                    text = pick(row, inputs, INPUTS, "inputs", str(file))
                    names = text, pick(row, labels, LABELS, "labels", str(file)), pick_id(row)
                self._append(row, names, f"{file}, line {line},")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} must be UTF-8 text, got byte {error.object[error.start]:#x}; convert it"
            ) from None

    def _append(self, row: Mapping[str, Any], names: tuple[str, str, str | None], where: str) -> None:
        text, label = row.get(names[0]), row.get(names[1])
        if not isinstance(text, str) or label is None or label == "":
            missing = names[1] if isinstance(text, str) else names[0]
            raise InputError(f"{where} must have a '{missing}', got none; add it or drop the row")
        self.texts.append(text)
        self.labels.append(label)
        if names[2] is not None:
            self.ids.append(row.get(names[2]))

    def part(self) -> Part:
        """All that was read."""
        texts = np.empty(len(self.texts), dtype=object)
        texts[:] = self.texts
        labels = np.array(self.labels) if self.labels else np.zeros(0, dtype=np.int64)
        return Part(texts, labels, np.array(self.ids) if self.ids and len(self.ids) == len(texts) else None)
