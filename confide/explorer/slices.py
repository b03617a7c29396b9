"""Slices of the samples whose confidence is wrong beyond chance, each with the filters that show its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.explorer.queries import Query, QueryRunner
from confide.explorer.reliability import looks_at_label
from confide.explorer.samples import Column
from confide.types import Indices

FIFTHS = (0.2, 0.4, 0.6, 0.8)
NO_SLICE = ("split", "outcome", "label", "confidence", "loss", "suggested", "runner_up", "changes")
"""Columns that make no slices: the label's own, and what confidence itself is judged by."""


@dataclass(frozen=True)
class SliceFilter:
    """A slice: its filters, and confidence against accuracy on the half of its samples that did not choose it."""

    filters: Mapping[str, str]
    names: Mapping[str, str | None]
    """Of the classes among them."""
    n: int
    confidence: float
    accuracy: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class SliceFilters:
    """The slices, the clearest first, and how many were looked at."""

    slices: tuple[SliceFilter, ...]
    candidates: int
    attributes: tuple[str, ...]


@dataclass(frozen=True)
class _Attribute:
    """A column as words to slice by, and the filter that each word stands for."""

    column: Column
    index: Indices
    filters: tuple[str, ...]


def slice_filters(runner: QueryRunner, query: Query) -> SliceFilters | None:
    """Slices of the rows in the splits of a query, by `find_slices`; None where nothing can be sliced or judged.

    What looks at the label is left out: a calibrated model too has gaps there.
    """
    from confide.evaluation import find_slices
    from confide.predictions import Predictions

    model = query.model_stage
    if model is None or not {"confidence", "outcome"} <= set(model.columns):
        return None
    hits, sure = (runner.database.codes(model.columns["outcome"]), runner.database.values(model.columns["confidence"]))
    splits = [f.key for f in query.filters if f.key != "split"]
    rows = np.flatnonzero(runner.fits(query, splits) & (hits > 0) & np.isfinite(sure))
    attributes = [a for column in query.columns.values() if (a := _attribute(runner, column, rows)) is not None]
    if not attributes or not len(rows):
        return None
    columns: dict[str, Any] = {f"a{k}": np.array(a.filters)[a.index] for k, a in enumerate(attributes)}
    report = find_slices(Predictions.from_pairs(hits[rows] == 2, sure[rows], **columns), by=list(columns))
    conditions = [{attributes[int(what[1:])].column: value for what, value in s.conditions} for s in report.slices]
    name = runner.database.samples.name_of
    return SliceFilters(
        tuple(
            SliceFilter(
                {column.key: value for column, value in chosen.items()},
                {column.key: name(int(value)) for column, value in chosen.items() if column.kind == "class" and value},
                s.n,
                s.confidence,
                s.accuracy,
                s.low,
                s.high,
                s.p_holm,
            )
            for s, chosen in zip(report.slices, conditions, strict=True)
        ),
        report.candidates,
        tuple(a.column.title for a in attributes),
    )


def _attribute(runner: QueryRunner, column: Column, rows: Indices) -> _Attribute | None:
    """A column's values, or its fifths where it is of numbers; None for what makes no slices."""
    if column.key in NO_SLICE or column.kind == "text" or looks_at_label(runner, column.key):
        return None
    if column.kind == "number":
        values = runner.database.values(column)[rows]
        if not np.isfinite(values).all():
            return None
        edges = np.unique(np.quantile(values, FIFTHS))
        # The ends of a filter belong to it: a fifth begins just above the one below.
        lows = ["", *(repr(float(np.nextafter(edge, np.inf))) for edge in edges)]
        highs = [*(repr(float(edge)) for edge in edges), ""]
        spans = tuple(f"{low}..{high}" for low, high in zip(lows, highs, strict=True))
        return _Attribute(column, np.searchsorted(edges, values, side="left"), spans)
    codes = runner.database.codes(column)[rows].astype(np.intp)
    count = runner.database.samples.num_classes if column.kind == "class" else len(column.values)
    words = [str(k) for k in range(count)] if column.kind == "class" else list(column.values)
    return _Attribute(column, codes, ("", *words)) if 1 < len(np.unique(codes)) <= 1000 else None
