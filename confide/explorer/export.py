"""Samples and their tags as a table for other tools: CSV, parquet, FiftyOne."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from confide.core import arrow_files, files
from confide.core.door import InputError, MissingExtra
from confide.explorer.answers import Order
from confide.explorer.pictures import Pictures
from confide.explorer.questions import Question
from confide.explorer.table import Table

FORMATS = ("csv", "parquet")
RESERVED = {"id", "filepath", "tags", "metadata", "created_at", "last_modified_at", "ground_truth", "relabel"}
FORMULA = r"^([=+@\t\r]|-[^0-9.])"
"""How a cell begins that a spreadsheet would take for a formula."""


def export_table(table: Table, question: Question, rows: Order) -> pa.Table:
    """The chosen rows in their order, with every column, what the model says, and the tags."""
    voice = question.voice
    whole = table.arrow(f"SELECT id, {_select(question)} FROM {table.source((voice,))}")
    picked = whole.take(pa.array(rows, pa.int32()))
    found: dict[str, pa.Array] = {"id": picked.column("id")}
    for column in question.columns.values():
        values = picked.column(column.key)
        name = column.key.removeprefix("c.")
        if column.kind == "category":
            found[name] = pa.array(column.values).take(values.combine_chunks())
        elif column.kind == "class":
            found[name] = values
            found[f"{name}_name"] = pa.array([table.samples.name_of(v) for v in values.to_pylist()], pa.string())
        else:
            found[name] = values
    if voice is not None:
        found["model"] = pa.array([voice.model] * len(rows), pa.string())
        found["stage"] = pa.array([voice.stage] * len(rows), pa.string())
    return _with_tags(pa.table(found), table)


def _select(question: Question) -> str:
    quoted = ((c.sql, c.key.replace('"', '""')) for c in question.columns.values())
    return ", ".join(f'{sql} AS "{key}"' for sql, key in quoted)


def _with_tags(found: pa.Table, table: Table) -> pa.Table:
    tags = {(tag.split, tag.id): tag for tag in table.tags.all()}
    keys = zip(found.column("split").to_pylist(), found.column("id").to_pylist(), strict=True)
    mine = [tags.get(key) for key in keys] if tags else [None] * found.num_rows
    new = [None if t is None else t.new_label for t in mine]
    more = {
        "tag": pa.array([None if t is None else t.action for t in mine], pa.string()),
        "new_label": pa.array(new, pa.int32()),
        "new_label_name": pa.array([table.samples.name_of(k) for k in new], pa.string()),
        "note": pa.array([None if t is None else t.note for t in mine], pa.string()),
        "changed": pa.array([None if t is None else t.changed for t in mine], pa.string()),
    }
    for name, values in more.items():
        found = found.append_column(name if name not in found.column_names else f"{name}_", values)
    return found


def as_bytes(found: pa.Table, kind: str) -> bytes:
    """The table as a file; in CSV no cell begins like a formula."""
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got '{kind}'")
    return arrow_files.arrow_bytes(_without_formulas(found) if kind == "csv" else found, kind)


def _without_formulas(found: pa.Table) -> pa.Table:
    columns = {}
    for name in found.column_names:
        values = found.column(name)
        if pa.types.is_string(values.type):
            values = pc.if_else(
                pc.fill_null(pc.match_substring_regex(values, FORMULA), False),
                pc.binary_join_element_wise("'", values, ""),
                values,
            )
        columns[re.sub(FORMULA, r"'\1", name)] = values
    return pa.table(columns)


def write_export(path: Path, found: pa.Table) -> None:
    """Write the table as .csv or .parquet, atomically."""
    content = as_bytes(found, path.suffix[1:])
    with files.atomic(path) as temporary:
        temporary.write_bytes(content)


def has_fiftyone() -> bool:
    """Whether FiftyOne is installed."""
    return find_spec("fiftyone") is not None


def to_fiftyone(found: pa.Table, rows: Order, pictures: Pictures, folder: Path, name: str) -> Any:
    """A persistent FiftyOne dataset of these samples; their pictures are written to a folder beside the tags."""
    try:
        import fiftyone
    except ImportError:
        raise MissingExtra("fiftyone", "fiftyone", "the export to FiftyOne") from None
    dataset = _new_dataset(fiftyone, name)
    samples = []
    for row, record in zip(rows.tolist(), found.to_pylist(), strict=True):
        content = pictures.content(row)
        if content.image is None:
            continue
        path = folder / f"{row}.{content.media_type.removeprefix('image/')}"
        with files.atomic(path) as temporary:
            temporary.write_bytes(content.image)
        samples.append(_fiftyone_sample(fiftyone, path, record))
    dataset.add_samples(samples)
    return dataset


def _new_dataset(fiftyone: Any, name: str) -> Any:
    """A dataset of a name that is not taken; what FiftyOne's own database refuses is one line."""
    try:
        taken = fiftyone.dataset_exists(name)
        dataset = None if taken else fiftyone.Dataset(name, persistent=True)
    except Exception as error:  # its database is a program of its own, with errors of many kinds
        raise InputError(f"FiftyOne must be able to open its database, but: {str(error).splitlines()[0]}") from None
    if taken:
        raise InputError(f"FiftyOne must not have a dataset '{name}' yet, but it has; choose another name")
    return dataset


def _fiftyone_sample(fiftyone: Any, path: Path, record: dict[str, Any]) -> Any:
    sample = fiftyone.Sample(filepath=str(path.resolve()), tags=[record["tag"]] if record["tag"] else [])
    if record.get("label_name") is not None:
        sample["ground_truth"] = fiftyone.Classification(label=record["label_name"])
    if record.get("prediction_name") is not None:
        said = fiftyone.Classification(label=record["prediction_name"], confidence=record.get("confidence"))
        sample["prediction"] = said
    if record.get("new_label_name") is not None:
        sample["relabel"] = fiftyone.Classification(label=record["new_label_name"])
    done = {"id", "tag", "label", "label_name", "prediction", "prediction_name", "new_label", "new_label_name"}
    sample["sample_id"] = record["id"]
    for key, value in record.items():
        if key not in done and value is not None:
            # Names FiftyOne keeps for itself get a mark of their own.
            plain = re.sub(r"\W", "_", key)
            sample[f"column_{plain}" if plain in RESERVED or not plain[:1].isalpha() else plain] = value
    return sample
