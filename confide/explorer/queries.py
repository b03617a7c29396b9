"""Queries over the samples, from top to bottom: the tables in DuckDB (`SampleDatabase`), a query string turned into
checked filters (`parse_query`), the rows that fit with their order and spread (`QueryRunner`).

Names never enter the SQL: a key finds a column the explorer made, values are parameters.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from confide.checks import InputError, did_you_mean, number_of_digits
from confide.explorer.layout import Layout
from confide.explorer.marks import TagMarks
from confide.explorer.samples import Column, SampleTable, model_table, number_column
from confide.explorer.tags import TAG_KINDS
from confide.results import RAW
from confide.types import Flags, Floats, Indices

# The samples in DuckDB: one table, one more for every model and stage that was looked at, and one of tags.

Value = TypeVar("Value")
MODEL_NUMBERS = {"confidence": "Confidence", "trust": "Trust", "loss": "Loss", "changes": "Changes of mind"}


@dataclass(frozen=True)
class StageTable:
    """A model at a stage as a table of DuckDB, with the columns it has."""

    model: str
    stage: str
    table: str
    columns: dict[str, Column]


class SampleDatabase:
    """Samples and what models predict for them, queried by SQL; rows of all tables stand in the same order."""

    def __init__(self, layout: Layout, samples: SampleTable, marks: TagMarks) -> None:
        import duckdb

        self.layout, self.samples, self.marks = layout, samples, marks
        self._connection, self._opening = duckdb.connect(), threading.Lock()
        # Nothing of a query may reach a file or the network.
        self._connection.execute("SET enable_external_access = false")
        self._lock = threading.Lock()
        self._model_stages: dict[tuple[str, str], StageTable] = {}
        self._derived: dict[tuple[str, ...], Any] = {}
        self._deriving: dict[tuple[str, ...], threading.Lock] = {}
        self._store("samples", samples.table)

    def _store(self, name: str, content: pa.Table) -> None:
        cursor = self._cursor()
        cursor.register("content", content)
        cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM content")
        cursor.unregister("content")

    @property
    def num_rows(self) -> int:
        return int(self.samples.table.num_rows)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.layout.predictions)

    def model_stage(self, model: str, stage: str) -> StageTable:
        """The table of a model at a stage, made when it is first asked for."""
        if model not in self.layout.predictions:
            raise InputError(f"model must be one of {', '.join(self.models) or 'none'}, got '{model}'")
        if stage not in self.layout.stages(model):
            raise InputError(f"stage must be one of {', '.join(self.layout.stages(model))}, got '{stage}'")
        with self._lock:
            if (model, stage) not in self._model_stages:
                self._model_stages[model, stage] = self._new_model_stage(model, stage)
            return self._model_stages[model, stage]

    def _new_model_stage(self, model: str, stage: str) -> StageTable:
        content = model_table(self.layout, self.samples, model, stage)
        name = f"model{len(self._model_stages)}"
        self._store(name, content)
        columns = {
            "prediction": Column("prediction", "Predicted", f"{name}.prediction", "class", table=name),
            "outcome": Column(
                "outcome", "Outcome", f"CAST({name}.hit AS TINYINT)", "category", ("wrong", "right"), table=name
            ),
        }
        if content.column("prediction").null_count == content.num_rows:
            del columns["prediction"]  # pairs of confidence and correctness name no class
        for key, title in MODEL_NUMBERS.items():
            numbers = number_column(key, title, f"{name}.{key}", content.column(key).combine_chunks())
            if numbers is not None:
                column, _ = numbers
                columns[key] = replace(column, table=name)
        if "changes" in columns and not np.nan_to_num(np.asarray(content.column("changes"))).any():
            del columns["changes"]  # it never changed its mind
        if "confidence" in columns:
            columns["confidence"] = replace(columns["confidence"], low=0.0, high=1.0)
        return StageTable(model, stage, name, columns)

    def source(self, *model_stages: StageTable | None) -> str:
        """FROM: the samples with what these models predict, row by row."""
        names = dict.fromkeys(model_stage.table for model_stage in model_stages if model_stage is not None)
        return " POSITIONAL JOIN ".join(["samples", *names])

    def _cursor(self) -> Any:
        """A connection of a call's own. The first refuses two calls at once, also that of closing it."""
        with self._opening:
            return self._connection.cursor()

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return list(self._cursor().execute(sql, list(parameters)).fetchall())

    def arrow(self, sql: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """A query's result as an arrow table."""
        return self._cursor().sql(sql, params=list(parameters)).to_arrow_table()

    def numbers(self, sql: str, parameters: Sequence[Any] = ()) -> NDArray[Any]:
        """The one column of a query as an array."""
        columns = self._cursor().execute(sql, list(parameters)).fetchnumpy()
        return np.ma.filled(next(iter(columns.values())), 0)

    def close(self) -> None:
        """Let go of the database; a call that still runs keeps it until then, and DuckDB would refuse to close it."""
        with self._opening:
            del self._connection

    def values(self, column: Column) -> Floats:
        """A column of numbers, read once; NaN where it is missing."""

        def read() -> Floats:
            columns = self._cursor().execute(f"SELECT {column.sql} FROM {column.table}").fetchnumpy()
            return np.ma.filled(next(iter(columns.values())).astype(np.float64, copy=False), np.nan)

        return self.derived(("values", column.table, column.sql), read)

    def codes(self, column: Column) -> NDArray[Any]:
        """A small number a row, made once: 0 where the value is missing, else the bin or the value's place plus one."""

        def coded() -> NDArray[Any]:
            if column.kind == "number":
                values = self.values(column)
                place = values - column.low
                place /= (column.high - column.low) / BINS
                np.floor(place, out=place)
                np.clip(place, 0, BINS - 1, out=place)
                place[np.isnan(values)] = -1
                place += 1
                return place.astype(np.min_scalar_type(BINS))
            codes = self.numbers(f"SELECT coalesce(CAST({column.sql} AS INTEGER), -1) FROM {column.table}") + 1
            return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))

        return self.derived(("codes", column.table, column.sql), coded)

    def totals(self, column: Column) -> NDArray[np.intp]:
        """How many of all rows have each code."""
        return self.derived(("totals", column.table, column.sql), lambda: np.bincount(self.codes(column)))

    def units(self) -> Indices | None:
        """What every row was drawn as one with, by number; None where each was drawn by itself."""
        if self.samples.unit is None:
            return None
        column = self.samples.columns[self.samples.unit]

        def numbered() -> Indices:
            words = self.samples.table.column(column.sql).combine_chunks().dictionary_encode(null_encoding="encode")
            splits = np.asarray(self.samples.table.column("split"), dtype=np.intp)
            return np.asarray(words.indices, dtype=np.intp) + splits * len(words.dictionary)

        return self.derived(("units",), numbered)

    def derived(self, key: tuple[str, ...], compute: Callable[[], Value]) -> Value:
        """What follows from the columns alone, computed once: who asks meanwhile waits for it."""
        if key not in self._derived:
            with self._lock:
                computing = self._deriving.setdefault(key, threading.Lock())
            with computing:
                if key not in self._derived:
                    self._derived[key] = compute()
        return cast(Value, self._derived[key])

    def containing(self, column: str, text: str) -> Flags:
        """Which rows have this text in a column of words."""
        fits = np.zeros(self.num_rows, dtype=bool)
        fits[self.numbers(f"SELECT row FROM samples WHERE contains(lower({column}), ?)", [text])] = True
        return fits


