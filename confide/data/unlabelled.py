"""Inputs that came without labels: a folder of images, or a table or npz file without a column of labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from confide.core.door import InputError
from confide.core.files import read_table
from confide.core.records import Dataset
from confide.data.assemble import Plan, assemble
from confide.data.columns import INPUTS, LABELS, pick
from confide.data.csv import ENDINGS as CSV
from confide.data.csv import rows_of_csv
from confide.data.encoded import Files
from confide.data.family import DATASETS, data_folder
from confide.data.folder import ENDINGS as IMAGES
from confide.data.folder import is_image_folder
from confide.data.images import ImageOptions, read_images
from confide.data.jsonl import ENDINGS as JSONL
from confide.data.jsonl import rows_of_jsonl
from confide.data.npz import by_split
from confide.data.parts import WHOLE, Found, Part, as_inputs, default_ids_of
from confide.data.tables import read_tables
from confide.data.texts import Rows, read_texts

HELD_OUT = "test"
"""Under this name a part need not have every class."""
UNKNOWN = ("unlabelled",)


def load_unlabelled(source: str | Path, *, folder: str | Path | None = None) -> Dataset | None:
    """Inputs of a path without labels as one split `all`, whose labels are -1; None where there are labels."""
    path = Path(source).expanduser()
    is_word = str(source).partition(":")[0] in DATASETS
    found = None if is_word else _found(path, data_folder(folder))
    if found is None:
        return None
    dataset = assemble(replace(found, facts={"where": str(path), **found.facts}), "", Plan())
    part = dataset.split(HELD_OUT)
    return replace(dataset, splits={WHOLE: replace(part, labels=np.full(len(part), -1, dtype=np.int64))})


def _found(path: Path, home: Path) -> Found | None:
    if path.is_dir():
        return _images(path, home)
    name = path.name.lower()
    readers: dict[tuple[str, ...], Callable[[Path, Path], Found | None]] = {
        (".parquet",): _parquet,
        (".npz",): _npz,
        CSV: _csv,
        JSONL: _jsonl,
    }
    reader = next((read for endings, read in readers.items() if name.endswith(endings)), None)
    try:
        return reader(path, home) if reader is not None and path.is_file() else None
    except (InputError, OSError, pa.ArrowException):
        return None  # the room's other door says what is wrong with it


def _has_labels(names: Collection[str]) -> bool:
    return any(name.lower() in LABELS for name in names)


def _images(path: Path, home: Path) -> Found | None:
    names = sorted(file.name for file in path.iterdir() if file.name.lower().endswith(IMAGES) and file.is_file())
    if not names or is_image_folder(path):
        return None
    part = Part(names, np.zeros(len(names), dtype=np.int64), np.array(names, np.str_))
    found = Found({}, UNKNOWN, path.resolve().name)
    return read_images({HELD_OUT: (Files(path, HELD_OUT, names), part)}, ImageOptions(), home, found)


def _parquet(path: Path, home: Path) -> Found | None:
    if _has_labels(pq.read_schema(path).names):
        return None
    table = pq.read_table(path)
    table = table.append_column(LABELS[0], pa.array(np.zeros(len(table), dtype=np.int64)))
    facts = {"place": str(path.resolve()), "versions": {HELD_OUT: str(path.stat().st_mtime_ns)}}
    found = Found({}, UNKNOWN, path.stem, facts)
    return read_tables({HELD_OUT: table}, found, (None, LABELS[0]), ImageOptions(), home)


def _npz(path: Path, home: Path) -> Found | None:
    groups = by_split(read_table(path)[0])
    if len(groups) > 1 or _has_labels(next(iter(groups.values()))):
        return None
    columns = next(iter(groups.values()))
    inputs = as_inputs(columns[pick(columns, None, INPUTS, "inputs", path.name)], path.name)
    ids = columns.get("ids", default_ids_of(WHOLE, len(inputs)))
    return Found({HELD_OUT: Part(inputs, np.zeros(len(inputs), dtype=np.int64), ids)}, UNKNOWN, path.stem)


def _csv(path: Path, home: Path) -> Found | None:
    return _texts(path, CSV, rows_of_csv)


def _jsonl(path: Path, home: Path) -> Found | None:
    return _texts(path, JSONL, rows_of_jsonl)


def _texts(path: Path, endings: tuple[str, ...], reader: Callable[[Path], Rows]) -> Found | None:
    first = next(iter(reader(path)), None)
    if first is None or _has_labels(first[1]):
        return None

    def labelled(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return ((line, {**row, LABELS[0]: UNKNOWN[0]}) for line, row in reader(file))

    found = read_texts(path, endings, labelled, None, LABELS[0])
    return replace(found, parts={HELD_OUT: found.parts[WHOLE]}, class_names=UNKNOWN)
