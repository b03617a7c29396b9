"""Arrow tables -> parts: images from bytes, texts from strings, rows from lists of numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from confide.core.door import InputError
from confide.core.files import arrow_to_numpy
from confide.data.columns import INPUTS, LABELS, pick, pick_id
from confide.data.encoded import Blobs
from confide.data.images import ImageOptions, read_images
from confide.data.parts import Found, Part, as_inputs, default_ids_of


def read_tables(
    tables: Mapping[str, pa.Table],
    found: Found,
    names: tuple[str | None, str | None],
    options: ImageOptions,
    data_folder: Path,
) -> Found:
    """Parts of `found` from one table per split; `names` are the columns of inputs and labels where told."""
    first = next(iter(tables.values()))
    inputs = pick(first.column_names, names[0], INPUTS, "inputs", found.name)
    labels = pick(first.column_names, names[1], LABELS, "labels", found.name)
    class_names = found.class_names or _names_in_metadata(first, labels)
    found = Found({}, class_names, found.name, found.facts)
    parts = {split: _part(table, inputs, labels, split, found.name) for split, table in tables.items()}
    if not _is_bytes(first.schema.field(inputs).type):
        complete = {key: Part(_plain(tables[key], inputs, key), p.labels, p.ids, p.columns) for key, p in parts.items()}
        return Found(complete, class_names, found.name, found.facts)
    encoded = {}
    for split, part in parts.items():
        column, paths = _bytes_and_paths(tables[split].column(inputs))
        assert part.ids is not None
        place = f"{found.facts.get('place', found.name)}\0{split}"
        version = str(found.facts.get("versions", {}).get(split, ""))
        encoded[split] = (Blobs(column, part.ids.astype(np.str_), place, version, paths), part)
    return read_images(encoded, options, data_folder, found)


def _part(table: pa.Table, inputs: str, labels: str, split: str, where: str) -> Part:
    missing = [name for name in (inputs, labels) if name not in table.column_names]
    if missing:
        raise InputError(f"{where} must have the column '{missing[0]}' in every split, but '{split}' has none; add it")
    id_column = pick_id(table.column_names)
    ids = arrow_to_numpy(table.column(id_column)) if id_column else default_ids_of(split, len(table))
    columns = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name not in (inputs, labels, id_column) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            columns[name] = arrow_to_numpy(table.column(name))
    return Part(inputs, arrow_to_numpy(table.column(labels)), ids, columns)


def _plain(table: pa.Table, inputs: str, where: str) -> Any:
    return as_inputs(arrow_to_numpy(table.column(inputs)), where)


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bytes_and_paths(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    if not pa.types.is_struct(column.type):
        return column, None
    fields = [column.type.field(i).name for i in range(column.type.num_fields)]
    paths = pc.struct_field(column, "path") if "path" in fields else None
    return pc.struct_field(column, "bytes"), paths


def _names_in_metadata(table: pa.Table, labels: str) -> tuple[str, ...] | None:
    """Class names as Hugging Face datasets keeps them in the metadata of its parquet files."""
    raw = (table.schema.metadata or {}).get(b"huggingface")
    if raw is None:
        return None
    features = json.loads(raw).get("info", {}).get("features", {})
    names = features.get(labels, {}).get("names") if isinstance(features, dict) else None
    return tuple(map(str, names)) if names else None