# A query: the query string of a view -> the models, checked filters and an order -> SQL with parameters.

MANY = 1 << 16
"""Numbers from which on `rising_order` takes its quick way."""
NOT_FILTERS = {"model", "stage", "sort", "with", "view", "sample", "panel", "colour"}
"""Keys that filter nothing."""
COMPARISONS = {"cells", "disagree", "other", "surer"}
"""Filters on two models at once."""
RANGE = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)?\.\.(-?[\d.]+(?:e[+-]?\d+)?)?")
CELLS = {"rr": (1, 1), "rw": (1, 0), "wr": (0, 1), "ww": (0, 0)}
"""Whether the first and the second model are right."""
LONGEST_LASSO = 60
KIND_PLACES = {**{kind: place for place, kind in enumerate(TAG_KINDS)}, "none": -1}


@dataclass(frozen=True)
class Filter:
    """One condition: its key, how it is tested, on which columns, and against what."""

    key: str
    test: str  # "range", "values", "contains", "tag", "lasso", "cells", "disagree" or "surer"
    columns: tuple[Column, ...] = ()
    values: tuple[Any, ...] = ()

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two filters that choose the same rows share."""
        return self.test, tuple((c.table, c.sql) for c in self.columns), self.values


@dataclass(frozen=True)
class Query:
    """A model at a stage (and one it is compared with), what must hold, and in which order."""

    model_stage: StageTable | None
    compared_with: StageTable | None
    filters: tuple[Filter, ...] = ()
    sort: str = ""
    descending: bool = True
    columns: Mapping[str, Column] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """What two queries with the same result share."""
        tables = tuple(m.table if m else "" for m in (self.model_stage, self.compared_with))
        return (*tables, tuple((f.key, f.identity) for f in self.filters), self.sort, self.descending)

    @property
    def depends_on_tags(self) -> bool:
        return any(f.test == "tag" for f in self.filters)

    def without(self, keys: Iterable[str]) -> Query:
        """The query without the filters on these keys."""
        left_out = set(keys)
        return replace(self, filters=tuple(f for f in self.filters if f.key not in left_out))


def parse_query(database: SampleDatabase, pairs: Iterable[tuple[str, str]]) -> Query:
    """The query of a query string; what it cannot mean is refused in one line."""
    words: dict[str, list[str]] = {}
    for key, value in pairs:
        words.setdefault(key, []).append(value)
    first, second = _model_stages(database, words)
    columns = {**database.samples.columns, **(first.columns if first else {})}
    filters = []
    for key, values in words.items():
        if key in COMPARISONS:
            filters.append(_comparison_filter(key, values, first, second))
        elif key not in NOT_FILTERS:
            filters.append(_filter(key, values, columns, database.samples))
    sort = words.get("sort", [_default_sort(columns)])[0]
    name = sort.removeprefix("-")
    if sort and (name not in columns or columns[name].kind != "number"):
        known = [c.key for c in columns.values() if c.kind == "number"]
        raise InputError(f"sort must be a column of numbers, got '{name}'; {did_you_mean(name, known)}")
    return Query(first, second, tuple(filters), name, sort.startswith("-"), columns)


def _model_stages(
    database: SampleDatabase, words: Mapping[str, list[str]]
) -> tuple[StageTable | None, StageTable | None]:
    if not database.models:
        return None, None
    layout = database.layout
    model = words.get("model", [database.models[0]])[0]
    stage = words.get("stage", [layout.opening_stage(model)])[0]
    first = database.model_stage(model, stage)
    if "with" not in words:
        return first, None
    other = words["with"][0]
    stages = layout.stages(other) if other in layout.predictions else ()
    return first, database.model_stage(other, stage if stage in stages else RAW)


def _default_sort(columns: Mapping[str, Column]) -> str:
    if "difficulty" in columns:
        return "-difficulty"
    return "confidence" if "confidence" in columns else ""


def _filter(key: str, values: Sequence[str], columns: Mapping[str, Column], samples: SampleTable) -> Filter:
    if key == "search":
        return Filter(key, "contains", (Column("id", "Id", "id", "text"),), (values[0].lower(),))
    if key == "tag":
        return _tag_filter(values)
    if key == "lasso":
        return Filter(key, "lasso", (), lasso_corners(values[0]))
    column = columns.get(key)
    if column is None:
        known = [*columns, "search", "tag", "lasso", *sorted(COMPARISONS)]
        raise InputError(f"there is no column '{key}' to filter by; {did_you_mean(key, known)}")
    if column.kind == "number":
        return Filter(key, "range", (column,), _range_ends(key, values[0]))
    if column.kind == "text":
        return Filter(key, "contains", (column,), (values[0].lower(),))
    return Filter(key, "values", (column,), _places(column, values, samples.num_classes, samples.classes.names))


def _places(column: Column, values: Sequence[str], num_classes: int, names: Sequence[str]) -> tuple[int, ...]:
    """Places of several classes (by number or name) or words; the empty word, for rows that have none, is -1."""
    places: list[int] = []
    for value in values:
        if value == "":
            places.append(-1)
        elif column.kind == "class":
            label = names.index(value) if value in names else number_of_digits(value)
            if label is None or label >= num_classes:
                raise InputError(f"'{column.key}' must be a class index below {num_classes}, got '{value[:40]}'")
            places.append(label)
        elif value in column.values:
            places.append(column.values.index(value))
        else:
            raise InputError(f"'{column.key}' has no value '{value}'; {did_you_mean(value, column.values)}")
    return tuple(places)


def _range_ends(key: str, value: str) -> tuple[float | None, float | None]:
    """`low..high`, either end open; the ends belong to it."""
    match = RANGE.fullmatch(value)
    try:
        low, high = (None, None) if match is None else (None if e is None else float(e) for e in match.groups())
    except ValueError:
        low = high = None
    if low is None and high is None:
        raise InputError(f"'{key}' must be a range such as 0.2..0.8, 0.2.. or ..0.8, got '{value}'")
    return low, high


def _tag_filter(values: Sequence[str]) -> Filter:
    bad = [v for v in values if v not in (*TAG_KINDS, "any", "none")]
    if bad:
        raise InputError(f"tag must be one of {', '.join(TAG_KINDS)}, any or none, got '{bad[0]}'")
    kinds = [k for v in values for k in (range(len(TAG_KINDS)) if v == "any" else [KIND_PLACES[v]])]
    return Filter("tag", "tag", (), tuple(kinds))


def lasso_corners(text: str) -> tuple[float, ...]:
    """The corners of a lasso, written `x,y;x,y;...`."""
    try:
        corners = tuple(float(number) for pair in text.split(";") for number in pair.split(","))
    except ValueError:
        corners = ()
    even = all(pair.count(",") == 1 for pair in text.split(";"))
    if not even or not 6 <= len(corners) <= 2 * LONGEST_LASSO or not np.isfinite(corners).all():
        raise InputError(f"lasso must be 3 to {LONGEST_LASSO} corners such as 0,0;1,0;1,1, got '{text[:40]}'")
    return corners


def _comparison_filter(key: str, values: Sequence[str], first: StageTable | None, second: StageTable | None) -> Filter:
    """Samples by who of two models is right, where they predict different classes, how sure the second is."""
    if first is None or second is None:
        raise InputError(f"'{key}' compares two models; name the second with with=MODEL")
    name = {"disagree": "prediction", "cells": "outcome"}.get(key, "confidence")
    if name not in first.columns or name not in second.columns:
        raise InputError(f"'{key}' compares two models, but one of them has no {name}")
    if key == "other":
        return Filter(key, "range", (second.columns[name],), _range_ends(key, values[0]))
    if key == "surer":
        return Filter(key, "surer", (first.columns[name], second.columns[name]), _range_ends(key, values[0]))
    bad = [cell for cell in values if key == "cells" and cell not in CELLS]
    if bad:
        raise InputError(f"cells must be of {', '.join(CELLS)} (r right, w wrong), got '{bad[0]}'")
    return Filter(key, key, (first.columns[name], second.columns[name]), tuple(values) if key == "cells" else ())


def kept_words(database: SampleDatabase, pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """What of a query string means something here, and a sentence for each part of it that does not."""
    valid: list[tuple[str, str]] = []
    reasons: list[str] = []
    # Models first: what columns there are depends on them.
    for pair in sorted(pairs, key=lambda pair: pair[0] not in ("model", "stage", "with")):
        try:
            parse_query(database, [*valid, pair])
            valid.append(pair)
        except InputError as error:
            reasons.append(str(error))
    return [pair for pair in pairs if pair in valid], reasons


# The rows that fit a query: how many, in which order, and how they spread over every column.
#
# A filter is a flag for every row, computed once and remembered; how rows spread is counted on small codes.

BINS = 36
"""Bars of a histogram; the outermost also hold what lies beyond the drawn range."""
MAX_LISTED_CLASSES = 12
"""Classes listed at once; the rest is found by typing."""
MAX_LISTED_VALUES = 40
MAX_REMEMBERED = 16
"""Orders and lists of rows that are kept."""
FIRST_ROWS = 2000
"""Rows that are looked for alone; who scrolls further gets the whole order."""
FEW = 64
"""One row in so many, or fewer, are sorted by themselves."""
MAX_FLAGS = 64
"""Filters whose rows are kept, a byte a row each."""
MAX_SUMMARIES = 256
HIDDEN = ("suggested", "runner_up")
Order = NDArray[np.int32]


@dataclass(frozen=True)
class FacetValue:
    """A value of a column, its name, and how many samples have it."""

    value: str
    name: str
    count: int


@dataclass(frozen=True)
class Facet:
    """The values of a column, the most frequent first; how many samples have none, and how many values there are."""

    values: tuple[FacetValue, ...]
    none: int
    distinct: int


@dataclass(frozen=True)
class QuerySummary:
    """How many samples fit, and how they spread over the columns; every column is counted without its own filter."""

    count: int
    histograms: Mapping[str, list[int]]
    facets: Mapping[str, Facet]
    tags: Mapping[str, int]
    tagged: int
    columns: tuple[Column, ...]
    blame: str | None
    """Where nothing fits: the filter without which most samples would."""


@dataclass(frozen=True)
class RowSet:
    """Rows as a list of them, or of all others where these are fewer: at most half of the rows are counted."""

    rows: Indices
    inverted: bool
    size: int

    @classmethod
    def of(cls, fits: Flags) -> RowSet:
        size = int(np.count_nonzero(fits))
        inverted = 2 * size > len(fits)
        return cls(np.flatnonzero(~fits if inverted else fits), inverted, size)


@dataclass(frozen=True)
class _Spread:
    """How many rows fit, and their counts by column."""

    count: int
    histograms: Mapping[str, list[int]]
    facets: Mapping[str, Facet]


class NoLongerAsked(Exception):
    """Who asked is gone: the rest of the answer is not computed."""


def _always() -> bool:
    return True


class QueryRunner:
    """Runs queries, and remembers the last orders so that scrolling asks for slices only.

    Args:
        inside: which rows lie within a lasso on the map.
    """

    def __init__(self, database: SampleDatabase, inside: Callable[[tuple[float, ...]], Flags]) -> None:
        self.database, self.marks, self.inside = database, database.marks, inside
        self._lock, self._ordering = threading.Lock(), threading.Lock()
        self._whole: OrderedDict[tuple[Any, ...], Order] = OrderedDict()
        self._chosen: OrderedDict[tuple[Any, ...], tuple[int, Order]] = OrderedDict()
        self._sets: OrderedDict[tuple[Any, ...], RowSet] = OrderedDict()
        self._flags: OrderedDict[tuple[Any, ...], Flags] = OrderedDict()
        self._spreads: OrderedDict[tuple[Any, ...], _Spread] = OrderedDict()

    def order(self, query: Query) -> Order:
        """The rows that fit, in order."""
        remembered = self._remembered_order(query)
        if remembered is not None:
            return remembered
        version = self.marks.version
        rows = self._sorted(query) if not query.filters else self._ordered(query, self.fits(query))
        with self._lock:
            _remember(self._chosen, query.key, (version, rows), MAX_REMEMBERED)
        return rows

    def _remembered_order(self, query: Query) -> Order | None:
        with self._lock:
            remembered = self._chosen.get(query.key)
            if remembered is None or (query.depends_on_tags and remembered[0] != self.marks.version):
                return None
            self._chosen.move_to_end(query.key)
            return remembered[1]

    def _ordered(self, query: Query, fits: Flags) -> Order:
        if np.count_nonzero(fits) * FEW <= len(fits):
            rows = np.flatnonzero(fits)
            return rows.take(self._sorting(query, rows)).astype(np.int32)
        whole = self._sorted(query)
        # Taking by index is several times as quick as by flag.
        return whole.take(np.flatnonzero(fits.take(whole)))

    def page(self, query: Query, start: int, count: int) -> tuple[Order, int]:
        """A slice of the rows that fit, in order, and how many fit; the first are found without ordering the rest."""
        order, end = self._remembered_order(query), start + count
        if order is None and query.filters and end <= FIRST_ROWS:
            fits = self.fits(query)
            size = int(np.count_nonzero(fits))
            if size * FEW > len(fits):
                return self._first(query, fits, min(end, size))[start:], size
        order = self.order(query) if order is None else order
        return order[start:end], len(order)

    def _first(self, query: Query, fits: Flags, count: int) -> Order:
        """The first rows that fit, of at least as many."""
        whole, fitting, number, at = self._sorted(query), [], 0, 0
        while number < count:
            block = whole[at : at + FIRST_ROWS * FEW // 8]
            fitting.append(block.take(np.flatnonzero(fits.take(block))))
            number, at = number + len(fitting[-1]), at + len(block)
        return np.concatenate(fitting or [whole[:0]])[:count]

    def place(self, query: Query, row: int) -> tuple[int | None, int]:
        """The position of a row among those that fit, or None; and how many of those stand before it."""
        order = self.order(query)
        places = (order == row).nonzero()[0]
        if len(places):
            return int(places[0]), int(places[0])
        whole = self._sorted(query)
        earlier = np.zeros(len(whole), dtype=bool)
        earlier[whole[: int((whole == row).nonzero()[0][0])]] = True
        return None, int(earlier[order].sum())

    def _sorted(self, query: Query) -> Order:
        """All rows by the sorting alone: filters only choose from it."""
        column = query.columns.get(query.sort)
        key = ("", False) if column is None else (column.sql, query.descending)
        with self._lock:
            if key in self._whole:
                return self._whole[key]
        with self._ordering:
            with self._lock:
                if key in self._whole:
                    return self._whole[key]
            order = self._sorting(query).astype(np.int32)
            with self._lock:
                _remember(self._whole, key, order, MAX_REMEMBERED)
        return order

    def _sorting(self, query: Query, rows: Indices | None = None) -> Indices:
        """The places of some rows (of all) in their order."""
        column = query.columns.get(query.sort)
        if column is None:
            return np.arange(self.database.num_rows if rows is None else len(rows))
        values = self.database.values(column)
        values = values if rows is None else values.take(rows)
        return rising_order(-values if query.descending else values)

    def fits(self, query: Query, without: Iterable[str] = ()) -> Flags:
        """Which rows fit all filters but those on the keys left out."""
        flags = [self._flags_of(f) for f in query.without(without).filters]
        if not flags:
            return np.ones(self.database.num_rows, dtype=bool)
        fits = flags[0]
        for place, more in enumerate(flags[1:]):
            fits = np.logical_and(fits, more, out=fits if place else None)
        return fits

    def rows(self, query: Query) -> RowSet:
        """Which rows fit, as a list of them: what shows a view asks for them one after the other."""
        version = self.marks.version if query.depends_on_tags else 0
        key = (tuple(f.identity for f in query.filters), version)
        with self._lock:
            if key in self._sets:
                return self._sets[key]
        rows = RowSet.of(self.fits(query))
        with self._lock:
            _remember(self._sets, key, rows, MAX_REMEMBERED)
        return rows

    def _flags_of(self, condition: Filter) -> Flags:
        key = (*condition.identity, self.marks.version if condition.test == "tag" else 0)
        with self._lock:
            if key in self._flags:
                self._flags.move_to_end(key)
                return self._flags[key]
        flags = self._tested(condition)
        with self._lock:
            _remember(self._flags, key, flags, MAX_FLAGS)
        return flags

    def _tested(self, condition: Filter) -> Flags:
        """Which rows meet a condition."""
        columns, values, database = condition.columns, condition.values, self.database
        if condition.test in ("range", "surer"):
            numbers, (low, high) = database.values(columns[0]), values
            if condition.test == "surer":
                numbers = database.values(columns[1]) - numbers
            ends = (-np.inf if low is None else low, np.inf if high is None else high)
            return np.asarray((numbers >= ends[0]) & (numbers <= ends[1]))
        if condition.test == "values":
            codes = database.codes(columns[0])
            if len(values) == 1:
                return np.asarray(codes == values[0] + 1)
            chosen = np.zeros(max(int(codes.max(initial=0)), *values) + 2, dtype=bool)
            chosen[np.array(values) + 1] = True
            return np.asarray(chosen.take(codes))
        if condition.test == "contains":
            return database.containing(columns[0].sql, values[0])
        if condition.test == "lasso":
            return self.inside(values)
        if condition.test == "tag":
            return np.isin(self.marks.kinds, np.array(values, dtype=np.int8))
        first, second = (database.codes(column) for column in columns)
        if condition.test == "disagree":
            return np.asarray((first > 0) & (second > 0) & (first != second))
        chosen = np.zeros((3, 3), dtype=bool)
        for cell in values:
            chosen[CELLS[cell][0] + 1, CELLS[cell][1] + 1] = True
        return np.asarray(chosen[first, second])

    def summarise(
        self, query: Query, opened: tuple[str, ...] = (), still_asked: Callable[[], bool] = _always
    ) -> QuerySummary:
        """Count, histograms and facets.

        Args:
            opened: the user's columns whose spread is shown.
            still_asked: whether someone waits for the answer.

        Raises:
            NoLongerAsked: nobody does.
        """
        spread = self._spread(query, opened, still_asked)
        filtered = sorted({f.key for f in query.filters})
        blame = None
        if not spread.count and filtered:
            blame = max(filtered, key=lambda key: int(self.fits(query, (key,)).sum()))
        return QuerySummary(
            spread.count,
            spread.histograms,
            spread.facets,
            self.marks.counts(self.fits(query, ("tag",))),
            self.marks.tagged,
            tuple(query.columns.values()),
            blame,
        )

    def _spread(self, query: Query, opened: tuple[str, ...], still_asked: Callable[[], bool]) -> _Spread:
        """What a summary has to count, remembered; tags change it only where they are filtered by."""
        key = (query.without(()).key[:-2], opened, self.marks.version if query.depends_on_tags else 0)
        with self._lock:
            if key in self._spreads:
                self._spreads.move_to_end(key)
                return self._spreads[key]
        chosen, without = self._row_sets(query)
        histograms: dict[str, list[int]] = {}
        facets: dict[str, Facet] = {}
        for column in query.columns.values():
            if column.key.startswith("c.") and column.key not in opened:
                continue
            if not still_asked():
                raise NoLongerAsked
            rows = without.get(column.key, chosen)
            if column.kind == "number":
                histograms[column.key] = self._counts(column, rows, BINS)[1:].tolist()
            elif column.kind in ("category", "class") and column.key not in HIDDEN:
                facets[column.key] = self._facet(query, column, rows)
        spread = _Spread(chosen.size, histograms, facets)
        with self._lock:
            _remember(self._spreads, key, spread, MAX_SUMMARIES)
        return spread

    def _row_sets(self, query: Query) -> tuple[RowSet, dict[str, RowSet]]:
        """The rows that fit, and by key of a filter those that fit all others."""
        if not query.filters:
            return RowSet.of(self.fits(query)), {}
        flags = {f.key: self._flags_of(f) for f in query.filters}
        met = np.zeros(self.database.num_rows, dtype=np.uint8)
        for flag in flags.values():
            met += flag.view(np.uint8)
        near = np.flatnonzero(met >= len(flags) - 1)
        if 2 * len(near) > len(met):
            return self.rows(query), {key: RowSet.of(self.fits(query, (key,))) for key in flags}
        # Only rows that miss at most one filter are in any of the sets.
        all_met = met.take(near) == len(flags)
        chosen = near.take(np.flatnonzero(all_met))
        others = {key: near.take(np.flatnonzero(all_met | ~flag.take(near))) for key, flag in flags.items()}
        return RowSet(chosen, False, len(chosen)), {k: RowSet(rows, False, len(rows)) for k, rows in others.items()}

    def _facet(self, query: Query, column: Column, rows: RowSet) -> Facet:
        """Samples that fit by value; values beyond the listed are left to the search."""
        is_class, samples = column.kind == "class", self.database.samples
        counts = self._counts(column, rows, samples.num_classes if is_class else len(column.values))
        present = np.flatnonzero(counts[1:])
        known = present[np.argsort(-counts[1:][present], kind="stable")]
        chosen = {v for f in query.filters if f.key == column.key for v in f.values if v >= 0}
        first = known[: MAX_LISTED_CLASSES if is_class else MAX_LISTED_VALUES].tolist()
        values = []
        for value in (*first, *sorted(chosen - set(first))):
            word, name = (str(value), str(samples.name_of(value))) if is_class else (column.values[value],) * 2
            values.append(FacetValue(word, name, int(counts[value + 1])))
        return Facet(tuple(values), int(counts[0]), len(known))

    def _counts(self, column: Column, rows: RowSet, num_values: int) -> NDArray[np.intp]:
        """How many rows have each code: none of the values first, then each value."""
        totals = self.database.totals(column)
        length = max(len(totals), num_values + 1)
        counts = np.bincount(self.database.codes(column).take(rows.rows), minlength=length)
        return np.pad(totals, (0, length - len(totals))) - counts if rows.inverted else counts


def rising_order(values: Floats) -> Indices:
    """A stable order of numbers, NaN last.

    Numpy sorts whole numbers with the widest registers there are, several times as fast as it argsorts: of many numbers
    the upper bits of one are the value's place among all of float64, as far as it fits, the lower bits the row.
    """
    if len(values) < MANY:
        return np.argsort(values, kind="stable")
    missing = np.isnan(values)
    rows = np.flatnonzero(~missing)
    places = (values[rows] + 0.0).view(np.uint64)  # -0 and 0 are tied
    negative = places >> np.uint64(63)
    places ^= (np.uint64(0) - negative) | np.uint64(1 << 63)
    places -= places.min(initial=np.iinfo(np.uint64).max)
    for_rows = len(values).bit_length()
    used = int(np.bitwise_or.reduce(places, initial=np.uint64(0)))
    dropped = max(0, used.bit_length() + for_rows - 64)
    keys = ((places >> np.uint64(dropped)) << np.uint64(for_rows)) | rows.astype(np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << for_rows) - 1)).astype(np.intp)
    if used & ((1 << dropped) - 1):
        # What the upper bits do not part stands together, by row.
        keys >>= np.uint64(for_rows)
        same = keys[1:] == keys[:-1]
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        order[tied] = order[tied][np.argsort(values[order[tied]], kind="stable")]
    return np.concatenate([order, np.flatnonzero(missing)])


def _remember(cache: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
