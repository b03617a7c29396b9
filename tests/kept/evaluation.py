"""Sketches, sorted runs, streams and grids in their parts: what they hold, how they are merged, saved and refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import confide
from confide.evaluation import external_sort, shift, sketches
from confide.evaluation.evaluate import about_predictions
from confide.evaluation.streaming import as_predictions, stream
from confide.files import formats
from confide.predictions import Predictions
from confide.results import Evaluation
from tests.kept import entries
from tests.kept.edges import or_line

Entry = tuple[str, Callable[[], Any]]


def evaluation_edges() -> Iterator[Entry]:
    for make in (entries.predictions, entries.by_unit, sharp, _labelled, _several, _pairs):
        for rows in (160, 37):
            yield f"sketch {make.__name__} {rows}", lambda m=make, r=rows: _sketched(m(), r)
    for units in (256, 40, 39, 8):
        yield f"sketch of {units} units", lambda u=units: _dealt(u)
    yield "sketch of groups", lambda: _grouped(20)
    yield "sketch refused", _sketch_refused
    yield "sketch damaged", _damaged
    yield "cells", _cells
    for buffered, span in ((1 << 20, 0), (3, 0), (1 << 20, 500), (1 << 20, 50)):
        yield f"cell tables {buffered} {span}", lambda b=buffered, s=span: _tables(b, s)
    for rows in (1, 7, 50, 1000):
        yield f"external sort {rows}", lambda r=rows: _sorted(r)
    yield "streams", _streams
    yield "stream refused", _stream_refused
    yield "grid", _grid
    for classes in (5, 1000, 1001):
        yield f"about {classes}", lambda c=classes: _about(c)


def sharp() -> Predictions:
    """Confidences at the edges of bins, at one, and so close to it that only a double tells."""
    sure = np.concatenate([np.arange(1, 16) / 15, 1 - 0.5 ** np.arange(1, 60, 4), [0.5, 0.75, 1.0, 1.0]])
    return Predictions.from_pairs(np.arange(len(sure)) % 3 > 0, sure)


def _labelled() -> Predictions:
    return entries.predictions().replace(split="test", class_names=None)


def _several() -> Predictions:
    logits = entries.features("val")[:40, :3]
    return Predictions.multilabel(logits, (entries.features("train")[:40, :3] > 0).astype(int), split="val")


def _pairs() -> Predictions:
    right = entries.labels("val") == entries.labels("test")
    return Predictions.from_pairs(right, np.linspace(0, 1, 160), unit="visit", visit=np.arange(160) // 5)


def _shards(whole: Predictions, rows: int) -> list[Predictions]:
    return [whole.take(np.arange(a, min(a + rows, len(whole)))) for a in range(0, len(whole), rows)]


def _told(evaluation: Evaluation) -> Any:
    return {
        f"{m.metric} {m.group} {m.score}": [m.value, *(m.bounds or ()), m.n, m.note] for m in evaluation.measurements
    }


def _parts(sketch: sketches.Sketch) -> Any:
    return {
        "rows": sketch.rows,
        "fine": [sketch.fine.summed().keys, sketch.fine.summed().sums],
        "coarse": [sketch.coarse.summed().keys % sketches.UNIT_CELLS, sketch.coarse.summed().sums],
        "units": len(sketch.units),
        "parts": sketch.are_parts,
        "classes": None if sketch.classes is None else vars(sketch.classes),
        "groups": {name: group.rows for name, group in sketch.groups.items()},
    }


def _sketched(whole: Predictions, rows: int) -> Any:
    sketch = sketches.sketch_of(_shards(whole, rows))
    first, second = (
        sketches.sketch_of(part) for part in (whole.take(np.arange(30)), whole.take(np.arange(30, len(whole))))
    )
    both = sketches.Sketch().merge(sketches.Sketch()).merge(first).merge(second).merge(sketches.Sketch())
    with TemporaryDirectory() as folder:
        sketch.save(Path(folder) / "sketch.npz")
        again = sketches.Sketch.load(Path(folder) / "sketch.npz")
    fine = sketch.record(sketch.fine)
    coarse = sketch.record(sketch.coarse)
    words = ["accuracy", "ece", "auroc", "aurc"]
    return {
        **_parts(sketch),
        "merged": [both.rows, both.fine.summed().sums.sum(axis=0), both.coarse.summed().sums.sum(axis=0)],
        "same": [
            again.rows == sketch.rows,
            np.array_equal(again.fine.keys, sketch.fine.summed().keys),
            again.kind == sketch.kind,
        ],
        "fine record": [
            fine.facts.confidence,
            fine.facts.right,
            fine.weights,
            *(fine.facts.need(n) for n in sketch.kind.names),
        ],
        "coarse record": [coarse.facts.confidence, coarse.weights, coarse.columns["part"]],
        "told": _told(sketches.evaluate_sketch(sketch, words)),
        "limits": sketch.ranking_limits(["auroc", "aurc"]),
        "nothing": sketch.ranking_limits([]),
        "given": sketches.evaluate_sketch(sketch, ["auroc"], False, rankings={"auroc": 0.25}).measurements[0].value,
    }


def _dealt(units: int) -> Any:
    with patch.object(sketches, "UNITS", units):
        whole = entries.by_unit()
        one = sketches.sketch_of(_shards(whole, 37), by="site")
        other = sketches.sketch_of(whole.take(np.arange(80)), by="site").merge(
            sketches.sketch_of(whole.take(np.arange(80, 160)), by="site")
        )
        return [
            _parts(one),
            _parts(other),
            [g.coarse.summed().keys // sketches.UNIT_CELLS for g in one.groups.values()],
        ]


def _grouped(most: int) -> Any:
    with patch.object(sketches, "MOST_GROUPS", most):
        sketch = sketches.sketch_of(entries.predictions(), by=["site", "class", "predicted"])
        many = entries.predictions().with_column("number", np.arange(160) % (most + 1))
        fits = entries.predictions().with_column("number", np.arange(160) % most)
        return [
            _parts(sketch),
            _told(sketches.evaluate_sketch(sketch, ["accuracy", "ece"])),
            or_line(lambda: sketches.sketch_of(many, by="number").rows),
            or_line(lambda: sketches.sketch_of(fits, by="number").rows),
        ]


def _sketch_refused() -> Any:
    plain = entries.predictions()
    empty: list[Any] = [
        entries.weighted(),
        [plain, plain.replace(split="test")],
        [],
        5,
        torch.tensor(1.0),
        [5],
        [plain.take([])],
    ]
    by_site = sketches.sketch_of(plain, by="site")
    return [
        *(or_line(lambda s=s: sketches.sketch_of(s).rows) for s in empty),
        or_line(lambda: sketches.sketch_of(plain).merge(by_site).rows),
        or_line(lambda: sketches.Sketch().merge(by_site).by),
        sketches.sketch_of(
            [(plain.logits, plain.labels), plain.replace(split=None, class_names=None, columns={})]
        ).rows,
    ]


def _damaged() -> Any:
    """A file of which one number is another."""
    with TemporaryDirectory() as name:
        path = Path(name) / "sketch.npz"
        sketches.sketch_of(entries.predictions(), by="site").save(path)
        columns, metadata = formats.read_table(path)
        changes: dict[str, Callable[[Any], Any]] = {
            "fine_keys": lambda v: v[::-1].copy(),
            "fine_sums": lambda v: v + np.eye(len(v), 1),
            "fine_sums zero": lambda v: v * (np.arange(len(v)) > 0)[:, None],
            "fine_sums nan": lambda v: np.where(v == v.max(), np.nan, v),
            "fine_keys far": lambda v: v + 10**9,
            "fine_keys below": lambda v: v - 10**9,
            "fine_keys near": lambda v: v + 2,
            "fine_keys float": lambda v: v.astype(float),
            "coarse_sums": lambda v: v + np.eye(*v.shape),
            "coarse_sums sure": lambda v: v + 2 * np.eye(*v.shape, k=1),
            "coarse_sums width": lambda v: v[:, :-1],
            "coarse_sums float32": lambda v: v.astype(np.float32),
            "group0_fine_sums": lambda v: v + 1,
            "classes_count": lambda v: v[:, :-1],
            "classes_hits": lambda v: np.where(v > 1, np.inf, v),
        }
        told = {}
        for change, make in {"none": lambda v: v, **changes}.items():
            column = change.split(" ")[0]
            own = dict(columns)
            if column in own:
                own[column] = make(own[column])
            formats.write_table(path, own, metadata)
            told[change] = str(or_line(lambda: sketches.Sketch.load(path).rows)).replace(name, "FOLDER")
        formats.write_table(path, columns, {})
        told["other file"] = str(or_line(lambda: sketches.Sketch.load(path).rows)).replace(name, "FOLDER")
        return told


def _cells() -> Any:
    sure = np.concatenate([np.arange(0, 16) / 15, 1 - 0.5 ** np.arange(0, 60, 3), np.linspace(0.01, 0.99, 23)])
    bins = sketches.width_bin_of(sure.copy(), sketches.BINS)
    told = {}
    for bits in (sketches.FINE, sketches.COARSE):
        cells = sketches.cells_of(sure, bins, bits)
        told[str(bits)] = [
            cells,
            sketches.bins_of_cells(cells, bits),
            sketches.middles(cells, bins, bits),
            sketches.cell_count(bits),
        ]
    fine = sketches.cells_of(sure, bins, sketches.FINE)
    told["coarser"] = sketches.coarser(fine, bins)
    told["within"] = sketches.within_bins(sure + np.resize([0.1, -0.1, 0.0], len(sure)), bins)
    return told


def _tables(buffered: int, span: int) -> Any:
    draw = np.random.default_rng(0)
    with patch.object(sketches, "MOST_BUFFERED", buffered):
        table, seen = sketches.CellTable.empty(2, span), []
        for n in (0, 3, 5, 1, 40, 2):
            keys = draw.integers(0, 50, n) if n != 3 else np.array([49, 0, 49])
            table.add(keys, np.stack([np.ones(n), draw.random(n)]))
            seen.append([len(table.keys), len(table.waiting), table.every is None])
        summed = table.summed()
        again = summed.renumbered(summed.keys // 3).summed()
        far = sketches.sums_by_key(np.array([5, 900, 5]), np.array([[1.0, 2.0, 3.0]]))
        near = sketches.sums_by_key(np.array([5, 16, 5]), np.array([[1.0, 2.0, 3.0]]))
        return [seen, summed.keys.tolist(), summed.sums, summed.rows, again.keys.tolist(), again.sums, far, near]


def _sorted(rows: int) -> Any:
    """Rankings by ranges, and of all rows at once."""
    whole = entries.predictions()
    words = external_sort.sortable_words(
        ["auroc", "aurc", "accuracy", "tpr", "coverage_at_risk", "halving_rejection", "eaurc", "nll"]
    )
    ranges = external_sort.score_ranges(sketches.sketch_of(whole), rows)
    runs = [external_sort.sorted_run([part]) for part in _shards(whole, 33)]
    run = external_sort.merged_run(runs)
    gained = []
    for own in ranges:
        inside = (run["cell"] >= own.first) & (run["cell"] < own.last)
        gained.append(external_sort.range_values(words, {name: column[inside] for name, column in run.items()}, own))
    found = external_sort.rankings_of(words, ranges, gained)
    told = {
        m.metric: m.value for m in confide.evaluate(whole, words, False, score="msp").measurements if m.group is None
    }
    return [
        [vars(own) for own in ranges[:4]],
        len(ranges),
        found,
        {word: math.isclose(found[word], told[word], rel_tol=1e-9) for word in words},
        run["right"], run["wrong"], run["cell"],
        or_line(lambda: external_sort.range_values(words, runs[0], ranges[0])) if rows == 1000 else None,
        or_line(lambda: external_sort.sorted_run([entries.weighted()])),
    ]  # fmt: skip


def _record(record: Predictions) -> Any:
    facts = record.facts
    return {
        "shown": repr(record),
        "facts": {
            n: getattr(facts, n) for n in ("confidence", "entropy", "margin", "nll", "brier", "energy", "max_logit")
        },
        "labels": record.labels,
        "columns": record.columns,
        "ids": record.ids,
        "weights": record.weights,
        "trust": record.trust,
        "unit": record.unit,
        "names": record.class_names,
        "classes": or_line(lambda: vars(record.class_table())),
    }


def _streams() -> Any:
    whole, weighted, units = entries.predictions(), entries.weighted(), entries.by_unit()
    zeros = whole.weighted(np.where(np.arange(160) < 40, 0.0, 2.0))
    trusted = [part.replace(trust=torch.arange(float(len(part)))) for part in _shards(whole, 50)]
    top = Predictions.from_top1(entries.labels("val"), entries.labels("test"), np.linspace(0.2, 1, 160))
    return {
        "plain": _record(stream(_shards(whole, 50))),
        "columns": _record(stream(_shards(whole, 50), ("site", "nothing"), True, ("margin",))),
        "energy": _record(stream(_shards(whole, 50), scores=("energy", "max_logit"))),
        "weighted": _record(stream(_shards(weighted, 50))),
        "zeros": _record(stream(_shards(zeros, 40))),
        "units": _record(stream(_shards(units, 50))),
        "units asked": _record(stream(_shards(units, 50), ("visit",))),
        "trust": _record(stream(trusted)),
        "some trust": _record(stream([trusted[0], *_shards(whole, 50)[1:]])),
        "top": _record(stream(_shards(top, 50))),
        "tuples": _record(as_predictions([(whole.logits[:9], whole.labels[:9]), [whole.logits[9:], whole.labels[9:]]])),
        "by name": _record(as_predictions(_shards(whole, 50), weights="age")),
        "several scores": _record(as_predictions(_shards(whole, 50), score=["margin", 5])),
    }


def _stream_refused() -> Any:
    whole, worded = entries.predictions(), entries.predictions().replace(ids=[f"s{k}" for k in range(160)])
    first, second = _shards(whole, 80)
    three = Predictions(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), split="val", class_names=entries.NAMES)
    cases: dict[str, Any] = {
        "split": [first, second.replace(split="test")],
        "names": [first, second.replace(class_names=None)],
        "classes": [first, three],
        "again": [worded.take(np.arange(9)), worded.take(np.arange(9))],
        "numbers again": [first, first],
        "weights": [first, second.weighted(np.ones(80) + np.arange(80))],
        "none": [],
        "empty": [whole.take([])],
        "number": 5,
        "array": np.zeros(3),
        "dictionary": {},
        "three": [(1, 2, 3)],
        "values": [first],
    }
    return {
        name: or_line(lambda c=case, n=name: len(as_predictions(c, weights=np.ones(80) if n == "values" else None)))
        for name, case in cases.items()
    }


def _grid() -> Any:
    clean = shift.ShiftCell("clean", 0)
    cells = (clean, *(shift.ShiftCell(word, s) for word in ("fog", "blur") for s in (1, 3)))
    rows = {}
    for k, cell in enumerate(cells):
        values = {"ece": 0.1 * k, "auroc": math.nan if k in (1, 3, 4) else 0.5 + 0.1 * k, "confidence_gap": -0.01 * k}
        own = [shift.ShiftValue("raw", score, word, v) for score in ("msp", "trust:x") for word, v in values.items()]
        own += [shift.ShiftValue("raw", "msp", f"rmd_{name}", k + j) for j, name in enumerate(("mean", *shift.BOX))]
        own += [shift.ShiftValue("beta", "msp", "undefined", math.nan)]
        rows["net", cell] = own
    measured = shift.GridValues(rows, cells, 50)
    curves = [
        *shift.cell_curves(measured, "net", "raw"),
        shift.box_curve(measured, "shift_boxes", "ece", "net"),
        shift.box_curve(measured, "shift_trust_ece_boxes", "ece", "net", score="trust:x"),
        shift.rmd_curve(measured, "net"),
    ]
    return {
        "rows": [[m.metric, m.value, m.n, m.stage, m.group, m.score, m.note] for m in shift.cell_rows(measured, "net")][
            ::3
        ],
        "notes": [m.note for m in shift.cell_rows(measured, "net") if m.metric == "auroc"],
        "undefined": [m.note for m in shift.cell_rows(measured, "net") if m.metric == "undefined"],
        "curves": [vars(curve) for curve in curves],
        "scores": [measured.scores("net"), measured.scores("net", "nothing"), measured.words, measured.severities],
        "names": [[cell.name, cell.group] for cell in cells],
        "absent": measured.value("net", clean, "raw", "nothing"),
    }


def _about(classes: int) -> Any:
    wide = Predictions(torch.eye(classes)[:5], torch.arange(5) % 3, class_names=[f"c{k}" for k in range(classes)])
    few = Predictions.from_top1([0, 4], [1, 2], [0.5, 0.6], class_names=("a", "b"))
    told = [about_predictions(own, None, 3) for own in (wide, few, Predictions(torch.eye(classes)[:5]), sharp())]
    return [
        [len(a.label_counts), list(a.label_counts.items())[:6], a.num_classes, a.seed, a.unit, len(a.class_names)]
        for a in told
    ]
