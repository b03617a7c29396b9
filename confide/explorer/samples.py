"""All samples of a layout as one table: a row each, with split, id, label, difficulty, verdict and user columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from confide.core import arrow_files
from confide.core.door import InputError
from confide.explorer.layout import Layout

LABELS = ("label", "labels", "true_label", "y_true")
IDS = ("id", "ids")
OF_MODEL = re.compile(r"logits|probs|probabilities|p\d+|pred_label|prediction|confidence|trust")
"""Columns of a predictions file that speak of the model; the rest belongs to the user."""
MOST_VALUES = 1000
"""A column of words with more values than this is searched, not listed."""
FEW_NUMBERS = 12
"""Whole numbers of at most so many values are listed, not drawn."""


@dataclass(frozen=True)
class Column:
    """Something to filter or sort by. Categories are stored as positions in `values`."""

    key: str
    title: str
    sql: str
    kind: str  # "number", "category", "class" or "text"
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0

    def public(self) -> dict[str, Any]:
        """What the page needs to know of it."""
        return {"key": self.key, "title": self.title, "kind": self.kind, "low": self.low, "high": self.high}


@dataclass(eq=False)
class Samples:
    """The table, its columns by key, and how it was scored; names of classes may come later, with the dataset."""

    table: pa.Table
    columns: Mapping[str, Column]
    ids: Mapping[str, pa.Array]  # by split, in the order of the rows
    starts: Mapping[str, int]  # first row of every split
    class_names: tuple[str, ...]
    num_classes: int
    method: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def split_of(self, row: int) -> str:
        """The split a row belongs to."""
        return max((s for s in self.starts if self.starts[s] <= row and len(self.ids[s])), key=lambda s: self.starts[s])

    def name_of(self, label: int | None) -> str | None:
        """The name of a class; its number where it has none."""
        if label is None or label < 0:
            return None
        return self.class_names[label] if label < len(self.class_names) else str(label)


def gather_samples(layout: Layout) -> Samples:
    """Read everything but logits: what filters and sorting need."""
    parts: dict[str, dict[str, pa.Array]] = {}
    about: dict[str, str] = {}
    names = layout.class_names
    for split in layout.splits:
        part, told = _split(layout, split)
        parts[split] = part
        about = about or ({k: told[k] for k in ("method", "options") if k in told})
        names = names or tuple(str(n) for n in json.loads(told.get("class_names", "[]")))
    if layout.columns is not None:
        _join_columns(parts, layout.columns)
    sizes = {split: len(part["id"]) for split, part in parts.items()}
    if not sum(sizes.values()):
        raise InputError(f"{layout.path} must hold at least one sample, got none; finish the run")
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    kinds = list(dict.fromkeys(name for part in parts.values() for name in part))
    whole = {name: _stack([part.get(name) for part in parts.values()], list(sizes.values())) for name in kinds}
    whole["split"] = pa.array(np.repeat(np.arange(len(sizes), dtype=np.int16), list(sizes.values())))
    table, columns = _stored(whole, tuple(sizes))
    highest = pc.max(whole["label"]).as_py() if "label" in whole else None
    return Samples(
        table,
        columns,
        {split: part["id"] for split, part in parts.items()},
        starts,
        names,
        max(len(names), (highest if highest is not None else -1) + 1),
        about.get("method", ""),
        json.loads(about.get("options", "{}")),
    )


def _split(layout: Layout, split: str) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """Columns of one split from its scores and the first model's predictions, by id."""
    sources: list[dict[str, pa.Array]] = []
    told: dict[str, str] = {}
    if split in layout.scores:
        columns, metadata = _flat(layout.scores[split])
        columns["difficulty"] = pc.cast(columns.pop("score"), pa.float64())
        sources.append(columns)
        told |= metadata
    for files in layout.predictions.values():
        if split in files:
            columns, metadata = _flat(files[split])
            sources.append({k: v for k, v in columns.items() if not OF_MODEL.fullmatch(k)})
            told |= {k: v for k, v in metadata.items() if k == "class_names"}
            break
    sources.sort(key=lambda columns: -len(columns["id"]))
    base = sources[0]
    for other in sources[1:]:
        places = align(base["id"], other["id"])
        base |= {k: v if places is None else v.take(places) for k, v in other.items() if k not in base}
    return base, told


