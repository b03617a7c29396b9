"""A question: the query string of a view -> checked filters, sorting and who speaks -> SQL with parameters.

Names never enter the SQL: a key finds a column the explorer made, values are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confide.core.door import InputError, did_you_mean
from confide.explorer.samples import Column
from confide.explorer.table import ACTIONS, Table, Voice

PLAIN = {"model", "stage", "sort", "with", "view", "sample"}
"""Keys that filter nothing."""
RANGE = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)?\.\.(-?[\d.]+(?:e[+-]?\d+)?)?")
CELLS = {"rr": (1, 1), "rw": (1, 0), "wr": (0, 1), "ww": (0, 0)}
OF_MODEL = {"prediction", "outcome", "confidence", "trust", "loss", "cells", "disagree"}
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

    voice: Voice | None
    other: Voice | None
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


def ask(table: Table, pairs: Iterable[tuple[str, str]]) -> Question:
    """The question that a query string asks; what it cannot mean is refused in one line."""
    words: dict[str, list[str]] = {}
    for key, value in pairs:
        words.setdefault(key, []).append(value)
    voice, other = _voices(table, words)
    columns = table.columns(voice)
    clauses = []
    for key, values in words.items():
        if key in PLAIN:
            continue
        clauses.append(_clause(key, tuple(values), columns, voice, other, table.samples.num_classes))
    sort = words.get("sort", [_default_sort(columns)])[0]
    name = sort.removeprefix("-")
    if sort and (name not in columns or columns[name].kind != "number"):
        known = [c.key for c in columns.values() if c.kind == "number"]
        raise InputError(f"sort must be a column of numbers, got '{name}'; {did_you_mean(name, known)}")
    return Question(voice, other, tuple(clauses), name, sort.startswith("-"), columns)


def _voices(table: Table, words: Mapping[str, list[str]]) -> tuple[Voice | None, Voice | None]:
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
    voice: Voice | None,
    other: Voice | None,
    num_classes: int,
) -> Clause:
    if key == "search":
        return Clause(key, "contains(lower(id), ?)", (values[0].lower(),))
    if key == "tag":
        return _tagged(values)
    if key in ("cells", "disagree"):
        return _compared(key, values, voice, other)
    column = columns.get(key)
    if column is None:
        known = [*columns, "search", "tag", "cells", "disagree"]
        raise InputError(f"there is no column '{key}' to filter by; {did_you_mean(key, known)}")
    if column.kind == "number":
        return _between(column, values[0])
    if column.kind == "text":
        return Clause(key, f"contains(lower({column.sql}), ?)", (values[0].lower(),))
    return _among(column, values, num_classes)


def _among(column: Column, values: tuple[str, ...], num_classes: int) -> Clause:
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


def _between(column: Column, value: str) -> Clause:
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


def _tagged(values: tuple[str, ...]) -> Clause:
    bad = [v for v in values if v not in (*ACTIONS, "any", "none")]
    if bad:
        raise InputError(f"tag must be one of {', '.join(ACTIONS)}, any or none, got '{bad[0]}'")
    tests = []
    places = tuple(ACTIONS.index(v) for v in values if v in ACTIONS)
    if places:
        tests.append(f"row IN (SELECT row FROM marks WHERE action IN ({', '.join('?' for _ in places)}))")
    if "any" in values:
        tests.append("row IN (SELECT row FROM marks)")
    if "none" in values:
        tests.append("row NOT IN (SELECT row FROM marks)")
    return Clause("tag", " OR ".join(tests), places)


def _compared(key: str, values: tuple[str, ...], voice: Voice | None, other: Voice | None) -> Clause:
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
