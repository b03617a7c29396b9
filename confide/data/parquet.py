"""Parquet files with image bytes (or texts, or feature lists) and labels."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from confide.core.door import InputError
from confide.core.files import atomic, read_json
from confide.data.encoded import file_stamp
from confide.data.family import DATASETS, recognises
from confide.data.images import ImageOptions
from confide.data.part_files import holds, part_files
from confide.data.parts import Found
from confide.data.tables import read_tables

ENDINGS = (".parquet",)


@DATASETS.add("parquet", paper="format: Apache Parquet", takes="path")
def parquet(
    path: Path,
    *,
    data_folder: Path,
    inputs: str | None = None,
    labels: str | None = None,
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    channels: int | None = None,
    memory_gb: float = 1.0,
) -> Found:
    """Parquet with image bytes, texts or lists of numbers, and labels; a file, or a folder with one or more per split.

    Class names come from the files' metadata or from `classes.json` beside them.

    Args:
        inputs: column of inputs; the first of image, img, x, features, text and the like by default.
        labels: column of labels; the first of label, category, intent, class and the like by default.
        size: side, or (height, width); by default the size all images have, else their median short side up to 224.
        fit: crop cuts the centre of the wanted aspect, stretch keeps all of the image.
        channels: 1 or 3; by default 1 if all images are grey.
        memory_gb: more than this, decoded, is decoded when asked for; files of more are unpacked and memory-mapped.
    """
    files, left_out = part_files(path, ENDINGS)
    versions = {split: _version(shards) for split, shards in files.items()}
    facts: dict[str, Any] = {"place": str(path.resolve()), "versions": versions}
    if left_out:
        facts["left_out"] = left_out
    large = sum(file.stat().st_size for shards in files.values() for file in shards) > memory_gb * 1e9
    tables = {
        split: _mapped(shards, data_folder / "unpacked" / f"{versions[split]}.arrow") if large else _read(shards)
        for split, shards in files.items()
    }
    found = Found({}, _class_names(path), path.resolve().stem, facts)
    options = ImageOptions(size, fit, channels, memory_gb)
    return read_tables(tables, found, (inputs, labels), options, data_folder)


recognises("parquet", lambda path: holds(path, ENDINGS))


def _version(files: list[Path]) -> str:
    words = [f"{file.resolve()}:{file_stamp(file)}" for file in files]
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _read(files: list[Path]) -> pa.Table:
    try:
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(files, error) from None


def _mapped(files: list[Path], target: Path) -> pa.Table:
    """The same table memory-mapped from an unpacked copy, so that files larger than memory can be read by row."""
    try:
        if not target.exists():
            with atomic(target) as temporary, pa.OSFile(str(temporary), "wb") as sink:
                schema = pq.read_schema(files[0])
                with pa.ipc.new_file(sink, schema) as writer:
                    for file in files:
                        for batch in pq.ParquetFile(file).iter_batches(batch_size=1024):
                            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        return pa.ipc.open_file(pa.memory_map(str(target))).read_all()
    except pa.ArrowException as error:
        raise _unreadable(files, error) from None


def _unreadable(files: list[Path], error: Exception) -> InputError:
    where = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    return InputError(
        f"{where} must be readable parquet of one schema, but reading failed: {' '.join(str(error).split())}"
    )


def _class_names(path: Path) -> tuple[str, ...] | None:
    """Names in `classes.json`: texts, or objects with a name."""
    file = (path if path.is_dir() else path.parent) / "classes.json"
    if not file.exists():
        return None
    entries = read_json(file)
    if not isinstance(entries, list):
        raise InputError(f"{file} must be a list of class names, got a {type(entries).__name__}; list them by label")
    return tuple(str(entry.get("name", entry)) if isinstance(entry, dict) else str(entry) for entry in entries)