def _flat(path: Path) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """Columns of one value a row, with `id` as words and `label` as a number under their usual names."""
    table, metadata = arrow_files.read_arrow(path)
    columns = {name: _joined(table.column(name)) for name in table.column_names}
    label = next((columns.pop(name) for name in LABELS if name in columns), None)
    ids = next((columns.pop(name) for name in IDS if name in columns), None)
    if ids is None:
        ids = pa.array(np.arange(table.num_rows))
    known = {"id": pc.cast(ids, pa.string())}
    if label is not None:
        if not (pa.types.is_integer(label.type) or pa.types.is_floating(label.type)):
            raise InputError(
                f"{path} must have class indices as labels, got {label.type}; give numbers from 0, or rewrite "
                f"predictions with confide.Predictions.load({path.name!r}).save('{path.stem}.parquet')"
            )
        known["label"] = pc.cast(label, pa.int32(), safe=False)
    return known | columns, metadata


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def align(wanted: pa.Array, known: pa.Array) -> pa.Array | None:
    """Places of the wanted ids among the known ones, null where absent; None when they are the same."""
    return None if wanted.equals(known) else pc.index_in(wanted, value_set=known)


def _join_columns(parts: dict[str, dict[str, pa.Array]], path: Path) -> None:
    """Add the user's columns by id, within its split where the table names one."""
    columns, _ = _flat(path)
    if "id" not in arrow_files.column_names(path):
        raise InputError(f"{path} must have a column 'id' to join its columns by; add it")
    ids, split = columns.pop("id"), columns.pop("split", None)
    columns.pop("label", None)
    found = 0
    for name, part in parts.items():
        mine = None if split is None else pc.equal(split, name)
        places = pc.index_in(part["id"], value_set=ids if mine is None else ids.filter(mine))
        found += len(places) - places.null_count
        for key, values in columns.items():
            part[key] = (values if mine is None else values.filter(mine)).take(places)
    if not found:
        raise InputError(f"{path} must name samples that are shown here, but no id of it is; check the column 'id'")


def _stack(arrays: list[pa.Array | None], sizes: list[int]) -> pa.Array:
    known = next(a for a in arrays if a is not None)
    filled = [pa.nulls(n, known.type) if a is None else a for a, n in zip(arrays, sizes, strict=True)]
    return pa.concat_arrays([a.cast(known.type) for a in filled])


def _stored(whole: dict[str, pa.Array], splits: tuple[str, ...]) -> tuple[pa.Table, dict[str, Column]]:
    """Arrow columns under plain names, and what each is: words become positions in a list of values."""
    n = len(whole["id"])
    stored: dict[str, pa.Array] = {"row": pa.array(np.arange(n, dtype=np.int32)), "id": whole.pop("id")}
    stored["split"] = whole.pop("split")
    columns = {"split": Column("split", "Split", "split", "category", splits)}
    if "label" in whole:
        stored["label"] = whole.pop("label")
        columns["label"] = Column("label", "Label", "label", "class")
    for name in ("suggested", "runner_up"):
        if name in whole:
            stored[name] = pc.cast(whole.pop(name), pa.int32(), safe=False)
            title = {"suggested": "Class that fits best", "runner_up": "Runner-up class"}[name]
            columns[name] = Column(name, title, name, "class")
    for place, (name, values) in enumerate(whole.items()):
        known = {"difficulty": "Difficulty", "verdict": "Looks"}.get(name)
        sql = name if known else f"u{place}"
        found = _column(name if known else f"c.{name}", known or name, sql, values)
        if found is not None:
            columns[found[0].key], stored[sql] = found
    return pa.table(stored), columns


def _column(key: str, title: str, sql: str, values: pa.Array) -> tuple[Column, pa.Array] | None:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = pc.if_else(values, "yes", "no")
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        few = pa.types.is_integer(kind) and len(pc.unique(values.slice(0, 100_000)).drop_null()) <= FEW_NUMBERS
        if not few or key == "difficulty":
            return number_column(key, title, sql, values)
    try:
        words = pc.cast(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    words = pc.if_else(pc.equal(words, ""), None, words)
    coded = pc.dictionary_encode(words)
    if not len(coded.dictionary):
        return None
    if len(coded.dictionary) > MOST_VALUES:
        return Column(key, title, sql, "text"), words
    return Column(key, title, sql, "category", tuple(coded.dictionary.to_pylist())), coded.indices


def number_column(key: str, title: str, sql: str, values: pa.Array) -> tuple[Column, pa.Array] | None:
    """A column of numbers with the range to draw: all but the outermost half per cent; NaN is missing."""
    doubles = pc.cast(values, pa.float64(), safe=False)
    doubles = pc.if_else(pc.is_finite(doubles), doubles, None)
    if doubles.null_count == len(doubles):
        return None
    ends = np.asarray(pc.quantile(doubles, q=[0.0, 0.005, 0.995, 1.0]))
    low, high = (ends[0], ends[3]) if ends[2] - ends[1] <= 0 else (ends[1], ends[2])
    return Column(key, title, sql, "number", (), float(low), float(high if high > low else low + 1)), doubles
