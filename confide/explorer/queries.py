"""Queries over the samples, from top to bottom: the tables in DuckDB (`SampleDatabase`), a query string turned into
checked SQL (`parse_query`), the rows that fit with their order and spread (`QueryRunner`), two models compared
(`compare_models`).

Names never enter the SQL: a key finds a column the explorer made, values are parameters.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from confide.checks import InputError, did_you_mean, number_of_digits
from confide.explorer.layout import RAW, Layout
from confide.explorer.samples import Column, SampleTable, model_table, number_column, stage_title
from confide.explorer.tags import TAG_KINDS, SampleTag, TagFile

# The samples in DuckDB: one table, one more for every model and stage that was looked at, and one of tags.

MODEL_NUMBERS = {"confidence": "Confidence", "trust": "Trust", "loss": "Loss"}


@dataclass(frozen=True)
class StageTable:
    """A model at a stage as a table of DuckDB, with the columns it has."""

    model: str
    stage: str
    table: str
    columns: dict[str, Column]


class SampleDatabase:
    """Samples and what models predict for them, queried by SQL; rows of all tables stand in the same order."""

    def __init__(self, layout: Layout, samples: SampleTable, tags: TagFile) -> None:
        import duckdb

        self.layout, self.samples, self.tags = layout, samples, tags
        self._connection, self._opening = duckdb.connect(), threading.Lock()
        # Nothing of a query may reach a file or the network.
        self._connection.execute("SET enable_external_access = false")
        self._lock = threading.Lock()
        self._model_stages: dict[tuple[str, str], StageTable] = {}
        self._store("samples", samples.table)
        self._connection.execute("CREATE TABLE marks (row INTEGER PRIMARY KEY, action TINYINT)")
        rows = [(row, TAG_KINDS.index(tag.kind)) for row, tag in self._tagged_rows() if tag.kind]
        if rows:
            self._connection.executemany("INSERT INTO marks VALUES (?, ?)", rows)

    def _store(self, name: str, content: pa.Table) -> None:
        cursor = self._cursor()
        cursor.register("content", content)
        cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM content")
        cursor.unregister("content")

    def _tagged_rows(self) -> list[tuple[int, SampleTag]]:
        """Tags of samples that are here; others stay in their file."""
        tags = self.tags.all()
        tagged = []
        for split, start in self.samples.starts.items():
            in_split = [tag for tag in tags if tag.split == split]
            places = pc.index_in(pa.array([tag.id for tag in in_split], pa.string()), value_set=self.samples.ids[split])
            tagged += [(start + p, tag) for p, tag in zip(places.to_pylist(), in_split, strict=True) if p is not None]
        return tagged

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
            "prediction": Column("prediction", "Predicted", f"{name}.prediction", "class"),
            "outcome": Column("outcome", "Outcome", f"CAST({name}.hit AS TINYINT)", "category", ("wrong", "right")),
        }
        for key, title in MODEL_NUMBERS.items():
            numbers = number_column(key, title, f"{name}.{key}", content.column(key).combine_chunks())
            if numbers is not None:
                column, _ = numbers
                columns[key] = replace(column, low=0.0, high=1.0) if key == "confidence" else column
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
        """Let go of the database."""
        with self._opening:
            self._connection.close()
            del self._connection

    def mark(self, row: int, kind: str | None) -> None:
        """Keep the mirror of the tags in step with their file."""
        with self._lock:
            cursor = self._cursor()
            cursor.execute("DELETE FROM marks WHERE row = ?", [row])
            if kind is not None:
                cursor.execute("INSERT INTO marks VALUES (?, ?)", [row, TAG_KINDS.index(kind)])


# A query: the query string of a view -> the models, checked filters and an order -> SQL with parameters.

NOT_FILTERS = {"model", "stage", "sort", "with", "view", "sample"}
"""Keys that filter nothing."""
COMPARISONS = {"cells", "disagree"}
"""Filters on two models at once."""
RANGE = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)?\.\.(-?[\d.]+(?:e[+-]?\d+)?)?")
CELLS = {"rr": (1, 1), "rw": (1, 0), "wr": (0, 1), "ww": (0, 0)}
"""Whether the first and the second model are right."""


@dataclass(frozen=True)
class Filter:
    """One condition: its key, its SQL, and the values for it."""

    key: str
    sql: str
    values: tuple[Any, ...] = ()


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
        return (*tables, self.filters, self.sort, self.descending)

    def where(self, without: Iterable[str] = ()) -> tuple[str, list[Any]]:
        """WHERE and its values; filters on the keys left out do not count."""
        left_out = set(without)
        filters = [f for f in self.filters if f.key not in left_out]
        if not filters:
            return "", []
        return "WHERE " + " AND ".join(f"({f.sql})" for f in filters), [v for f in filters for v in f.values]


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
            filters.append(_filter(key, values, columns, database.samples.num_classes))
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
    stages = layout.stages(model) if model in layout.predictions else (RAW,)
    stage = words.get("stage", [stages[-1]])[0]
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


def _filter(key: str, values: Sequence[str], columns: Mapping[str, Column], num_classes: int) -> Filter:
    if key == "search":
        return Filter(key, "contains(lower(id), ?)", (values[0].lower(),))
    if key == "tag":
        return _tag_filter(values)
    column = columns.get(key)
    if column is None:
        known = [*columns, "search", "tag", *sorted(COMPARISONS)]
        raise InputError(f"there is no column '{key}' to filter by; {did_you_mean(key, known)}")
    if column.kind == "number":
        return _range_filter(column, values[0])
    if column.kind == "text":
        return Filter(key, f"contains(lower({column.sql}), ?)", (values[0].lower(),))
    return _value_filter(column, values, num_classes)


def _value_filter(column: Column, values: Sequence[str], num_classes: int) -> Filter:
    """One of several classes or words; the empty word means: has none."""
    places: list[int] = []
    for value in values:
        if value == "":
            continue
        if column.kind == "class":
            label = number_of_digits(value)
            if label is None or label >= num_classes:
                raise InputError(f"'{column.key}' must be a class index below {num_classes}, got '{value[:40]}'")
            places.append(label)
        elif value in column.values:
            places.append(column.values.index(value))
        else:
            raise InputError(f"'{column.key}' has no value '{value}'; {did_you_mean(value, column.values)}")
    tests = [_one_of(column.sql, places)] if places else []
    tests += [f"{column.sql} IS NULL"] if "" in values else []
    return Filter(column.key, " OR ".join(tests), tuple(places))


def _one_of(sql: str, values: Sequence[Any]) -> str:
    return f"{sql} IN ({', '.join('?' for _ in values)})"


def _range_filter(column: Column, value: str) -> Filter:
    """`low..high`, either end open; the ends belong to it."""
    match = RANGE.fullmatch(value)
    try:
        ends = (None, None) if match is None else tuple(None if e is None else float(e) for e in match.groups())
    except ValueError:
        ends = (None, None)
    if ends == (None, None):
        raise InputError(f"'{column.key}' must be a range such as 0.2..0.8, 0.2.. or ..0.8, got '{value}'")
    tests = [f"{column.sql} {sign} ?" for sign, end in zip((">=", "<="), ends, strict=True) if end is not None]
    return Filter(column.key, " AND ".join(tests), tuple(end for end in ends if end is not None))


def _tag_filter(values: Sequence[str]) -> Filter:
    bad = [v for v in values if v not in (*TAG_KINDS, "any", "none")]
    if bad:
        raise InputError(f"tag must be one of {', '.join(TAG_KINDS)}, any or none, got '{bad[0]}'")
    tests = []
    places = tuple(TAG_KINDS.index(v) for v in values if v in TAG_KINDS)
    if places:
        tests.append(f"row IN (SELECT row FROM marks WHERE {_one_of('action', places)})")
    if "any" in values:
        tests.append("row IN (SELECT row FROM marks)")
    if "none" in values:
        tests.append("row NOT IN (SELECT row FROM marks)")
    return Filter("tag", " OR ".join(tests), places)


def _comparison_filter(key: str, values: Sequence[str], first: StageTable | None, second: StageTable | None) -> Filter:
    """Samples by which of two models is right, or where they predict different classes."""
    if first is None or second is None:
        raise InputError(f"'{key}' compares two models; name the second with with=MODEL")
    return Filter(key, _disagree_sql(first, second) if key == "disagree" else _cells_sql(first, second, values))


def _disagree_sql(first: StageTable, second: StageTable) -> str:
    return f"{first.table}.prediction <> {second.table}.prediction"


def _cells_sql(first: StageTable, second: StageTable, cells: Sequence[str]) -> str:
    bad = [cell for cell in cells if cell not in CELLS]
    if bad:
        raise InputError(f"cells must be of {', '.join(CELLS)} (r right, w wrong), got '{bad[0]}'")
    tests = [
        f"({'' if CELLS[c][0] else 'NOT '}{first.table}.hit AND {'' if CELLS[c][1] else 'NOT '}{second.table}.hit)"
        for c in cells
    ]
    return " OR ".join(tests) or "false"


# The rows that fit a query: how many, in which order, and how they spread over every column.
#
# DuckDB finds the rows that fit; how they spread is counted on codes, one small number a row and column, made once.

BINS = 36
"""Bars of a histogram; the outermost also hold what lies beyond the drawn range."""
MAX_LISTED_CLASSES = 12
"""Classes listed at once; the rest is found by typing."""
MAX_LISTED_VALUES = 40
MAX_REMEMBERED = 16
"""Orders of rows that are kept."""
HIDDEN = ("suggested", "runner_up")
Order = NDArray[np.int32]
Mask = NDArray[np.bool_]


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


class QueryRunner:
    """Runs queries, and remembers the last orders so that scrolling asks for slices only."""

    def __init__(self, database: SampleDatabase) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._whole: OrderedDict[tuple[Any, ...], Order] = OrderedDict()
        self._chosen: OrderedDict[tuple[Any, ...], tuple[int, Order]] = OrderedDict()
        self._codes: dict[str, NDArray[Any]] = {}
        self.version = 0
        """Goes up with every tag, so that orders that a tag decided are computed anew."""

    def order(self, query: Query, fits: Mask | None = None, version: int | None = None) -> Order:
        """The rows that fit, in order.

        Args:
            fits: which rows fit, where that is known already.
            version: the version of the tags before that was found out.
        """
        key, version = query.key, self.version if version is None else version
        depends_on_tags = any(f.key == "tag" for f in query.filters)
        with self._lock:
            remembered = self._chosen.get(key)
            if remembered is not None and (not depends_on_tags or remembered[0] == version):
                self._chosen.move_to_end(key)
                return remembered[1]
        rows = self._sorted(query)
        if query.filters:
            fits = self._fits(query) if fits is None else fits
            rows = rows[fits[rows]]
        with self._lock:
            _remember(self._chosen, key, (version, rows))
        return rows

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
        if column is None:
            order = np.arange(self.database.num_rows, dtype=np.int32)
        else:
            source = self.database.source(query.model_stage)
            direction = "DESC" if query.descending else "ASC"
            sql = f"SELECT row FROM {source} ORDER BY {column.sql} {direction} NULLS LAST, row"
            order = self.database.numbers(sql).astype(np.int32)
        with self._lock:
            _remember(self._whole, key, order)
        return order

    def _fits(self, query: Query, without: str = "") -> Mask:
        """Which rows fit all filters but the one left out."""
        where, values = query.where((without,))
        fits = np.full(self.database.num_rows, not where)
        if where:
            source = self.database.source(query.model_stage, query.compared_with)
            fits[self.database.numbers(f"SELECT row FROM {source} {where}", values)] = True
        return fits

    def summarise(self, query: Query, opened: tuple[str, ...] = ()) -> QuerySummary:
        """Count, histograms and facets.

        Args:
            opened: the user's columns whose spread is shown.
        """
        filtered, version = {f.key for f in query.filters}, self.version
        fits_all = self._fits(query)
        fits = {key: self._fits(query, key) for key in filtered}
        shown = [c for c in query.columns.values() if not c.key.startswith("c.") or c.key in opened]
        listed = [c for c in shown if c.kind in ("category", "class") and c.key not in HIDDEN]
        numbers = [c for c in shown if c.kind == "number"]
        histograms = {c.key: self._counts(query, c, fits.get(c.key, fits_all), BINS)[1:].tolist() for c in numbers}
        facets = {c.key: self._facet(query, c, fits.get(c.key, fits_all)) for c in listed}
        count = len(self.order(query, fits_all, version))
        tags, tagged = self._tags(fits.get("tag", fits_all)), self.database.fetch("SELECT count(*) FROM marks")[0][0]
        blame = None if count or not filtered else max(sorted(filtered), key=lambda key: int(fits[key].sum()))
        return QuerySummary(count, histograms, facets, tags, tagged, tuple(query.columns.values()), blame)

    def _facet(self, query: Query, column: Column, fits: Mask) -> Facet:
        """Samples that fit by value; values beyond the listed are left to the search."""
        is_class, samples = column.kind == "class", self.database.samples
        counts = self._counts(query, column, fits, samples.num_classes if is_class else len(column.values))
        present = np.flatnonzero(counts[1:])
        known = present[np.argsort(-counts[1:][present], kind="stable")]
        chosen = {v for f in query.filters if f.key == column.key for v in f.values}
        first = known[: MAX_LISTED_CLASSES if is_class else MAX_LISTED_VALUES].tolist()
        values = []
        for value in (*first, *sorted(chosen - set(first))):
            word, name = (str(value), str(samples.name_of(value))) if is_class else (column.values[value],) * 2
            values.append(FacetValue(word, name, int(counts[value + 1])))
        return Facet(tuple(values), int(counts[0]), len(known))

    def _counts(self, query: Query, column: Column, fits: Mask, num_values: int) -> NDArray[Any]:
        """How many rows that fit have each code: none of the values first, then each value."""
        codes = self._coded(query, column)
        return np.bincount(codes if fits.all() else codes[fits], minlength=num_values + 1)

    def _coded(self, query: Query, column: Column) -> NDArray[Any]:
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
        source = self.database.source(query.model_stage)
        codes = self.database.numbers(f"SELECT coalesce(CAST({place} AS INTEGER), -1) + 1 FROM {source}", values)
        codes = codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
        with self._lock:
            self._codes[column.sql] = codes
        return codes

    def _tags(self, fits: Mask) -> dict[str, int]:
        counts = dict.fromkeys(TAG_KINDS, 0)
        for row, action in self.database.fetch("SELECT row, action FROM marks"):
            counts[TAG_KINDS[action]] += int(fits[row])
        return {kind: count for kind, count in counts.items() if count}


def _remember(orders: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    orders[key] = value
    orders.move_to_end(key)
    while len(orders) > MAX_REMEMBERED:
        orders.popitem(last=False)


# Two models on the same samples: which is right, where they disagree, and whether the difference is chance.

MAX_DOTS = 1500
MAX_PAIRS = 60


@dataclass(frozen=True)
class PredictedClass:
    """What one model predicts for a sample."""

    name: str | None
    confidence: float
    right: bool


@dataclass(frozen=True)
class ComparedSample:
    """A sample with the predictions of both models."""

    row: int
    id: str
    label: str | None
    predictions: tuple[PredictedClass, PredictedClass]


@dataclass(frozen=True)
class ModelComparison:
    """The two by two of right and wrong, dots of the disagreements, and pairs of the chosen cells."""

    stage_title: str | None
    n: int
    cells: Mapping[str, int]
    disagree: int
    p: float | None
    dots: tuple[tuple[int, float, float, int], ...]
    """Row, confidence of both, and which is right: 1, 2, or 0 for neither."""
    pairs: tuple[ComparedSample, ...]
    left_aside: tuple[str, ...]


def compare_models(database: SampleDatabase, query: Query, cells: tuple[str, ...]) -> ModelComparison:
    """Compare the two models of a query on its samples.

    Filters that depend on a model (prediction, outcome, confidence ...) are left aside, so that neither is favoured.
    """
    from confide.evaluation.compare import mcnemar

    first, second = query.model_stage, query.compared_with
    if first is None or second is None:
        raise InputError("a comparison needs two models; name the second with with=MODEL")
    if first.table == second.table:
        raise InputError("a comparison needs two different models, got the same twice")
    of_models = set(first.columns)
    where, values = query.where(without=of_models | COMPARISONS)
    both = f"{first.table}.prediction IS NOT NULL AND {second.table}.prediction IS NOT NULL"
    base = f"FROM {database.source(first, second)} {where + ' AND' if where else 'WHERE'} {both}"
    counts = database.fetch(f"SELECT {first.table}.hit, {second.table}.hit, count(*) {base} GROUP BY ALL", values)
    grid = {name: sum(m for a, b, m in counts if (int(a), int(b)) == cell) for name, cell in CELLS.items()}
    apart = f"{base} AND {_disagree_sql(first, second)}"
    right = f"CASE WHEN {first.table}.hit THEN 1 WHEN {second.table}.hit THEN 2 ELSE 0 END"
    # An even draw where there are too many.
    dots = database.fetch(
        f"SELECT row, {first.table}.confidence, {second.table}.confidence, {right} {apart} "
        f"ORDER BY hash(row) LIMIT {MAX_DOTS}",
        values,
    )
    label = "label" if "label" in query.columns else "NULL"
    columns = ", ".join(f"{m.table}.{c}" for m in (first, second) for c in ("prediction", "confidence", "hit"))
    gap = f"abs({first.table}.confidence - {second.table}.confidence)"
    pairs = database.fetch(
        f"SELECT row, id, {label}, {columns} {base} AND ({_cells_sql(first, second, cells)}) "
        f"ORDER BY {gap} DESC, row LIMIT {MAX_PAIRS}",
        values,
    )
    name = database.samples.name_of
    return ModelComparison(
        stage_title=stage_title(first.stage),
        n=sum(grid.values()),
        cells=grid,
        disagree=database.fetch(f"SELECT count(*) {apart}", values)[0][0],
        p=mcnemar(grid["rw"], grid["wr"]),
        dots=tuple((row, round(a, 4), round(b, 4), which) for row, a, b, which in dots),
        pairs=tuple(
            ComparedSample(
                row, i, name(y), (PredictedClass(name(a), sure_a, hit_a), PredictedClass(name(b), sure_b, hit_b))
            )
            for row, i, y, a, sure_a, hit_a, b, sure_b, hit_b in pairs
        ),
        left_aside=tuple(sorted({f.key for f in query.filters} & of_models)),
    )
