"""The samples in DuckDB: one table, one more for every model and stage that was looked at, and one of tags."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.explorer.layout import Layout
from confide.explorer.said import said_table
from confide.explorer.samples import Column, Samples, number_column
from confide.explorer.tags import Tags

ACTIONS = ("relabel", "drop", "keep", "note")
OF_MODEL = {"confidence": "Confidence", "trust": "Trust", "loss": "Loss"}


@dataclass(frozen=True)
class Voice:
    """A model at a stage as a table of DuckDB, with the columns it has."""

    model: str
    stage: str
    table: str
    columns: dict[str, Column]


class Table:
    """Samples and what models say of them, queried by SQL; rows of all tables stand in the same order."""

    def __init__(self, layout: Layout, samples: Samples, tags: Tags) -> None:
        import duckdb

        self.layout, self.samples, self.tags = layout, samples, tags
        self._connection = duckdb.connect()
        # Nothing of a query may reach a file or the network.
        self._connection.execute("SET enable_external_access = false")
        self._lock = threading.Lock()
        self._voices: dict[tuple[str, str], Voice] = {}
        self._store("samples", samples.table)
        self._connection.execute("CREATE TABLE marks (row INTEGER PRIMARY KEY, action TINYINT)")
        rows = [(row, ACTIONS.index(tag.kind)) for row, tag in self._rows_of_tags() if tag.kind]
        if rows:
            self._connection.executemany("INSERT INTO marks VALUES (?, ?)", rows)

    def _store(self, name: str, content: pa.Table) -> None:
        cursor = self._connection.cursor()
        cursor.register("content", content)
        cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM content")
        cursor.unregister("content")

    def _rows_of_tags(self) -> list[tuple[int, Any]]:
        """Tags of samples that are here; others stay in their file."""
        tags = self.tags.all()
        found = []
        for split in self.samples.starts:
            mine = [tag for tag in tags if tag.split == split]
            if mine:
                import pyarrow.compute as pc

                places = pc.index_in(pa.array([tag.id for tag in mine]), value_set=self.samples.ids[split])
                start = self.samples.starts[split]
                found += [(start + p, t) for p, t in zip(places.to_pylist(), mine, strict=True) if p is not None]
        return found

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.layout.predictions)

    def voice(self, model: str, stage: str) -> Voice:
        """The table of a model at a stage, made when it is first asked for."""
        if model not in self.layout.predictions:
            raise InputError(f"model must be one of {', '.join(self.models) or 'none'}, got '{model}'")
        if stage not in self.layout.stages(model):
            raise InputError(f"stage must be one of {', '.join(self.layout.stages(model))}, got '{stage}'")
        with self._lock:
            if (model, stage) not in self._voices:
                self._voices[model, stage] = self._new_voice(model, stage)
            return self._voices[model, stage]

    def _new_voice(self, model: str, stage: str) -> Voice:
        content = said_table(self.layout, self.samples, model, stage)
        name = f"said{len(self._voices)}"
        self._store(name, content)
        columns = {
            "prediction": Column("prediction", "Predicted", f"{name}.prediction", "class"),
            "outcome": Column("outcome", "Outcome", f"CAST({name}.hit AS TINYINT)", "category", ("wrong", "right")),
        }
        for key, title in OF_MODEL.items():
            found = number_column(key, title, f"{name}.{key}", content.column(key).combine_chunks())
            if found is not None:
                low, high = (0.0, 1.0) if key == "confidence" else (found[0].low, found[0].high)
                columns[key] = Column(key, title, f"{name}.{key}", "number", (), low, high)
        return Voice(model, stage, name, columns)

    def columns(self, voice: Voice | None) -> dict[str, Column]:
        """All columns that can be filtered by, given who speaks."""
        return {**self.samples.columns, **(voice.columns if voice else {})}

    def source(self, voices: Sequence[Voice | None]) -> str:
        """FROM: the samples with what these models say, row by row."""
        names = dict.fromkeys(v.table for v in voices if v is not None)
        return " POSITIONAL JOIN ".join(["samples", *names])

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return list(self._connection.cursor().execute(sql, list(parameters)).fetchall())

    def arrow(self, sql: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """A query's result as an arrow table."""
        return self._connection.cursor().sql(sql, params=list(parameters)).to_arrow_table()

    def numbers(self, sql: str, parameters: Sequence[Any] = ()) -> NDArray[Any]:
        """The one column of a query as an array."""
        found = self._connection.cursor().execute(sql, list(parameters)).fetchnumpy()
        return np.ma.filled(next(iter(found.values())), 0)

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
        del self._connection

    def mark(self, row: int, kind: str | None) -> None:
        """Keep the mirror of the tags in step with their file."""
        with self._lock:
            cursor = self._connection.cursor()
            cursor.execute("DELETE FROM marks WHERE row = ?", [row])
            if kind is not None:
                cursor.execute("INSERT INTO marks VALUES (?, ?)", [row, ACTIONS.index(kind)])
