"""Queries over the samples: the tables in DuckDB, the query string of a view -> checked SQL, counts and order of
what
fits, and two models compared.

Names never enter the SQL: a key finds a column the explorer made, values are parameters.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from confide.checks import InputError, did_you_mean
from confide.explorer.layout import Layout
from confide.explorer.samples import Column, SampleTable, model_table, number_column
from confide.explorer.tags import TagFile

# The samples in DuckDB: one table, one more for every model and stage that was looked at, and one of tags.

TAG_KINDS = ("relabel", "drop", "keep", "note")
MODEL_NUMBERS = {"confidence": "Confidence", "trust": "Trust", "loss": "Loss"}


@dataclass(frozen=True)
class ModelStage:
    """A model at a stage as a table of DuckDB, with the columns it has."""

    model: str
    stage: str
    table: str
    columns: dict[str, Column]


class SampleDatabase:
    """Samples and what models say of them, queried by SQL; rows of all tables stand in the same order."""

    def __init__(self, layout: Layout, samples: SampleTable, tags: TagFile) -> None:
        import duckdb

        self.layout, self.samples, self.tags = layout, samples, tags
        self._connection = duckdb.connect()
        # Nothing of a query may reach a file or the network.
        self._connection.execute("SET enable_external_access = false")
        self._lock = threading.Lock()
        self._voices: dict[tuple[str, str], ModelStage] = {}
        self._store("samples", samples.table)
        self._connection.execute("CREATE TABLE marks (row INTEGER PRIMARY KEY, action TINYINT)")
        rows = [(row, TAG_KINDS.index(tag.kind)) for row, tag in self._rows_of_tags() if tag.kind]
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

    def voice(self, model: str, stage: str) -> ModelStage:
        """The table of a model at a stage, made when it is first asked for."""
        if model not in self.layout.predictions:
            raise InputError(f"model must be one of {', '.join(self.models) or 'none'}, got '{model}'")
        if stage not in self.layout.stages(model):
            raise InputError(f"stage must be one of {', '.join(self.layout.stages(model))}, got '{stage}'")
        with self._lock:
            if (model, stage) not in self._voices:
                self._voices[model, stage] = self._new_voice(model, stage)
            return self._voices[model, stage]

    def _new_voice(self, model: str, stage: str) -> ModelStage:
        content = model_table(self.layout, self.samples, model, stage)
        name = f"said{len(self._voices)}"
        self._store(name, content)
        columns = {
            "prediction": Column("prediction", "Predicted", f"{name}.prediction", "class"),
            "outcome": Column("outcome", "Outcome", f"CAST({name}.hit AS TINYINT)", "category", ("wrong", "right")),
        }
        for key, title in MODEL_NUMBERS.items():
            found = number_column(key, title, f"{name}.{key}", content.column(key).combine_chunks())
            if found is not None:
                low, high = (0.0, 1.0) if key == "confidence" else (found[0].low, found[0].high)
                columns[key] = Column(key, title, f"{name}.{key}", "number", (), low, high)
        return ModelStage(model, stage, name, columns)

    def columns(self, voice: ModelStage | None) -> dict[str, Column]:
        """All columns that can be filtered by, given who speaks."""
        return {**self.samples.columns, **(voice.columns if voice else {})}

    def source(self, voices: Sequence[ModelStage | None]) -> str:
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
                cursor.execute("INSERT INTO marks VALUES (?, ?)", [row, TAG_KINDS.index(kind)])


# A question: the query string of a view -> checked filters, sorting and who speaks -> SQL with parameters.
#
# Names never enter the SQL: a key finds a column the explorer made, values are parameters.

NOT_FILTERS = {"model", "stage", "sort", "with", "view", "sample"}
"""Keys that filter nothing."""
RANGE = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)?\.\.(-?[\d.]+(?:e[+-]?\d+)?)?")
CELLS = {"rr": (1, 1), "rw": (1, 0), "wr": (0, 1), "ww": (0, 0)}
MODEL_FILTERS = {"prediction", "outcome", "confidence", "trust", "loss", "cells", "disagree"}
"""Filters that depend on who speaks; a comparison of models leaves them aside."""


@dataclass(frozen=True)
class Clause:
    """One filter: its key, its SQL, and the values for it."""

    key: str
    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Question:
    """Who speaks (and who is compared), what must hold, and in which order."""

    voice: ModelStage | None
    other: ModelStage | None
    clauses: tuple[Clause, ...] = ()
    sort: str = ""
    descending: bool = True
    columns: Mapping[str, Column] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """What two questions with the same answer share."""
        tables = tuple(v.table if v else "" for v in (self.voice, self.other))
        return (*tables, self.clauses, self.sort, self.descending)

    def where(self, without: str | Iterable[str] = ()) -> tuple[str, list[Any]]:
        """WHERE and its values; filters on the keys left out do not count."""
        left_out = {without} if isinstance(without, str) else set(without)
        kept = [c for c in self.clauses if c.key not in left_out]
        if not kept:
            return "", []
        return "WHERE " + " AND ".join(f"({c.sql})" for c in kept), [v for c in kept for v in c.values]


def parse_question(table: SampleDatabase, pairs: Iterable[tuple[str, str]]) -> Question:
    """The question that a query string asks; what it cannot mean is refused in one line."""
    words: dict[str, list[str]] = {}
    for key, value in pairs:
        words.setdefault(key, []).append(value)
    voice, other = _model_stages(table, words)
    columns = table.columns(voice)
    clauses = []
    for key, values in words.items():
        if key in NOT_FILTERS:
            continue
        clauses.append(_clause(key, tuple(values), columns, voice, other, table.samples.num_classes))
    sort = words.get("sort", [_default_sort(columns)])[0]
    name = sort.removeprefix("-")
    if sort and (name not in columns or columns[name].kind != "number"):
        known = [c.key for c in columns.values() if c.kind == "number"]
        raise InputError(f"sort must be a column of numbers, got '{name}'; {did_you_mean(name, known)}")
    return Question(voice, other, tuple(clauses), name, sort.startswith("-"), columns)


def _model_stages(table: SampleDatabase, words: Mapping[str, list[str]]) -> tuple[ModelStage | None, ModelStage | None]:
    if not table.models:
        return None, None
    model = words.get("model", [table.models[0]])[0]
    stages = table.layout.stages(model) if model in table.layout.predictions else ("raw",)
    stage = words.get("stage", [stages[-1]])[0]
    voice = table.voice(model, stage)
    if "with" not in words:
        return voice, None
    other = words["with"][0]
    offered = table.layout.stages(other) if other in table.layout.predictions else ()
    return voice, table.voice(other, stage if stage in offered else "raw")


def _default_sort(columns: Mapping[str, Column]) -> str:
    if "difficulty" in columns:
        return "-difficulty"
    return "confidence" if "confidence" in columns else ""


def _clause(
    key: str,
    values: tuple[str, ...],
    columns: Mapping[str, Column],
    voice: ModelStage | None,
    other: ModelStage | None,
    num_classes: int,
) -> Clause:
    if key == "search":
        return Clause(key, "contains(lower(id), ?)", (values[0].lower(),))
    if key == "tag":
        return _tag_clause(values)
    if key in ("cells", "disagree"):
        return _compare_clause(key, values, voice, other)
    column = columns.get(key)
    if column is None:
        known = [*columns, "search", "tag", "cells", "disagree"]
        raise InputError(f"there is no column '{key}' to filter by; {did_you_mean(key, known)}")
    if column.kind == "number":
        return _range_clause(column, values[0])
    if column.kind == "text":
        return Clause(key, f"contains(lower({column.sql}), ?)", (values[0].lower(),))
    return _value_clause(column, values, num_classes)


def _value_clause(column: Column, values: tuple[str, ...], num_classes: int) -> Clause:
    """One of several classes or words; the empty word means: has none."""
    places: list[int] = []
    for value in values:
        if value == "":
            continue
        if column.kind == "class":
            if not value.isdigit() or int(value) >= num_classes:
                raise InputError(f"'{column.key}' must be a class index below {num_classes}, got '{value}'")
            places.append(int(value))
        elif value in column.values:
            places.append(column.values.index(value))
        else:
            raise InputError(f"'{column.key}' has no value '{value}'; {did_you_mean(value, column.values)}")
    tests = [f"{column.sql} IN ({', '.join('?' for _ in places)})"] if places else []
    tests += [f"{column.sql} IS NULL"] if "" in values else []
    return Clause(column.key, " OR ".join(tests), tuple(places))


def _range_clause(column: Column, value: str) -> Clause:
    """`low..high`, either end open; the ends belong to it."""
    found = RANGE.fullmatch(value)
    try:
        ends = (None, None) if found is None else tuple(None if e is None else float(e) for e in found.groups())
    except ValueError:
        ends = (None, None)
    if ends == (None, None):
        raise InputError(f"'{column.key}' must be a range such as 0.2..0.8, 0.2.. or ..0.8, got '{value}'")
    tests = [f"{column.sql} {sign} ?" for sign, end in zip((">=", "<="), ends, strict=True) if end is not None]
    return Clause(column.key, " AND ".join(tests), tuple(end for end in ends if end is not None))


def _tag_clause(values: tuple[str, ...]) -> Clause:
    bad = [v for v in values if v not in (*TAG_KINDS, "any", "none")]
    if bad:
        raise InputError(f"tag must be one of {', '.join(TAG_KINDS)}, any or none, got '{bad[0]}'")
    tests = []
    places = tuple(TAG_KINDS.index(v) for v in values if v in TAG_KINDS)
    if places:
        tests.append(f"row IN (SELECT row FROM marks WHERE action IN ({', '.join('?' for _ in places)}))")
    if "any" in values:
        tests.append("row IN (SELECT row FROM marks)")
    if "none" in values:
        tests.append("row NOT IN (SELECT row FROM marks)")
    return Clause("tag", " OR ".join(tests), places)


def _compare_clause(key: str, values: tuple[str, ...], voice: ModelStage | None, other: ModelStage | None) -> Clause:
    """Samples by who of two models is right, or where they say different classes."""
    if voice is None or other is None:
        raise InputError(f"'{key}' compares two models; name the second with with=MODEL")
    if key == "disagree":
        return Clause(key, f"{voice.table}.prediction <> {other.table}.prediction")
    bad = [v for v in values if v not in CELLS]
    if bad:
        raise InputError(f"cells must be of {', '.join(CELLS)} (r right, w wrong), got '{bad[0]}'")
    tests = [
        f"({'' if CELLS[v][0] else 'NOT '}{voice.table}.hit AND {'' if CELLS[v][1] else 'NOT '}{other.table}.hit)"
        for v in values
    ]
    return Clause(key, " OR ".join(tests))


# Answers to a question: how many, in which order, and how they spread over every column.
#
# DuckDB finds the rows that fit; how they spread is counted on codes, one small number a row and column, made once.

BINS = 36
"""Bars of a histogram; the outermost also hold what lies beyond the drawn range."""
MAX_LISTED_CLASSES = 12
"""Classes listed at once; the rest is found by typing."""
MAX_LISTED_VALUES = 40
KEPT_ORDERS = 16
HIDDEN = ("suggested", "runner_up")
Order = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Answers:
    """Computes answers, and keeps the last orders so that scrolling asks for slices only."""

    def __init__(self, table: SampleDatabase) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._whole: OrderedDict[tuple[Any, ...], Order] = OrderedDict()
        self._chosen: OrderedDict[tuple[Any, ...], tuple[int, Order]] = OrderedDict()
        self._codes: dict[str, NDArray[Any]] = {}
        self.version = 0
        """Goes up with every tag, so that orders that a tag decided are computed anew."""

    def order(self, question: Question, fits: Mask | None = None, version: int | None = None) -> Order:
        """The rows that fit, in order.

        Args:
            fits: which rows fit, where that is known already.
            version: the version of the tags before that was found out.
        """
        key, version = question.key, self.version if version is None else version
        depends = any(c.key == "tag" for c in question.clauses)
        with self._lock:
            kept = self._chosen.get(key)
            if kept is not None and (not depends or kept[0] == version):
                self._chosen.move_to_end(key)
                return kept[1]
        rows = self._sorted(question)
        if question.clauses:
            fits = self._fits(question) if fits is None else fits
            rows = rows[fits[rows]]
        with self._lock:
            _remember(self._chosen, key, (version, rows))
        return rows

    def place(self, question: Question, row: int) -> tuple[int | None, int]:
        """The position of a row among those that fit, or None; and how many of those stand before it."""
        order = self.order(question)
        found = (order == row).nonzero()[0]
        if len(found):
            return int(found[0]), int(found[0])
        whole = self._sorted(question)
        earlier = np.zeros(len(whole), dtype=bool)
        earlier[whole[: int((whole == row).nonzero()[0][0])]] = True
        return None, int(earlier[order].sum())

    def _sorted(self, question: Question) -> Order:
        """All rows by the sorting alone: filters only choose from it."""
        column = question.columns.get(question.sort)
        key = ("", False) if column is None else (column.sql, question.descending)
        with self._lock:
            if key in self._whole:
                return self._whole[key]
        if column is None:
            order = np.arange(self.table.samples.table.num_rows, dtype=np.int32)
        else:
            source = self.table.source((question.voice,))
            direction = "DESC" if question.descending else "ASC"
            sql = f"SELECT row FROM {source} ORDER BY {column.sql} {direction} NULLS LAST, row"
            order = self.table.numbers(sql).astype(np.int32)
        with self._lock:
            _remember(self._whole, key, order)
        return order

    def _fits(self, question: Question, without: str = "") -> Mask:
        """Which rows fit all filters but the one left out."""
        where, values = question.where(without)
        fits = np.full(self.table.samples.table.num_rows, not where)
        if where:
            source = self.table.source((question.voice, question.other))
            fits[self.table.numbers(f"SELECT row FROM {source} {where}", values)] = True
        return fits

    def find(self, question: Question, opened: tuple[str, ...] = ()) -> dict[str, Any]:
        """Count, histograms and facets; every column is counted without its own filter.

        Args:
            opened: user columns whose spread is wanted.
        """
        filtered, version = {c.key for c in question.clauses}, self.version
        fits = {"": self._fits(question)} | {key: self._fits(question, key) for key in filtered}
        shown = [c for c in question.columns.values() if not c.key.startswith("c.") or c.key in opened]
        spread = {
            c.key: self._spread(question, c, fits.get(c.key, fits[""]))
            for c in shown
            if c.kind != "text" and c.key not in HIDDEN
        }
        count = len(self.order(question, fits[""], version))
        found = {
            "count": count,
            "histograms": {c.key: spread[c.key] for c in shown if c.kind == "number"},
            "facets": {c.key: spread[c.key] for c in shown if c.key in spread and c.kind != "number"},
            "tags": self._tags(fits.get("tag", fits[""])),
            "tagged": self.table.fetch("SELECT count(*) FROM marks")[0][0],
            "columns": [column.public() for column in question.columns.values()],
        }
        if not count and filtered:
            # Without which filter would most samples fit?
            found["blame"] = max(sorted(filtered), key=lambda key: int(fits[key].sum()))
        return found

    def _spread(self, question: Question, column: Column, fits: Mask) -> Any:
        """How the rows that fit spread over a column: bars of a histogram, or counts by value."""
        codes = self._coded(question, column)
        counts = np.bincount(codes if fits.all() else codes[fits])
        if column.kind == "number":
            return [int(counts[k]) if k < len(counts) else 0 for k in range(1, BINS + 1)]
        return self._facet(question, column, counts)

    def _coded(self, question: Question, column: Column) -> NDArray[Any]:
        """A number per row: 0 where the value is missing, else the bin or the value's place plus one."""
        with self._lock:
            if column.sql in self._codes:
                return self._codes[column.sql]
        place, values = column.sql, []
        if column.kind == "number":
            width = (column.high - column.low) / BINS
            inside = f"least({BINS - 1}, greatest(0, floor(({column.sql} - ?) / ?)))"
            # greatest() passes over what is missing, so it is kept apart first.
            place, values = f"CASE WHEN {column.sql} IS NOT NULL THEN {inside} END", [column.low, width]
        source = self.table.source((question.voice,))
        codes = self.table.numbers(f"SELECT coalesce(CAST({place} AS INTEGER), -1) + 1 FROM {source}", values)
        codes = codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
        with self._lock:
            self._codes[column.sql] = codes
        return codes

    def _facet(self, question: Question, column: Column, counts: NDArray[Any]) -> dict[str, Any]:
        """Counts by value, the most frequent first; values beyond the listed are left to the search."""
        present = np.flatnonzero(counts[1:])
        known = present[np.argsort(-counts[1:][present], kind="stable")]
        chosen = {v for c in question.clauses if c.key == column.key for v in c.values}
        most = MAX_LISTED_CLASSES if column.kind == "class" else MAX_LISTED_VALUES
        listed = [*known[:most].tolist(), *sorted(chosen - set(known[:most].tolist()))]
        return {
            "values": [
                {
                    "value": str(value) if column.kind == "class" else column.values[value],
                    "name": str(self.table.samples.name_of(value)) if column.kind == "class" else column.values[value],
                    "count": int(counts[value + 1]) if value + 1 < len(counts) else 0,
                }
                for value in listed
            ],
            "none": int(counts[0]) if len(counts) else 0,
            "distinct": len(known),
        }

    def _tags(self, fits: Mask) -> dict[str, int]:
        found = dict.fromkeys(TAG_KINDS, 0)
        for row, action in self.table.fetch("SELECT row, action FROM marks"):
            found[TAG_KINDS[action]] += int(fits[row])
        return {action: many for action, many in found.items() if many}


