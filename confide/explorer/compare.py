"""Two models on the same samples: who is right, where they disagree, and whether the difference is chance."""

from __future__ import annotations

import math
from typing import Any

from confide.core.door import InputError
from confide.explorer.questions import CELLS, OF_MODEL, Question
from confide.explorer.table import Table

MOST_DOTS = 1500
MOST_PAIRS = 60


def compare(table: Table, question: Question, cells: tuple[str, ...]) -> dict[str, Any]:
    """The two by two of right and wrong, dots of the disagreements, and pairs of the chosen cells.

    Filters that depend on a model (prediction, outcome, confidence ...) are left aside, so that neither is favoured.
    """
    first, second = question.voice, question.other
    if first is None or second is None:
        raise InputError("a comparison needs two models; name the second with with=MODEL")
    if first.table == second.table:
        raise InputError("a comparison needs two different models, got the same twice")
    where, values = question.where(without=OF_MODEL)
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
        "pairs": _pairs(table, question, f"{base} AND ({_chosen(question, cells)})", values),
        "left_aside": sorted({c.key for c in question.clauses} & (OF_MODEL - {"cells", "disagree"})),
    }


def _chosen(question: Question, cells: tuple[str, ...]) -> str:
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


def _dots(table: Table, question: Question, base: str, values: list[Any]) -> list[list[float]]:
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


def _pairs(table: Table, question: Question, base: str, values: list[Any]) -> list[dict[str, Any]]:
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
