"""All samples of a layout as one table: split, id, label, difficulty, verdict and user columns; and what a model
predicts at a stage for every row, with single rows of logits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from confide.checks import InputError
from confide.explorer.layout import RAW, Layout
from confide.files import formats
from confide.predictions import Predictions, predictions_from_columns

if TYPE_CHECKING:
    from confide.calibrators import Calibrator


# All samples of a layout as one table: a row each, with split, id, label, difficulty, verdict and user columns.

LABELS = ("label", "labels", "true_label", "y_true")
IDS = ("id", "ids")
MODEL_COLUMN = re.compile(r"logits|probs|probabilities|p\d+|pred_label|prediction|confidence|trust")
"""Columns of a predictions file that speak of the model; the rest belongs to the user."""
MAX_CATEGORIES = 1000
"""A column of words with more values than this is searched, not listed."""
MAX_LISTED_NUMBERS = 12
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
class SampleTable:
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


def gather_samples(layout: Layout) -> SampleTable:
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
    return SampleTable(
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
            sources.append({k: v for k, v in columns.items() if not MODEL_COLUMN.fullmatch(k)})
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
    table, metadata = formats.read_arrow(path)
    columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
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


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def align(wanted: pa.Array, known: pa.Array) -> pa.Array | None:
    """Places of the wanted ids among the known ones, null where absent; None when they are the same."""
    return None if wanted.equals(known) else pc.index_in(wanted, value_set=known)


def _join_columns(parts: dict[str, dict[str, pa.Array]], path: Path) -> None:
    """Add the user's columns by id, within its split where the table names one."""
    columns, _ = _flat(path)
    if "id" not in formats.column_names(path):
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
        few = pa.types.is_integer(kind) and len(pc.unique(values.slice(0, 100_000)).drop_null()) <= MAX_LISTED_NUMBERS
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
    if len(coded.dictionary) > MAX_CATEGORIES:
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


# What a model says at a stage: prediction, confidence, loss, outcome and trust of every row; single rows of logits.

WIDE = ("logits", "probs", "probabilities")
TOP1 = ("pred_label", "prediction", "confidence")
BLOCK_ELEMENTS = 1 << 22
"""Logits read at once: the memory a model of any number of rows takes."""


def model_table(layout: Layout, samples: SampleTable, model: str, stage: str) -> pa.Table:
    """One row per sample, in the order of the samples; null where the model said nothing."""
    n = samples.table.num_rows
    prediction = np.full(n, -1, dtype=np.int32)
    confidence, loss, trust = (np.full(n, np.nan, dtype=np.float32) for _ in range(3))
    hit = np.zeros(n, dtype=bool)
    calibrator = load_calibrator(layout, model, stage)
    for split, path in layout.predictions[model].items():
        said, sure, cost, right, own = _read_facts(path, split, calibrator)
        rows, kept = _aligned_rows(samples, split, _ids(path, len(said)))
        prediction[rows], confidence[rows], loss[rows], hit[rows] = said[kept], sure[kept], cost[kept], right[kept]
        if own is not None:
            trust[rows] = own[kept]
    for split, path in layout.trust.get(model, {}).items():
        table, _ = formats.read_arrow(path)
        rows, kept = _aligned_rows(samples, split, table.column("id").combine_chunks().cast(pa.string()))
        trust[rows] = table.column("trust").to_numpy()[kept]
    absent = prediction < 0
    return pa.table(
        {
            "prediction": pa.array(prediction, mask=absent),
            "confidence": pa.array(confidence, mask=absent),
            "loss": pa.array(loss, mask=~np.isfinite(loss)),
            "hit": pa.array(hit, mask=absent),
            "trust": pa.array(trust, mask=~np.isfinite(trust)),
        }
    )


def load_calibrator(layout: Layout, model: str, stage: str) -> Calibrator | None:
    """The calibrator of a stage; none as trained. Loaded here because its room takes a second to import."""
    if stage == RAW:
        return None
    from confide import calibrators

    return calibrators.load(layout.calibrators[model][stage])


def _ids(path: Path, n: int) -> pa.Array:
    table, _ = formats.read_arrow(path)
    name = next((c for c in IDS if c in table.column_names), None)
    ids = pa.array(np.arange(n)) if name is None else table.column(name).combine_chunks()
    return (pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids).cast(pa.string())


