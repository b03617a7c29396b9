"""Parts that other cases pass by: logs of a training, doubts, risks and words, batches, trust at its own line, figures
outside the page, pages of slices, of pixels and of several runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

import confide
from confide import calibrators, decisions, dense, difficulty, losses, metrics
from confide.calibrators.groups import _saved_edges
from confide.calibrators.travelling import scale_for
from confide.checks import MissingExtra
from confide.difficulty.training_logs import CountLog
from confide.evaluation import risks, trust
from confide.evaluation.evaluate import values_of_rows
from confide.evaluation.gallery import suspects
from confide.explorer import comparison, session, tags
from confide.files import fitted, formats
from confide.metrics.view import Sorted
from confide.predictions import Predictions
from confide.records import Features, Scores, Split
from confide.report import draw, render_report, side_by_side, static
from confide.report.sections import maps, slices
from confide.results import About, ComparedRow, Comparison, DecisionResult, Evaluation, Measurement
from tests.kept import entries
from tests.kept.edges import or_line

Entry = tuple[str, Callable[[], Any]]
N = 12


def seldom_entries() -> Iterator[Entry]:
    for members in (1, 2):
        for kept in ("float16", "float32", None):
            yield f"log of {members} {kept}", partial(_logged, members, kept)
    yield "log refused", _log_refused
    yield "counts", _counted
    for noise in (0.0, 1.0, 3.0):
        for base in ("cross_entropy", "adafocal"):
            yield f"doubts {noise} {base}", partial(_doubts, noise, base)
    yield "words", _words
    yield "losses of a person", _own_losses
    yield "batches", _batches
    yield "batches refused", _batches_refused
    yield "trust at a line", _trusted
    yield "scanned", _scanned
    yield "scores below", _below
    yield "units compared", _units
    yield "edges of a file", _edges
    for word in ("combined", "prototype", "kmeans"):
        yield f"damaged {word}", partial(_damaged, word)
    yield "figures outside the page", _figures
    yield "slices", _slices
    yield "maps", _maps
    for word in ("temperature", "platt", "beta", "isotonic", "histogram", "spline"):
        for weighted in (False, True):
            yield f"confidence alone {word} {weighted}", partial(_confidence_alone, word, weighted)
    yield "confidence of one number asked for", _scaled
    yield "frames", _frames
    yield "tables", _tables
    yield "values of rows", _rows_of_options
    yield "suspects", _suspects
    yield "advice", _advised
    yield "fiftyone", _fiftyone
    for runs in (2, 3, 4):
        yield f"runs side by side {runs}", partial(_runs, runs)


# Difficulty.


def _outputs(members: int, epochs: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(members)
    probs = draws.dirichlet(np.full(3, 0.7), (members, epochs, N))
    probs[0, 0, 0] = (1, 0, 0)
    return probs, draws.integers(0, 3, N), np.array([f"s{k}" for k in range(N)])


def _logged(members: int, kept: str | None) -> Any:
    probs, labels, ids = _outputs(members)
    with TemporaryDirectory() as folder:
        settings: dict[str, Any] = {} if kept is None else {"folder": Path(folder) / "log", "dtype": kept}
        recorder = difficulty.Recorder(ids, labels, members=members, kind="probs", **settings)
        for epoch in range(3):
            for member in range(members):
                for rows in (slice(0, 5), slice(5, N)):
                    recorder.record(epoch, ids[rows], probs[member, epoch, rows], member=member)
        logs = [recorder.log()] if kept is None else [recorder.log(), difficulty.open_log(Path(folder) / "log")]
        some = {"epochs": (0, 2), "members": (members - 1,)}
        return [
            {
                f"{word} {options}": or_line(
                    lambda w=word, o=options, log=log: difficulty.score(w, log, **o).values.tolist()
                )
                for word in ("confusion", "loss", "correctness", "entropy")
                for options in ({}, {"epochs": "last"}, {"epochs": 1}, some, {"epochs": (0, 7)}, {"members": "last"})
            }
            for log in logs
        ]


def _log_refused() -> Any:
    probs, labels, ids = _outputs(2)
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()

        def recorder(**options: Any) -> Any:
            return difficulty.Recorder(ids, labels, kind="probs", **{"members": 2, **options})

        def said(call: Callable[[], Any]) -> Any:
            found = or_line(call)
            return found.replace(str(folder), "FOLDER") if isinstance(found, str) else repr(type(found).__name__)

        def halfway(log: Any, *turns: tuple[int, int, int]) -> Any:
            for member, epoch, rows in turns:
                log.record(epoch, ids[:rows], probs[member, epoch, :rows], member=member)
            return log.log()

        def narrower(log: Any) -> Any:
            log.record(0, ids[:2], probs[0, 0, :2])
            log.record(0, ids[2:], np.full((N - 2, 2), 0.5))

        recorder(folder=folder / "log").record(0, ids, probs[0, 0], member=0)
        return [
            said(lambda: recorder().record(0, ids, probs[0, 0], member=2)),
            said(lambda: recorder().record(0, ids, probs[0, 0], member=-1)),
            said(lambda: recorder().record(0, ids[:3], probs[0, 0])),
            said(lambda: recorder().record(0, ids[:2], probs[0, 0, :2, :1])),
            said(lambda: recorder().record(0, ids[:2], probs[0, 0, :2, 0])),
            said(lambda: [halfway(recorder(), (0, 0, 3)), 0]),
            said(lambda: halfway(recorder(), (0, 0, N), (0, 1, N))),
            said(lambda: halfway(recorder(), (0, 0, N), (1, 1, N))),
            said(lambda: halfway(recorder(), (0, 0, N))),
            said(lambda: halfway(recorder(), (0, 0, N), (1, 0, N))),
            said(lambda: recorder().log()),
            said(lambda: narrower(recorder())),
            said(lambda: difficulty.open_log(folder / "log")),
            said(lambda: difficulty.open_log(folder)),
            said(lambda: difficulty.Recorder(ids[:5], folder=folder / "log")),
            said(lambda: difficulty.Recorder(ids[::-1].copy(), folder=folder / "log")),
            said(lambda: difficulty.Recorder(ids, folder=folder / "log")),
            said(lambda: difficulty.score("loss", np.full((2, 1), 1.0), [0, 0])),
            said(lambda: difficulty.score("loss", np.full((0, 2), 1.0), [])),
            said(lambda: difficulty.score("loss", np.full((1, 1, 1, 2, 2), 0.5), [0, 0])),
            said(lambda: difficulty.score("loss", np.full((2, 2), 0.5))),
        ]  # fmt: skip


def _counted() -> Any:
    ids = np.arange(3)

    def said(counts: Any, epochs: int) -> Any:
        return or_line(lambda: CountLog(ids, np.array(counts), epochs).correct_frequency().tolist())

    return [
        said(*case)
        for case in (([0, 1, 4], 4), ([0, 1, 5], 4), ([-1, 1, 4], 4), ([0, 1], 4), ([0, 0, 0], 0), ([0, 1, 1], 1))
    ]


def _words() -> Any:
    draws = np.random.default_rng(0)
    rows, labels = draws.normal(size=(30, 4)), np.arange(30) % 2
    rows[7] = 0
    features = Features(rows, labels, np.arange(30), "drawn")
    scores = Scores(np.arange(30), draws.normal(size=30), "rmd")
    vocabulary, embedded = tuple("abcdefg"), draws.normal(size=(7, 4))
    return [
        or_line(
            lambda o=options, e=own: [vars(words) for words in difficulty.explain(features, scores, vocabulary, e, **o)]
        )
        for own, options in (
            (embedded, {}), (embedded, {"each": 2, "part": 0.5}), (embedded, {"part": 0.01}), (embedded[:6], {}),
            (embedded, {"part": 0.0}), (embedded, {"part": 0.51}), (embedded[:, :3], {}),
        )
    ]  # fmt: skip


def _damaged(word: str) -> Any:
    """A saved difficulty with one field or array changed at a time: read, or one line."""
    told = {}
    with TemporaryDirectory() as name:
        path = Path(name) / f"{word}.safetensors"
        difficulty.fit(word, entries.features("train"), entries.labels("train")).save(path)
        state = fitted.load_fitted(path, formats.DIFFICULTY, lambda own: own)

        def tried(**changes: Any) -> str:
            fitted.save_fitted(path, formats.DIFFICULTY, replace(state, **changes))
            found = or_line(lambda: difficulty.load(path))
            return found.replace(name, "FOLDER")[:160] if isinstance(found, str) else "read"

        for key, values in state.tensors.items():
            if "." in key:  # of the Gaussians, which have tests of their own
                continue
            changed = {"short": values[:-1], "negative": -1 - values, "wide": values[..., None], "large": 9 + values}
            for change, own in changed.items():
                told[f"{key} {change}"] = tried(tensors={**state.tensors, key: own.contiguous()})
            told[f"{key} gone"] = tried(tensors={k: v for k, v in state.tensors.items() if k != key})
        for field, value in state.record.items():
            for other in (None, -1, "x", [1]):
                told[f"{field} {other}"] = tried(record={**state.record, field: other})
            for inner in value if field == "numbers" else ():
                for other in (0, 1, -1, 159, 160, 1e-30):
                    told[f"{inner} {other}"] = tried(record={**state.record, field: {**value, inner: other}})
    return told


def _edges() -> Any:
    cases = ([0, 1], [0.5], [], [1, 1], [1, 0.5], "ab", [0, "b"], None, (0, 1), [0, float("nan")], [True, 2])
    return [or_line(lambda c=case: _saved_edges(c)) for case in cases]


# Losses, risks, metrics.


def _doubts(noise: float, base: str) -> Any:
    loss = losses.create("adaptive_difficulty", num_groups=4, noise=noise, base=base, start=0.02, most=0.4)
    draws = torch.Generator().manual_seed(0)
    found = []
    for n in (60, 7, 1):
        logits = 2 * torch.randn(n, 4, generator=draws, dtype=torch.float64)
        labels = torch.where(torch.arange(n) % 3 > 0, logits.argmax(dim=1), 0)
        loss.update(logits, labels, groups=torch.arange(n) % 3)  # the last group stays empty
        found.append(loss.doubts.tolist() + loss.strengths(4).tolist())
    logits = torch.randn(4, 4, generator=draws, dtype=torch.float64)
    refused = [
        or_line(lambda g=groups, m=many: loss.update(logits[:m], torch.arange(m), groups=g))
        for groups, many in ((torch.zeros(3), 4), (torch.zeros(3).long(), 4), (torch.zeros(0).long(), 0))
    ]
    return [found, refused, loss(logits, torch.arange(4), groups=torch.arange(4)).item(), loss.log()]


def _own_losses() -> Any:
    found: dict[str, Any] = {}
    for name, given in (("plain", entries.predictions()), ("weighted", entries.weighted())):
        each = np.linspace(0, 1, len(given)) ** 2
        values = np.asarray(given.facts.sureness(), dtype=np.float64)
        for only in (None, 1):
            risk = risks._loss(given, values, "harm", 0.3, each, only)
            found[f"{name} {only}"] = [
                [risk.label, *vars(risk.counts(t)).values(), risk.p_value(t), risk.bound(t, 0.1), risk.testable(t, 0.1)]
                for t in (0.0, float(np.median(values)), float(values.max()), 2.0)
            ]
        found[f"{name} refused"] = [
            or_line(lambda g=given, v=values, own=own: risks._loss(g, v, "harm", 0.3, own, None).label)
            for own in (each[:-1], each - 0.1, each + 0.1, each)
        ]
    return found


def _batches() -> Any:
    whole = entries.predictions()
    trusted = whole.replace(trust=torch.linspace(1, 0, len(whole), dtype=torch.float64))
    weighted = entries.weighted()
    makes: dict[str, tuple[Predictions, str, dict[str, Any]]] = {
        "ece": (whole, "ece", {"bins": 7}), "classwise": (whole, "classwise_ece", {}),
        "classwise bins": (whole, "classwise_ece", {"bins": 4}), "classwise weighted": (weighted, "classwise_ece", {}),
        "nll weighted": (weighted, "nll", {}), "trust": (trusted, "auroc", {"score": "trust"}),
        "kde": (whole, "kde_ece", {}), "kde weighted": (weighted, "classwise_ece", {"bins": 3}),
    }  # fmt: skip
    found = {}
    for name, (given, word, options) in makes.items():
        parts = [given.take(rows) for rows in np.split(np.arange(len(given)), [50, 51, 120])]
        first, second = metrics.create(word, **options), metrics.create(word, **options)
        for part in parts[:2]:
            first.update(part)
        second.update(parts[0].take(np.arange(0)))
        for part in parts[2:]:
            second.update(part)
        first.merge(second)
        known = getattr(metrics, word)(given, **options)
        found[name] = [float(first.compute()), float(known), len(first), len(second)]
    some = metrics.create("auroc", score="trust")
    some.update(trusted.take(np.arange(50)))
    some.update(whole.take(np.arange(50, 160)))
    found["trust of some"] = or_line(lambda: float(some.compute()))
    return found


def _batches_refused() -> Any:
    plain, weighted = entries.predictions(), entries.weighted()
    narrow = Predictions(plain.logits[:, :3], plain.labels % 3)

    def both(word: str, first: Any, second: Any, merged: bool) -> Any:
        one, other = metrics.create(word), metrics.create(word)
        one.update(first)
        (other if merged else one).update(second)
        if merged:
            one.merge(other)
        return [len(one), float(one.compute())]

    return [
        or_line(lambda w=word, f=first, s=second, m=merged: both(w, f, s, m))
        for word in ("ece", "classwise_ece")
        for first, second in ((plain, weighted), (weighted, plain), (plain, narrow), (narrow, plain), (plain, plain))
        for merged in (False, True)
    ]


def _scanned() -> Any:
    draws = np.random.default_rng(0)
    found = []
    for values, wrong in (
        (np.linspace(1, 0, 4000), draws.random(4000) < 0.3), (np.linspace(1, 0, 40), np.arange(40) % 7 == 3),
        (np.repeat(np.linspace(1, 0.5, 5), 4), np.arange(20) % 3 == 0), (np.full(6, 0.5), np.arange(6) % 2 == 0),
        (np.array([0.9, 0.1]), np.array([False, True])), (np.array([0.9, 0.5, 0.1]), np.array([True, False, True])),
    ):  # fmt: skip
        given = Predictions.from_pairs(~wrong, values)
        for tpr in (0.95, 1.0, 0.5, 0.9):
            found.append([metrics.fpr95(given, tpr=tpr, form=form).value for form in ("reached", "corner", "scan")])
    return [found[k : k + 4] for k in range(0, len(found), 4)]


def _below() -> Any:
    """Of scores that are kept less one, as of those that are kept whole."""
    stored = -(10.0 ** -np.arange(1.0, 9.0))[::-1]
    falling = stored[::-1][np.argsort(-stored[::-1], kind="stable")]
    edges = np.concatenate([1 + falling, 1 + falling + 1e-12, [0.0, 2.0, 0.95]])
    common: dict[str, Any] = {name: None for name in Sorted.__dataclass_fields__ if name not in ("stored", "less_one")}
    common["wrong"] = np.zeros(len(falling), dtype=bool)
    told = []
    for closed in (False, True):
        less, whole = (
            Sorted(**{**common, "stored": own, "less_one": kind}).below(edges, closed=closed).tolist()
            for own, kind in ((falling, True), (1 + falling, False))
        )
        told.append([less, whole])
    return told


def _trusted() -> Any:
    draws = np.random.default_rng(0)
    correct = draws.random(80) < 0.7
    values = {name: torch.from_numpy(draws.normal(correct.astype(float), 1)) for name in ("mcp", "first", "second")}
    values["flat"] = torch.full((80,), 0.5, dtype=torch.float64)
    scores = {
        f"{name} {scale}": trust.TrustValues.of(own.exp() if scale == "ratio" else own, line, scale)
        for name, own in values.items()
        for scale in ("logit", "ratio", "probability")
        for line in ((0.5,) if name != "second" else (None,))
    }
    steep = trust.TrustValues.of(torch.tensor([37.5, 38.0, 40.0, -50.0], dtype=torch.float64), 0.0, "logit")
    sides = list(scores.values())
    tests = [
        [vars(test) for test in trust.decision_tests(own, sides[a], sides[b], ("mcp/raw", "other"))]
        for own in (correct, np.ones(80, bool), np.zeros(80, bool))
        for a, b in ((0, 3), (3, 0), (0, 0), (0, 6), (0, 9), (9, 10))
    ]
    given = Predictions.from_pairs(correct, draws.uniform(0.3, 1, 80))
    curves = trust.outcome_histograms(given, scores, {name: name for name in scores}, bins=8)
    return {
        "lines": {name: [own.threshold, own.values, own.order is None] for name, own in scores.items()},
        "steep": [steep.values, steep.threshold, steep.ranking],
        "tests": tests,
        "outcomes": [[curve.score, dict(curve.columns)] for curve in curves],
        "verdicts": [
            trust.trust_verdict([replace(_row("auroc", "a/raw/trust:x", "b/raw/trust:y"), better=better)], baseline)
            for better in ("a", "b", None)
            for baseline in ("mcp", "other")
        ],
    }


def _row(metric: str, a: str, b: str) -> Any:
    return Comparison(metric, ComparedRow(*a.split("/")), ComparedRow(*b.split("/")), 0.1, 0.0, 0.2, 0.01, 0.02)


# The explorer and pages.


def _units() -> Any:
    draws = np.random.default_rng(0)
    first, second = draws.random(40) < 0.6, draws.random(40) < 0.8
    units = np.arange(40) // 4
    turned = np.where(units % 2 == 0, True, False)
    return [
        comparison._unit_test([a, b], own)
        for a, b, own in (
            (first, second, units), (second, first, units), (first, first, units), (first, second, np.zeros(40, int)),
            (first, second, np.arange(40) // 20), (turned, ~turned, units),
            (np.zeros(40, bool), np.ones(40, bool), units),
        )
    ]  # fmt: skip


def _drawn(source: str) -> Any:
    """Every mark of a drawing: its kind, its class, its numbers and its words."""
    return [
        [mark.tag.rpartition("}")[2], *(f"{k} {v}"[:200] for k, v in sorted(mark.attrib.items())), mark.text or ""]
        for mark in ElementTree.fromstring(source).iter()
    ]


def _slices() -> Any:
    rows = {
        f"site={k}": Measurement(
            "confidence_gap",
            g,
            90,
            "test",
            bounds=(g - 0.04, g + 0.05),
            group=f"slice=site={k}",
            p_value=0.001 * (k + 1),
        )
        for k, g in enumerate((0.1, -0.2, 0.0, 0.31, -0.01))
    }
    whole = (Measurement("accuracy", 0.8, 900), Measurement("confidence_gap", 0.01, 900, bounds=(-0.01, 0.03)))
    many = {f"{name} {k}": replace(m, group=f"{m.group} {k}") for k in range(4) for name, m in rows.items()}
    about = About(subject="slices")
    return {
        "drawn": [_drawn(str(slices._canvas(dict(list(rows.items())[:n]), 400).render("x"))) for n in (1, 2, 5)],
        "pages": [
            entries.visible(render_report(Evaluation((*whole, *list(own.values())[:n]), about=about)))[:150]
            for own, n in ((rows, 0), (rows, 1), (rows, 5), (many, 12), (many, 13), (many, 20))
        ],
    }


def _maps() -> Any:
    draws = np.random.default_rng(1)
    pixels = dense.pixels(draws.normal(size=(5, 3, 6, 4)), draws.integers(0, 3, (5, 6, 4)), ids=list("abcde"))
    page = confide.evaluate(pixels, "core")
    samples = [s for s in page.samples if s.role == "map"]
    samples = [replace(s, picture="data:image/png;base64,AA", text="12.5 % wrong") for s in samples]
    return {
        "drawn": [_drawn(str(maps._canvas(samples[:n], w).render("x"))) for n in (1, 3, 5) for w in (100, 380, 900)],
        "told": [[s.id, s.text, s.confidence] for s in page.samples if s.role == "map"],
    }


def _runs(number: int) -> Any:
    given = [
        confide.evaluate(Predictions(p.logits * k, p.labels, split="test"), ["accuracy", "confidence_gap", "nll"])
        for k, p in ((k, entries.predictions("test")) for k in (1.0, 0.4, 2.5, 1.1)[:number])
    ]
    bare = [replace(e, measurements=tuple(replace(m, bounds=(np.nan, np.nan)) for m in e.measurements)) for e in given]
    short = confide.evaluate(entries.predictions("test").take(np.arange(50)), ["accuracy", "confidence_gap"])
    names = ["monday", "tuesday", "friday", "sunday"][:number]
    return [
        entries.visible(render_report(side_by_side(own, names)))[:60]
        for own in (
            given,
            bare,
            [*given[:-1], short],
            [*given[:-1], confide.evaluate(entries.predictions(), "accuracy")],
        )
    ]


def _figures() -> Any:
    """What matplotlib and a program for pictures are given of a drawing."""
    canvas = draw.Canvas(200, 100)
    canvas.line(10, 20, 30, 40, "ax")
    canvas.text(22, 12, "words\u202fof", "l")
    canvas.text(22, 30, "in the middle", "m")
    canvas.text(22, 40, "at the end", "e")
    canvas.dot(50, 60, "fw", 4.5)
    canvas.dot(70, 60, "k1", 3)
    canvas.polyline([(1, 2), (3, 4), (5, 6)], "k2", 1.5)
    source = str(canvas.render("x"))
    shapes = ("M1 2L3 4h5v-1h-5z", "M0 0M5 5L6 6z", "M1 1V3H4Z", "h2v3")
    looks = [
        vars(static.style_of(ElementTree.fromstring(f'<{tag} class="{own}"/>')))
        for tag in ("path", "text", "circle")
        for own in (*static.FILLS, *static.STROKES, "l", "m", "e", "b", "nh", "ln", "pale", "thin", "bx", "op", "")
    ]
    told: dict[str, Any] = {"paths": [static._path(shape) for shape in shapes], "looks": looks}
    told["paint"] = [
        static._paint(static.style_of(ElementTree.fromstring(f'<path class="{own}"/>'))) for own in static.STROKES
    ]
    plot = static._matplotlib()
    for halo in (True, False):
        figure = static._draw(plot, source, halo)
        (axes,) = figure.axes
        told[f"drawn {halo}"] = {
            "size": figure.get_size_inches().tolist(),
            "limits": [*axes.get_xlim(), *axes.get_ylim()],
            "texts": [
                [
                    *t.get_position(),
                    t.get_text(),
                    t.get_fontsize(),
                    t.get_ha(),
                    str(t.get_gid()),
                    len(t.get_path_effects()),
                ]
                for t in axes.texts
            ],
            "marks": [
                [p.get_zorder(), p.get_linewidth(), p.get_path().vertices[:9].tolist(), getattr(p, "radius", 0)]
                for p in axes.patches
            ],
        }
    return told


# Calibrators of a confidence, tables, galleries, and what other programs are told.


def _confidence_alone(word: str, weighted: bool) -> Any:
    draws = np.random.default_rng(3)
    sure = np.concatenate([draws.uniform(0.3, 1, 76), [0.0, 1.0, 0.5, 1.0]])
    right = draws.random(80) < 0.2 + 0.6 * sure
    weights = {"weights": np.linspace(0.5, 2, 80)} if weighted else {}
    found = calibrators.fit(word, Predictions.from_pairs(right, sure, split="val", **weights))
    asked = Predictions.from_pairs(np.ones(24, bool), np.concatenate([np.linspace(0, 1, 21), [1e-9, 1 - 1e-9, 0.3]]))
    return [found(asked).facts.sureness(), list(found.notes), dict(found.values)]


def _scaled() -> Any:
    logits = torch.randn((30, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    asked = (0.26, 0.3, 0.5, 0.8, 0.999, 1.0)
    return [scale_for(logits, confidence, start) for start in (1.0, 0.3) for confidence in asked]


def _records() -> dict[str, Predictions]:
    draws = np.random.default_rng(0)
    logits, labels = draws.normal(size=(5, 3)), np.array([0, 1, 2, 0, 1])
    site = {"site": np.array(list("abcab")), "confidence": np.arange(5)}
    return {
        "whole": Predictions(
            logits,
            labels,
            columns=site,
            class_names=("x", "y", "z"),
            trust=torch.linspace(0, 1, 5),
            weights=labels + 1.0,
        ),
        "unlabelled": Predictions(logits, ids=list("vwxyz")),
        "pairs": Predictions.from_pairs([1, 0, 1], [0.5, 0.6, 0.7]),
        "top": Predictions.from_top1(labels, labels[::-1].copy(), np.linspace(0.2, 1, 5)),
    }


def _frames() -> Any:
    if find_spec("pandas") is None:
        raise MissingExtra("pandas", "slow", "a data frame")
    tables = {name: given.to_frame("pandas") for name, given in _records().items()}
    return {
        name: {str(key): [str(v)[:9] for v in table[key]] for key in table.columns} for name, table in tables.items()
    }


def _tables() -> Any:
    told: dict[str, Any] = {}
    whole = _records()["whole"]
    told["weights"] = [
        or_line(lambda w=word: whole.weighted(w).relative_weights.tolist())  # type: ignore[union-attr]
        for word in ("sample_weight", "site", "confidence", "confidense", None, [1, 1, 1, 1, 2])
    ]
    row = decisions.decide(entries.predictions("test"), costs=[1, 5, 2, 1], abstain=0.3).result.as_row()
    told["decisions"] = []
    changes: tuple[dict[str, Any], ...] = (
        {}, {"shares": {"a": 1.0}}, {"shares": {"a": 1.01}}, {"shares": {"a": -0.01}}, {"shares": {"a": 0.0}},
        {"asked": 3}, {"measured": None}, {"break_even": []}, {"n": -1}, {"threshold": None},
    )  # fmt: skip
    for change in changes:
        try:
            told["decisions"].append(str(DecisionResult.from_row({**row, **change}))[:200])
        except (ValueError, TypeError) as error:
            told["decisions"].append(str(error)[:100])
    return told


def _rows_of_options() -> Any:
    rows = np.array([2, 0])
    options = (None, "site", ["site", "class"], [1, 2, 3], np.arange(3) * 2.0, torch.arange(3), (4, 5), np.eye(3))
    many = {"a": np.arange(3), "b": "word", "c": {"d": [7, 8, 9]}}
    return [str(values_of_rows(option, rows, 3)) for option in (*options, many)]


def _suspects() -> Any:
    ids, n = np.arange(9), 9
    verdict = np.array(["wrong label", "hard", "wrong label"] * 3)
    columns = {"verdict": verdict, "suspicion": np.array([1, 9, 3, 3, 8, 0, 2, 7, 5.0]), "suggested": (ids + 1) % 3}
    split = Split(np.zeros((n, 1, 4, 4), dtype=np.uint8), ids % 3, ids[::-1].copy(), "test")
    scores = Scores(ids, np.linspace(0, 1, n), "rmd", columns=columns)
    short = replace(scores, columns={k: v for k, v in columns.items() if k != "suspicion"})
    return [
        [[s.id, s.label, s.prediction, s.difficulty, s.role] for s in suspects(split, own, ("x", "y", "z"), most=m)]
        for own in (scores, short)
        for m in (2, 20)
    ]


def _advised() -> Any:
    words = ("database is locked", "database or disk is full", "no tags here", "file is malformed", "could not decode",
             "interrupted", "attempt to write a readonly database", "no tag")  # fmt: skip
    return [tags._advice(sqlite3.OperationalError(word)) for word in words]


def _fiftyone() -> Any:
    stand_in = SimpleNamespace(Sample=lambda **own: dict(own), Classification=lambda **own: own)
    records = (
        {"id": "a", "tag": None, "label": 0, "label_name": "x", "confidence": 0.5, "prediction_name": "y", "width": 3},
        {
            "id": "b",
            "tag": "drop",
            "filepath": "mine",
            "a b": 1,
            "9": 2,
            "none": None,
            "new_label_name": "z",
            "tags": 4,
        },
        {"id": "c", "tag": "", "label_name": None, "prediction_name": None, "metadata": 5, "_x": 6},
    )
    samples = [session._fiftyone_sample(stand_in, Path("/p.png"), record) for record in records]
    return [{key: str(value) for key, value in sample.items()} for sample in samples]
