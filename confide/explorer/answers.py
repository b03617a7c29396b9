"""Answers to a question: how many, in which order, and how they spread over every column."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.explorer.questions import Question
from confide.explorer.samples import Column
from confide.explorer.table import ACTIONS, Table

BINS = 36
"""Bars of a histogram; the outermost also hold what lies beyond the drawn range."""
MOST_CLASSES = 12
"""Classes listed at once; the rest is found by typing."""
KEPT_ORDERS = 16
Order = NDArray[np.int32]


class Answers:
    """Computes answers, and keeps the last orders so that scrolling asks for slices only."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._whole: OrderedDict[tuple[Any, ...], Order] = OrderedDict()
        self._chosen: OrderedDict[tuple[Any, ...], tuple[int, Order]] = OrderedDict()
        self.version = 0
        """Goes up with every tag, so that orders that a tag decided are computed anew."""

    def order(self, question: Question) -> Order:
        """The rows that fit, in order."""
        key = question.key
        depends = any(c.key == "tag" for c in question.clauses)
        with self._lock:
            kept = self._chosen.get(key)
            if kept is not None and (not depends or kept[0] == self.version):
                self._chosen.move_to_end(key)
                return kept[1]
        whole = self._sorted(question)
        where, values = question.where()
        rows = whole
        if where:
            source = self.table.source((question.voice, question.other))
            fits = np.zeros(len(whole), dtype=bool)
            fits[self.table.numbers(f"SELECT row FROM {source} {where}", values)] = True
            rows = whole[fits[whole]]
        with self._lock:
            _keep(self._chosen, key, (self.version, rows))
        return rows

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
            _keep(self._whole, key, order)
        return order

    def find(self, question: Question, opened: tuple[str, ...] = ()) -> dict[str, Any]:
        """Count, histograms and facets; every column is counted without its own filter.

        Args:
            opened: user columns whose spread is wanted.
        """
        shown = [c for c in question.columns.values() if not c.key.startswith("c.") or c.key in opened]
        histograms = {c.key: self._histogram(question, c) for c in shown if c.kind == "number"}
        listed = ("category", "class")
        facets = {c.key: self._facet(question, c) for c in shown if c.kind in listed and c.key not in HIDDEN}
        count = len(self.order(question))
        found = {
            "count": count,
            "histograms": histograms,
            "facets": facets,
            "tags": self._tags(question),
            "tagged": self.table.fetch("SELECT count(*) FROM marks")[0][0],
            "columns": [column.public() for column in question.columns.values()],
        }
        if not count and question.clauses:
            found["blame"] = self._blame(question)
        return found

    def _histogram(self, question: Question, column: Column) -> list[int]:
        where, values = question.where(without=column.key)
        width = (column.high - column.low) / BINS
        inside = f"least({BINS - 1}, greatest(0, floor(({column.sql} - ?) / ?)))"
        # greatest() passes over what is missing, so it is kept apart first.
        place = f"CASE WHEN {column.sql} IS NOT NULL THEN CAST({inside} AS TINYINT) END"
        source = self.table.source((question.voice, question.other))
        rows = self.table.fetch(
            f"SELECT {place} AS bin, count(*) FROM {source} {where} GROUP BY bin", [column.low, width, *values]
        )
        counts = dict(rows)
        return [int(counts.get(k, 0)) for k in range(BINS)]

    def _facet(self, question: Question, column: Column) -> dict[str, Any]:
        """Counts by value, the most frequent first; classes beyond the listed are left to the search."""
        where, values = question.where(without=column.key)
        source = self.table.source((question.voice, question.other))
        rows = self.table.fetch(
            f"SELECT {column.sql} AS value, count(*) AS many FROM {source} {where} "
            "GROUP BY value ORDER BY many DESC, value",
            values,
        )
        chosen = {v for c in question.clauses if c.key == column.key for v in c.values}
        known = [(value, many) for value, many in rows if value is not None]
        most = MOST_CLASSES if column.kind == "class" else 40
        listed = [pair for place, pair in enumerate(known) if place < most or pair[0] in chosen]
        absent = [(value, 0) for value in chosen - {value for value, _ in known}]
        none = sum(many for value, many in rows if value is None)
        return {
            "values": [
                {"value": self.public(column, value), "name": self.name(column, value), "count": many}
                for value, many in [*listed, *absent]
            ],
            "none": none,
            "distinct": len(known),
        }

    def public(self, column: Column, value: int) -> str:
        """A stored value as the query string writes it."""
        return str(value) if column.kind == "class" else column.values[value]

    def name(self, column: Column, value: int) -> str:
        """A stored value as people read it."""
        return str(self.table.samples.name_of(value)) if column.kind == "class" else column.values[value]

    def _tags(self, question: Question) -> dict[str, int]:
        where, values = question.where(without="tag")
        source = self.table.source((question.voice, question.other))
        fitting = f"AND row IN (SELECT row FROM {source} {where})" if where else ""
        rows = self.table.fetch(f"SELECT action, count(*) FROM marks WHERE true {fitting} GROUP BY action", values)
        return {ACTIONS[action]: many for action, many in rows}

    def _blame(self, question: Question) -> str:
        """The filter without which most samples would fit."""
        source = self.table.source((question.voice, question.other))
        best, most = question.clauses[0].key, -1
        for clause in question.clauses:
            where, values = question.where(without=clause.key)
            many = self.table.fetch(f"SELECT count(*) FROM {source} {where}", values)[0][0]
            best, most = (clause.key, many) if many > most else (best, most)
        return best


HIDDEN = ("suggested", "runner_up")


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > KEPT_ORDERS:
        kept.popitem(last=False)
