"""What a model says at a stage: prediction, confidence, loss, outcome and trust of every row; single rows of logits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from confide.core import arrow_files, files
from confide.core.predictions import Predictions, from_columns
from confide.explorer.layout import RAW, Layout
from confide.explorer.samples import IDS, LABELS, Samples, align

if TYPE_CHECKING:
    from confide.calibrators import Calibrator

WIDE = ("logits", "probs", "probabilities")
TOP1 = ("pred_label", "prediction", "confidence")
BLOCK_ELEMENTS = 1 << 22
"""Logits read at once: the memory a model of any number of rows takes."""


def said_table(layout: Layout, samples: Samples, model: str, stage: str) -> pa.Table:
    """One row per sample, in the order of the samples; null where the model said nothing."""
    n = samples.table.num_rows
    prediction = np.full(n, -1, dtype=np.int32)
    confidence, loss, trust = (np.full(n, np.nan, dtype=np.float32) for _ in range(3))
    hit = np.zeros(n, dtype=bool)
    calibrator = load_calibrator(layout, model, stage)
    for split, path in layout.predictions[model].items():
        said, sure, cost, right, own = _facts(path, split, calibrator)
        rows, kept = _rows(samples, split, _ids(path, len(said)))
        prediction[rows], confidence[rows], loss[rows], hit[rows] = said[kept], sure[kept], cost[kept], right[kept]
        if own is not None:
            trust[rows] = own[kept]
    for split, path in layout.trust.get(model, {}).items():
        table, _ = arrow_files.read_arrow(path)
        rows, kept = _rows(samples, split, table.column("id").combine_chunks().cast(pa.string()))
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
    table, _ = arrow_files.read_arrow(path)
    name = next((c for c in IDS if c in table.column_names), None)
    ids = pa.array(np.arange(n)) if name is None else table.column(name).combine_chunks()
    return (pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids).cast(pa.string())


def _rows(samples: Samples, split: str, ids: pa.Array) -> tuple[Any, Any]:
    """Rows of the table that a file's samples have, and which of the file's rows they are."""
    start, known = samples.starts[split], samples.ids[split]
    places = align(known, ids)
    if places is None:
        return slice(start, start + len(known)), slice(None)
    kept = places.is_valid().to_numpy(zero_copy_only=False)
    return start + np.flatnonzero(kept), places.drop_null().to_numpy()


def _facts(path: Path, split: str, calibrator: Calibrator | None) -> tuple[Any, Any, Any, Any, Any]:
    """Prediction, confidence, loss, right and own trust of a file, read block by block."""
    names = arrow_files.column_names(path)
    wanted = [c for c in names if c in (*LABELS, *WIDE, *TOP1, "trust") or (c[:1] == "p" and c[1:].isdigit())]
    parts: list[tuple[Any, ...]] = []
    for columns, metadata in files.table_batches(path, _block_rows(path), wanted):
        spoken = from_columns({k: v for k, v in columns.items() if k in wanted}, metadata, split, str(path))
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
    width = arrow_files.list_width(path, WIDE)
    return max(1, BLOCK_ELEMENTS // max(width, 1))


class LogitsReader:
    """Single rows of a model's logits or probabilities, straight from the parquet file by DuckDB."""

    def __init__(self, layout: Layout, samples: Samples) -> None:
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
        names = arrow_files.column_names(path)
        wide = next((c for c in WIDE if c in names), None)
        if wide is None and "p0" not in names:
            return None
        place = self._place(path, split, row - self.samples.starts[split])
        if place is None:
            return None
        label = self.samples.table.column("label")[row].as_py()
        values, told = self._values(path, wide, place)
        columns: dict[str, Any] = {wide or "probs": values[None, :], "label": np.array([label])}
        return from_columns(columns, told, split, str(path))

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
        del self._connection

    def _place(self, path: Path, split: str, position: int) -> int | None:
        if path not in self._places:
            n = arrow_files.num_rows(path)
            self._places[path] = align(self.samples.ids[split], _ids(path, n))
        places = self._places[path]
        return position if places is None else places[position].as_py()

    def _values(self, path: Path, wide: str | None, place: int) -> tuple[Any, Mapping[str, str]]:
        if path.suffix != ".parquet" or wide is None:
            columns, told = files.read_table(path)
            if wide is not None:
                return columns[wide][place], told
            order = sorted((c for c in columns if c[:1] == "p" and c[1:].isdigit()), key=lambda c: int(c[1:]))
            return np.array([columns[c][place] for c in order]), told
        query = f'SELECT "{wide}" FROM read_parquet(?, file_row_number = true) WHERE file_row_number = ?'
        found = self._connection.cursor().execute(query, [str(path), place]).fetchone()
        return np.asarray(found[0], dtype=np.float32), arrow_files.metadata_of(path)
