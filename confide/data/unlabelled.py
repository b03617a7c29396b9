"""Inputs that came without labels: a folder of images, or a table or npz file without a column of labels."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from confide.checks import InputError
from confide.data import base
from confide.data.arrays import arrays_by_split
from confide.data.base import WHOLE, ColumnNames, RawDataset, RawSplit
from confide.data.folder import IMAGE_ENDINGS, image_part, is_image_folder
from confide.data.images import ImageOptions, read_images
from confide.data.tables import PARQUET_ENDINGS, TEXT_FORMATS, NumberedRows, TextFormat, read_tables, read_texts
from confide.files.columns import DATASET_LABEL_COLUMNS, INPUT_COLUMNS
from confide.files.formats import read_table
from confide.records import Dataset, Provenance

HELD_OUT = "test"
"""Under this name a part need not have every class."""
UNKNOWN = ("unlabelled",)
ADDED_LABEL = DATASET_LABEL_COLUMNS[0]


def load_unlabelled(
    source: str | Path,
    *,
    folder: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
) -> Dataset | None:
    """Inputs of a path without labels as one split `all`, whose labels are -1; None where there are labels.

    Args:
        source: a folder of images, or a table or npz file without a column of labels.
        folder: where lists of checked images are kept, instead of CONFIDE_DATA or ~/.cache/confide.
        size: of encoded images, a side or (height, width); by default as for labelled ones.
        channels: of encoded images, 1 or 3; by default 1 if all of them are grey.

    Returns:
        A `Dataset` with the one split `all`, or None where the source has labels or is no such path.

    Example:
        >>> import numpy as np
        >>> from confide import data
        >>> np.savez("new.npz", images=np.zeros((4, 8, 8), dtype=np.uint8))
        >>> data.load_unlabelled("new.npz").split("all").labels
        array([-1, -1, -1, -1])
    """
    path = Path(source).expanduser()
    is_word = str(source).partition(":")[0] in base.DATASETS
    options = ImageOptions(size=size, channels=channels)
    raw = None if is_word else _read_unlabelled(path, options, base.data_folder(folder))
    if raw is None:
        return None
    raw = replace(raw, provenance=replace(raw.provenance, where=str(path)))
    dataset = base.assemble(raw, base.SplitPlan())
    part = dataset.split(HELD_OUT)
    return replace(dataset, splits={WHOLE: replace(part, labels=np.full(len(part), -1, dtype=np.int64))})


def _read_unlabelled(path: Path, options: ImageOptions, home: Path) -> RawDataset | None:
    if path.is_dir():
        return _images(path, options, home)
    name = path.name.lower()
    readers: dict[tuple[str, ...], Callable[[Path], RawDataset | None]] = {
        PARQUET_ENDINGS: partial(_parquet, options=options, home=home),
        (".npz",): _npz,
        **{text_format.endings: partial(_texts, text_format) for text_format in TEXT_FORMATS},
    }
    reader = next((read for endings, read in readers.items() if name.endswith(endings)), None)
    try:
        return reader(path) if reader is not None and path.is_file() else None
    except (InputError, OSError, pa.ArrowException):
        return None  # `load_dataset` says what is wrong with it


def _has_labels(names: Collection[str]) -> bool:
    return any(name.lower() in DATASET_LABEL_COLUMNS for name in names)


def _images(path: Path, options: ImageOptions, home: Path) -> RawDataset | None:
    names = sorted(file.name for file in path.iterdir() if file.name.lower().endswith(IMAGE_ENDINGS) and file.is_file())
    if not names or is_image_folder(path):
        return None
    raw = RawDataset({}, UNKNOWN, path.resolve().name)
    return read_images({HELD_OUT: image_part(path, HELD_OUT, names, [0] * len(names))}, options, home, raw)


def _parquet(path: Path, options: ImageOptions, home: Path) -> RawDataset | None:
    if _has_labels(pq.read_schema(path).names):
        return None
    table = pq.read_table(path)
    table = table.append_column(ADDED_LABEL, pa.array(np.zeros(len(table), dtype=np.int64)))
    provenance = Provenance(place=str(path.resolve()), versions={HELD_OUT: str(path.stat().st_mtime_ns)})
    raw = RawDataset({}, UNKNOWN, path.stem, provenance)
    return read_tables({HELD_OUT: table}, raw, ColumnNames(labels=ADDED_LABEL), options, home)


def _npz(path: Path) -> RawDataset | None:
    groups = arrays_by_split(read_table(path)[0])
    if len(groups) > 1 or _has_labels(next(iter(groups.values()))):
        return None
    columns = next(iter(groups.values()))
    inputs = base.as_inputs(columns[base.pick_column(columns, None, INPUT_COLUMNS, "inputs", path.name)], path.name)
    ids = columns.get("ids", base.default_ids_of(WHOLE, len(inputs)))
    return RawDataset({HELD_OUT: RawSplit(inputs, np.zeros(len(inputs), dtype=np.int64), ids)}, UNKNOWN, path.stem)


def _texts(text_format: TextFormat, path: Path) -> RawDataset | None:
    first = next(iter(text_format.rows(path)), None)
    if first is None or _has_labels(first[1]):
        return None

    def labelled(file: Path) -> NumberedRows:
        return ((line, {**row, ADDED_LABEL: UNKNOWN[0]}) for line, row in text_format.rows(file))

    raw = read_texts(path, text_format.endings, labelled, ColumnNames(labels=ADDED_LABEL))
    return replace(raw, parts={HELD_OUT: raw.parts[WHOLE]}, class_names=UNKNOWN)
