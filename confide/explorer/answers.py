"""Answers to a question: how many, in which order, and how they spread over every column.

DuckDB finds the rows that fit; how they spread is counted on codes, one small number a row and column, made once.
"""

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
MOST_VALUES = 40
KEPT_ORDERS = 16
HIDDEN = ("suggested", "runner_up")
Order = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Answers:
    """Computes answers, and keeps the last orders so that scrolling asks for slices only."""

    def __init__(self, table: Table) -> None:
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
            _keep(self._chosen, key, (version, rows))
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
            _keep(self._whole, key, order)
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
        most = MOST_CLASSES if column.kind == "class" else MOST_VALUES
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
        found = dict.fromkeys(ACTIONS, 0)
        for row, action in self.table.fetch("SELECT row, action FROM marks"):
            found[ACTIONS[action]] += int(fits[row])
        return {action: many for action, many in found.items() if many}


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > KEPT_ORDERS:
        kept.popitem(last=False)