def _aligned_rows(samples: SampleTable, split: str, ids: pa.Array) -> tuple[Any, Any]:
    """Rows of the table that a file's samples have, and which of the file's rows they are."""
    start, known = samples.starts[split], samples.ids[split]
    places = align(known, ids)
    if places is None:
        return slice(start, start + len(known)), slice(None)
    kept = places.is_valid().to_numpy(zero_copy_only=False)
    return start + np.flatnonzero(kept), places.drop_null().to_numpy()


def _read_facts(path: Path, split: str, calibrator: Calibrator | None) -> tuple[Any, Any, Any, Any, Any]:
    """Prediction, confidence, loss, right and own trust of a file, read block by block."""
    names = formats.column_names(path)
    wanted = [c for c in names if c in (*LABELS, *WIDE, *TOP1, "trust") or (c[:1] == "p" and c[1:].isdigit())]
    parts: list[tuple[Any, ...]] = []
    for columns, metadata in formats.table_batches(path, _block_rows(path), wanted):
        spoken = predictions_from_columns({k: v for k, v in columns.items() if k in wanted}, metadata, split, str(path))
        facts = (spoken if calibrator is None else calibrator(spoken)).facts
        loss = np.full(len(spoken), np.nan, dtype=np.float32) if facts.nll is None else facts.nll.float().numpy()
        own = None if spoken.trust is None else spoken.trust.float().numpy()
        said = facts.prediction.numpy().astype(np.int32)
        parts.append((said, facts.confidence.float().numpy(), loss, facts.correct.numpy(), own))
    columns_of_parts = list(zip(*parts, strict=True))
    own_trust = None if columns_of_parts[4][0] is None else np.concatenate(columns_of_parts[4])
    joined = [np.concatenate(c) for c in columns_of_parts[:4]]
    return joined[0], joined[1], joined[2], joined[3], own_trust


def _block_rows(path: Path) -> int:
    """So many rows that their logits fit a block."""
    if path.suffix != ".parquet":
        return BLOCK_ELEMENTS
    width = formats.list_width(path, WIDE)
    return max(1, BLOCK_ELEMENTS // max(width, 1))


class LogitsReader:
    """Single rows of a model's logits or probabilities, straight from the parquet file by DuckDB."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        import duckdb

        self.layout, self.samples = layout, samples
        self._connection = duckdb.connect()
        self._places: dict[Path, pa.Array | None] = {}

    def read(self, model: str, row: int) -> Predictions | None:
        """What a model said of one sample with all classes; None where it said nothing or only its top one."""
        split = self.samples.split_of(row)
        path = self.layout.predictions.get(model, {}).get(split)
        if path is None:
            return None
        names = formats.column_names(path)
        wide = next((c for c in WIDE if c in names), None)
        if wide is None and "p0" not in names:
            return None
        place = self._place(path, split, row - self.samples.starts[split])
        if place is None:
            return None
        label = self.samples.table.column("label")[row].as_py()
        values, told = self._values(path, wide, place)
        columns: dict[str, Any] = {wide or "probs": values[None, :], "label": np.array([label])}
        return predictions_from_columns(columns, told, split, str(path))

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
        del self._connection

    def _place(self, path: Path, split: str, position: int) -> int | None:
        if path not in self._places:
            n = formats.num_rows(path)
            self._places[path] = align(self.samples.ids[split], _ids(path, n))
        places = self._places[path]
        return position if places is None else places[position].as_py()

    def _values(self, path: Path, wide: str | None, place: int) -> tuple[Any, Mapping[str, str]]:
        if path.suffix != ".parquet" or wide is None:
            columns, told = formats.read_table(path)
            if wide is not None:
                return columns[wide][place], told
            order = sorted((c for c in columns if c[:1] == "p" and c[1:].isdigit()), key=lambda c: int(c[1:]))
            return np.array([columns[c][place] for c in order]), told
        query = f'SELECT "{wide}" FROM read_parquet(?, file_row_number = true) WHERE file_row_number = ?'
        found = self._connection.cursor().execute(query, [str(path), place]).fetchone()
        return np.asarray(found[0], dtype=np.float32), formats.parquet_metadata(path)