def _remember(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > KEPT_ORDERS:
        kept.popitem(last=False)


# Two models on the same samples: who is right, where they disagree, and whether the difference is chance.

MOST_DOTS = 1500
MOST_PAIRS = 60


def compare_models(table: SampleDatabase, question: Question, cells: tuple[str, ...]) -> dict[str, Any]:
    """The two by two of right and wrong, dots of the disagreements, and pairs of the chosen cells.

    Filters that depend on a model (prediction, outcome, confidence ...) are left aside, so that neither is favoured.
    """
    first, second = question.voice, question.other
    if first is None or second is None:
        raise InputError("a comparison needs two models; name the second with with=MODEL")
    if first.table == second.table:
        raise InputError("a comparison needs two different models, got the same twice")
    where, values = question.where(without=MODEL_FILTERS)
    both = f"{first.table}.prediction IS NOT NULL AND {second.table}.prediction IS NOT NULL"
    base = f"FROM {table.source((first, second))} {where + ' AND' if where else 'WHERE'} {both}"
    counts = table.fetch(f"SELECT {first.table}.hit, {second.table}.hit, count(*) {base} GROUP BY ALL", values)
    grid = {name: sum(m for a, b, m in counts if (int(a), int(b)) == cell) for name, cell in CELLS.items()}
    differ = f"{first.table}.prediction <> {second.table}.prediction"
    disagree = table.fetch(f"SELECT count(*) {base} AND {differ}", values)[0][0]
    return {
        "n": sum(grid.values()),
        "cells": grid,
        "disagree": disagree,
        "p": _mcnemar(grid["rw"], grid["wr"]),
        "dots": _dots(table, question, f"{base} AND {differ}", values),
        "pairs": _pairs(table, question, f"{base} AND ({_cells_sql(question, cells)})", values),
        "left_aside": sorted({c.key for c in question.clauses} & (MODEL_FILTERS - {"cells", "disagree"})),
    }


def _cells_sql(question: Question, cells: tuple[str, ...]) -> str:
    first, second = question.voice, question.other
    assert first is not None
    assert second is not None
    bad = [c for c in cells if c not in CELLS]
    if bad:
        raise InputError(f"cells must be of {', '.join(CELLS)} (r right, w wrong), got '{bad[0]}'")
    tests = [
        f"({'' if CELLS[c][0] else 'NOT '}{first.table}.hit AND {'' if CELLS[c][1] else 'NOT '}{second.table}.hit)"
        for c in cells
    ]
    return " OR ".join(tests) or "false"


def _mcnemar(only_first: int, only_second: int) -> float | None:
    """Exact McNemar test: two-sided binomial of the samples that only one model has right."""
    n, k = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return None
    if n > 10_000:  # beyond this the normal approximation with continuity correction is exact to all digits shown
        return math.erfc(max(abs(only_first - only_second) - 1, 0) / math.sqrt(2 * n))
    log_half = n * math.log(0.5)
    tail = sum(
        math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + log_half) for i in range(k + 1)
    )
    return min(1.0, 2 * tail)


