"""Prediction sets as they are measured, joined, named and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from confide import sets
from confide.predictions import Predictions
from confide.sets import measure, merged, set_columns
from confide.sets.base import SetGroup, fewest_samples, quantile_rank
from tests.kept import entries
from tests.kept.edges import or_line


def _hard(split: str, n: int = entries.N) -> Predictions:
    plain = entries.predictions(split)
    rows = plain.replace(columns={**plain.columns, "difficulty": np.round(np.sin(np.arange(entries.N) * 1.7), 2)})
    return rows.take(np.arange(n))


def _bare(predictions: Predictions, **changes: Any) -> Predictions:
    """Without labels."""
    kept = {"ids": predictions.ids, "columns": predictions.columns, "class_names": predictions.class_names, **changes}
    return Predictions(predictions.logits, **kept)


def set_edges() -> Iterator[tuple[str, Callable[[], Any]]]:
    for by in (None, "class", "cluster", "site", "difficulty"):
        for n in (160, 5, 4, 1):
            yield f"measured {by} {n}", lambda by=by, n=n: _measured(by, n)
    for bands in (1, 2, 3):
        yield f"bands {bands}", lambda b=bands: or_line(lambda: _by_bands(b))
    yield "names", _names
    yield "refused", _refused
    yield "shift", _shift
    yield (
        "ranks",
        lambda: [[quantile_rank(n, c), fewest_samples(c)] for n in (0, 1, 9, 99) for c in (0.1, 0.55, 0.9, 0.99)],
    )
    yield "chosen", _chosen
    yield "clusters", lambda: [_clusters(c, number) for c in (0.5, 0.8, 0.97) for number in (None, 1, 2, 9)]
    yield "broken", _broken


def _measured(by: str | None, n: int) -> Any:
    found = sets.fit("aps", _hard("val"), 0.8, by=by)
    part = _hard("test", n)
    return [measure(found, part, model="net", stage="beta"), measure(found, _bare(part)).groups]


def _by_bands(bands: int) -> Any:
    found = sets.fit("lac", _hard("val"), 0.7, by="age", bands=bands)
    return [
        found.groups,
        found.edges,
        measure(found, _hard("test")).groups,
        merged(found, [measure(found, _hard("test"))]).groups,
    ]


def _names() -> Any:
    named = sets.fit("lac", _hard("val"), 0.8)
    part = _hard("test", 3)
    nameless = _bare(part, class_names=None)
    others = _bare(part, class_names=("a", "b", "c", "d"))
    unnamed = replace(named, class_names=None)
    return [
        [set_columns(fitted, rows)["classes"] for fitted in (named, unnamed) for rows in (part, nameless)],
        set_columns(unnamed, others)["classes"],
        [
            [e.classes for e in measure(fitted, rows).examples]
            for fitted in (named, unnamed)
            for rows in (part, nameless)
        ],
        [e.difficulty for e in measure(named, part.with_column("difficulty", ["x", "y", "z"])).examples],
    ]


def _refused() -> Any:
    val, ten = _hard("val"), np.linspace(0, 1, 160)
    fits: list[dict[str, Any]] = [
        {"by": "age", "edges": edges} for edges in ([], [30.0], [30, 50], [30, 30], [50, 30], [30, np.inf], [[30, 50]])
    ]
    fits += [{"by": by, "bands": 2} for by in (None, "class", "cluster", "age", "site")]
    fits += [{"by": by, "edges": [1.0]} for by in (None, "class")]
    fits += [
        {"clusters": 2},
        {"by": "cluster", "clusters": 0},
        {"by": "class", "clusters": 2},
        {"weights": ten, "by": "site"},
    ]
    fits += [{"coverage": c} for c in (0.0, 1e-3, 0.999, 1.0)]
    fits += [
        {"weights": w} for w in (ten * 0, ten - 0.1, ten[:9], ten / 0.5, np.append(ten[1:], np.nan), np.eye(160)[0])
    ]
    told = []
    for options in fits:
        coverage = options.pop("coverage", 0.8)
        fitted = or_line(lambda o=options, c=coverage: sets.fit("lac", val, c, **o))
        told.append(fitted if isinstance(fitted, str) else [fitted.groups, list(fitted.notes)])
    plain, weighted = sets.fit("lac", val, 0.8), sets.fit("lac", val, 0.8, weights=ten)
    others = (
        val,
        val.take([]),
        val.replace(split="test"),
        _bare(val),
        entries.by_unit(),
        entries.weighted(),
        val.logits,
    )
    fitted_on = [or_line(lambda v=v: len(sets.fit("lac", v, 0.8).groups)) for v in others]
    two = Predictions(torch.zeros(3, 2))
    applied = [
        or_line(lambda: plain(val, weights=ten)), or_line(lambda: weighted(val)), or_line(lambda: plain(two)),
        or_line(lambda: weighted(val, weights=-ten)), or_line(lambda: weighted(val, weights=ten[:3])),
    ]  # fmt: skip
    limits = weighted.limits(val, weights=ten * 50)
    return [
        told,
        fitted_on,
        applied,
        limits,
        int(np.isinf(limits).sum()),
        plain.promises,
        sets.fit("lac", val.take([0]), 0.8).promises,
    ]


def _shift() -> Any:
    rows = entries.features("val")
    same = np.column_stack([rows, np.full(160, 3.0)])
    pairs = [(rows, rows[:40] + 1), (same, same[:10]), (rows[:10], rows[10:20]), (rows[:9], rows), (rows, rows[:9])]
    pairs += [
        (rows, rows[:, :5]),
        (rows[:, 0], rows[:, 0]),
        (rows, np.where(rows > 2, np.nan, rows)),
        (rows, rows * 1e3),
    ]
    found = [or_line(lambda a=a, b=b: sets.likelihood_ratios(a, b, seed=1)) for a, b in pairs]
    return [f if isinstance(f, str) else [f.calibration, f.new] for f in found]


def _chosen() -> Any:
    small = _hard("val")
    return [
        dict(sets.fit(word, small.take(np.arange(n)), c, **o).options)
        for word, o in (("raps", {}), ("raps", {"penalty": 0.2}), ("raps", {"k_reg": 3}), ("saps", {}))
        for n, c in ((160, 0.8), (160, 0.95), (20, 0.9))
    ]


def _clusters(coverage: float, number: int | None) -> Any:
    found = sets.fit("lac", _hard("val"), coverage, by="cluster", clusters=number)
    return [found.class_groups, [[g.name, g.n, g.threshold] for g in found.groups]]


def _broken() -> Any:
    """A promise that the samples break, of one group and of several."""
    test = _hard("test")
    wrong = Predictions(-test.logits, test.labels, columns=test.columns, class_names=test.class_names)
    half = Predictions(
        torch.where(torch.arange(160)[:, None] % 3 == 0, -1, 1) * test.logits, test.labels, columns=test.columns
    )
    found = [sets.fit("lac", _hard("val"), 0.8, by=by) for by in (None, "class", "site", "difficulty")]
    parts = [half.take(np.arange(80)), half.take(np.arange(80, 160))]
    fewer = replace(found[0], groups=(SetGroup("all", 160, None),))
    return [
        [[g.kind, g.name, g.promised, g.broken] for g in measure(f, p).groups]
        for f in (*found, fewer)
        for p in (wrong, half)
    ] + [[[g.name, g.n, g.covered, g.broken] for g in merged(f, [measure(f, p) for p in parts]).groups] for f in found]