def _dots(table: SampleDatabase, question: Question, base: str, values: list[Any]) -> list[list[float]]:
    """Confidence of both and who is right (1, 2, or 0 for neither); an even sample where there are too many."""
    first, second = question.voice, question.other
    assert first is not None
    assert second is not None
    right = f"CASE WHEN {first.table}.hit THEN 1 WHEN {second.table}.hit THEN 2 ELSE 0 END"
    rows = table.fetch(
        f"SELECT row, {first.table}.confidence, {second.table}.confidence, {right} {base} "
        f"ORDER BY hash(row) LIMIT {MOST_DOTS}",
        values,
    )
    return [[row, round(a, 4), round(b, 4), who] for row, a, b, who in rows]


def _pairs(table: SampleDatabase, question: Question, base: str, values: list[Any]) -> list[dict[str, Any]]:
    """Samples with the largest difference in confidence first."""
    first, second = question.voice, question.other
    assert first is not None
    assert second is not None
    label = "label" if "label" in question.columns else "NULL"
    columns = ", ".join(f"{v.table}.{c}" for v in (first, second) for c in ("prediction", "confidence", "hit"))
    gap = f"abs({first.table}.confidence - {second.table}.confidence)"
    rows = table.fetch(f"SELECT row, id, {label}, {columns} {base} ORDER BY {gap} DESC, row LIMIT {MOST_PAIRS}", values)
    name = table.samples.name_of
    return [
        {
            "row": row,
            "id": sample,
            "label": name(truth),
            "said": [
                {"name": name(a), "confidence": sure_a, "right": right_a},
                {"name": name(b), "confidence": sure_b, "right": right_b},
            ],
        }
        for row, sample, truth, a, sure_a, right_a, b, sure_b, right_b in rows
    ]
