"""Worked cases of settings, networks, watches and verbs exactly at their limits, where they refuse and where not."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import confide
from confide import monitor
from confide.models import preparation
from confide.models.device import Device, is_out_of_memory
from confide.predictions import Predictions
from confide.training import OracleSettings, Settings
from confide.training.oracle import BALANCED
from confide.training.steps import _reason_against
from tests.kept.entries import NAMES, C, N, _each, _network, _or_line, _shown, _split, features, labels, predictions
from tests.kept.files import _files
from tests.kept.sources import _datasets, _pictures


def limit_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from _cases("settings", _settings())
    yield from _cases("files", _files())
    yield from _cases("watch", _watches())
    yield from _cases("networks", _networks())
    yield from _cases("data", _datasets())
    yield from _cases("pictures", _pictures())
    yield from _cases("verbs", _verbs())
    yield from _cases("estimators", _estimators())


def _cases(topic: str, cases: Mapping[str, Callable[[], Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, make in cases.items():
        yield f"{topic}: {name}", partial(_told, make)


def _told(make: Callable[[], Any]) -> Any:
    """What comes of it in an empty folder, whose place is left out of what is said."""
    before = os.getcwd()
    with TemporaryDirectory() as name:
        os.chdir(name)
        try:
            return _without(_or_line(make), str(Path(name).resolve()), name)
        finally:
            os.chdir(before)


def _without(value: Any, *places: str) -> Any:
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, "FOLDER")
        return re.sub(r" from byte \d+| at 0x[0-9a-f]+", "", value)
    if isinstance(value, (list, tuple)) and len(value) > 12:  # of which else some would be kept
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        return {k: _without(v, *places) for k, v in value.items()}
    return [_without(v, *places) for v in value] if isinstance(value, (list, tuple)) else value


# Settings.


def _settings() -> dict[str, Callable[[], Any]]:
    def settings(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(lambda value: Settings(**{name: value}) and "taken", *values)

    def oracle(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(lambda value: OracleSettings(**{name: value}) and "taken", *values)

    tiny = sys.float_info.min
    return {
        "epochs": settings("epochs", 1, 0, True, 2.0, 10**9, 10**9 + 1, 10**12),
        "batch_size": settings("batch_size", 1, 0),
        "choose_after": settings("choose_after", 0, -1),
        "learning_rate": settings("learning_rate", 0, tiny, math.inf, math.nan, "x", True),
        "momentum": settings("momentum", 0, 1, 0.99, -tiny),
        "weight_decay": settings("weight_decay", 0, -tiny, math.inf),
        "label_noise": settings("label_noise", 0, 1, 1.01, -0.01),
        "average": settings("average", 0, math.inf),
        "val_fraction": settings("val_fraction", 0, 1, 0.99),
        "clip_norm": settings("clip_norm", None, 0, tiny, math.inf),
        "nesterov": lambda: _each(lambda m: Settings(nesterov=True, momentum=m) and "taken", 0, 0.5),
        "compile": lambda: _each(lambda d: Settings(compile=True, deterministic=d) and "taken", True, False),
        "milestones": lambda: _each(
            lambda m: Settings(schedule="step", schedule_options={"milestones": m}) and "taken",
            [], [0], [-1], "60", 3, [1, 2.5], (4,),
        ),
        "warmup": lambda: _each(
            lambda w: Settings(schedule="one_cycle", schedule_options={"warmup": w}) and "taken", 0, -1, "x", True
        ),
        "oracle beta": lambda: _each(
            lambda b: OracleSettings(loss=BALANCED, loss_options={"beta": b}) and "taken", 0, 1, 0.999, -0.001
        ),
        "oracle epochs": oracle("epochs", 1, 0),
        "oracle batch_size": oracle("batch_size", 1, 0),
        "oracle learning_rate": oracle("learning_rate", 0, tiny),
        "oracle backbone_rate": oracle("backbone_rate", 0, -tiny),
        "oracle words": lambda: [
            *_each(lambda d: OracleSettings(depth=d) and "taken", "head", "network", "x"),
            *_each(lambda d: OracleSettings(head=d) and "taken", "", "linear", "mlp", "x"),
        ],
        "model options": lambda: _each(
            lambda o: confide.models.create(o[0], o[1], 2, **o[2]),
            ("mlp", (3,), {"dropout": 1}), ("mlp", (3,), {"dropout": 1.1}), ("mlp", (3,), {"dropout": -0.1}),
            ("mlp", (3,), {"dropout": 0}), ("mlp", (3,), {"hidden": [1]}), ("mlp", (3,), {"hidden": [0]}),
            ("mlp", (3,), {"hidden": []}), ("mlp", (3,), {"hidden": "8"}), ("small_cnn", (1, 8, 8), {"width": 1}),
            ("small_cnn", (1, 8, 8), {"width": 0}), ("text_cnn", (9,), {"vocabulary": 2}),
            ("text_cnn", (9,), {"vocabulary": 1}), ("small_cnn", (3,), {}), ("mlp", (1, 2, 2), {}),
            ("text_cnn", (1, 8), {}),
        ),
        "classes of a model": lambda: _each(lambda n: confide.models.create("mlp", (3,), n), 1, 2),
        "holdout": _holdouts,
        "a graph": _graphs,
    }  # fmt: skip


def _holdouts() -> Any:
    from confide.integrations.sklearn import SelectiveClassifier

    def fitted(holdout: Any) -> Any:
        own = SelectiveClassifier(risk=0.3, holdout=holdout, random_state=0).fit(features("train"), labels("train"))
        return [own.operating_point_.threshold, own.operating_point_.n, own.predict(features("val"))[:9].tolist()]

    return _each(fitted, 0, 1, 0.5, 0.2)


def _graphs() -> Any:
    def run(**changes: Any) -> Any:
        usual = {"gpu": True, "graph": True, "size": 1, "resident": True, "momenta": None, "scaler": None, **changes}
        return SimpleNamespace(
            state=SimpleNamespace(device=SimpleNamespace(on_gpu=usual["gpu"]), scaler=usual["scaler"]),
            settings=SimpleNamespace(graph=usual["graph"]),
            world=SimpleNamespace(size=usual["size"]),
            feed=SimpleNamespace(resident=usual["resident"]),
            momenta=usual["momenta"],
        )

    cases: tuple[dict[str, Any], ...] = (
        {}, {"gpu": False}, {"graph": False}, {"size": 2}, {"resident": False}, {"momenta": [1.0]}, {"scaler": 1},
    )  # fmt: skip
    return [_reason_against(run(**case)) for case in cases]


# Watches.


def _watches() -> dict[str, Callable[[], Any]]:
    def watch(**options: Any) -> Any:
        return monitor.Monitor(predictions(), file="w.jsonl", **options)

    def started(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(
            lambda value: monitor.Monitor(predictions(), file=f"{value}.jsonl", **{name: value}) and "taken", *values
        )

    def batch(start: int = 1000, split: str = "test", **changes: Any) -> Predictions:
        logits = predictions(split).logits
        return Predictions(logits, ids=np.arange(start, start + len(logits)), class_names=NAMES, **changes)

    def labelled(labels: Any, ids: Any = (1000, 1001, 1002), weights: Any = None, **options: Any) -> Any:
        own = monitor.Monitor(predictions(), file=f"{abs(hash(str((labels, ids, weights))))}.jsonl", **options)
        own.update(batch())
        before = [str(alarm) for alarm in own.labels(ids, labels, weights)]
        return [before, own.batches[0].labelled, own.batches[0].right]

    def many() -> Any:
        own = watch(risk=0.1)
        for k in range(3):
            own.update(batch(1000 * (k + 1), "test" if k else "val"), name=None if k else "first")
        again = own.update(batch(1000, "val"))
        own.labels(range(2000, 2100), (labels("test")[:100] + 1) % C)
        own.labels([9000], [1])
        late = monitor.Monitor(file="w.jsonl")
        late.update(Predictions(predictions("val").logits[:1], ids=[9000]))
        reports = [[b.name, b.n, b.accepted, b.labelled, b.right, b.gap, b.seen, list(b.drifted)] for b in late.batches]
        return [reports, again.name, [str(a) for a in late.alarms], late.alarmed, monitor.page.headline(late)]

    def pairs() -> Any:
        sure = np.linspace(0.3, 1, 60)
        own = monitor.Monitor(Predictions.from_pairs([1, 0, 1, 1, 0, 1] * 10, sure), file="p.jsonl")
        own.update(Predictions.from_pairs([1, 0, 1, 1, 0, 1] * 10, sure, ids=np.arange(100, 160)))
        told = _each(lambda k: [str(a) for a in own.labels([500 + k], [k])], 0, 1, 2, -1)
        return [told, own.batches[0].labelled, own.batches[0].right]

    return {
        "delta": started("delta", 0, 1, 0.5, -0.1),
        "risk": started("risk", 0, 1, 0.5),
        "most_weight": started("most_weight", 0, 1e-9),
        "labels": lambda: _each(
            labelled, [0, 1, 2], ["ant", "bee", "cat"], [0, 1, 4], [0, 1, -1], [0, 1, 3], [0, 1, 1.5], ["0", "1", "x"],
            [0, 1], 5, [None, 1, 2],
        ),
        "weights": lambda: _each(
            lambda w: labelled([0, 1, 2], weights=w, most_weight=2.0),
            [1, 1, 2], [1, 1, 2.01], [0, 1, 1], [1, 1], [[1, 1, 1]], [0.5, 1e-9, 2],
        ),
        "the same twice": lambda: _each(
            lambda own: labelled(own, ids=(1000, 1000, 1001)), [1, 1, 0], [1, 2, 0]
        ),
        "many": many,
        "pairs": pairs,
        "another promise": lambda: [watch(risk=0.1) and "taken", _or_line(lambda: watch(risk=0.2)),
                                    _or_line(lambda: watch(risk=0.1)) and "taken"],
        "an id again": lambda: [
            watch().update(batch()).n,
            _or_line(lambda: watch().update(batch(split="val"))),
        ],
        "no file": lambda: _or_line(lambda: monitor.Monitor(file="none.jsonl")),
        "nobody yet": lambda: [watch().alarmed, monitor.page.headline(watch())],
        "damaged": _damaged_watches,
        "wealth": _wealth,
        "drift": _drifts,
    }  # fmt: skip


def _damaged_watches() -> Any:
    """A watch whose reference or batch was changed to what cannot be."""
    monitor.Monitor(predictions(), file="w.jsonl").update(
        Predictions(predictions("test").logits, ids=np.arange(1000, 1000 + N))
    )
    header, batch = (json.loads(line) for line in Path("w.jsonl").read_text().splitlines())
    own, said = header["reference"], batch["predictions"]

    def read(change: Any) -> Any:
        head, line = json.loads(json.dumps(header)), json.loads(json.dumps(batch))
        change(head["reference"], line["predictions"])
        Path("d.jsonl").write_text(json.dumps(head) + "\n" + json.dumps(line) + "\n")
        watch = monitor.Monitor(file="d.jsonl")
        return [watch.batches[0].n, watch.batches[0].accepted]

    def of(name: str, value: Any) -> Callable[[Any, Any], None]:
        return lambda reference, _: reference.update({name: value})

    def in_batch(name: str, value: Any) -> Callable[[Any, Any], None]:
        return lambda _, batch: batch.update({name: value})

    first = next(iter(own["quantiles"]))
    more = [1.0000005, *said["confidence"][1:]]
    return _each(
        read,
        lambda *_: None, of("n", 0), of("n", 1), of("accuracy", 0), of("accuracy", 1), of("accuracy", 1.01),
        of("threshold", -0.01), of("quantiles", {**own["quantiles"], first: []}), of("tolerance", own["tolerance"][1:]),
        of("tolerance", [*own["tolerance"], 0.1]), of("class_counts", [0, 0, 0, 0]), of("class_counts", [-1, 1, 1, 1]),
        of("class_counts", [0, 1, 1, 1]), of("class_counts", []), in_batch("confidence", more),
        in_batch("confidence", [1.000002, *more[1:]]), in_batch("confidence", [-0.0000005, *more[1:]]),
        in_batch("confidence", said["confidence"][1:]), in_batch("classes", said["classes"][1:]),
        in_batch("classes", [-1, *said["classes"][1:]]), in_batch("classes", [True, *said["classes"][1:]]),
        in_batch("ids", said["ids"][1:]), in_batch("accepted", said["accepted"][1:]),
    )  # fmt: skip


def _drifts() -> Any:
    """Distances from a reference: of classes that are new, alone or gone, and of numbers at their quantiles."""
    from confide.monitor import estimates

    classes = [estimates._class_drift(np.array(own), counts) for own, counts in (
        ((0, 1, 1), (5, 5)), ((0, 0), (5,)), ((0, 3), (5, 5)), ((0, 1, 2), (5, 5, 0, 7)), ((2,), (3, 3, 3)),
    )]  # fmt: skip
    known = tuple(np.linspace(0, 1, 11).tolist())
    numbers = [
        estimates._kolmogorov_smirnov("x", np.array(own), known, n)
        for own, n in (([0.5], 1), ([0.0, 1.0], 50), (list(known), 11), ([2.0] * 9, 100), ([-1.0] * 9, 100))
    ]
    rates = [[estimates._rate_error(*own), estimates._rate_logit(*own)] for own in ((0.0, 1), (1.0, 1), (0.5, 40))]
    counts = [estimates._entropy(np.array(own)) for own in ([1, 1], [5, 0], [1, 2, 3])]
    bounds = [vars(estimates._estimate("m", *own)) for own in ((0.5, 0.1), (0.99, 0.1), (0.01, 0.1))]
    return [[vars(d) for d in (*classes, *numbers)], rates, counts, bounds]


def _wealth() -> Any:
    """Wealth over blocks: one bet, the last of a block, the first of the next, and far beyond an alarm."""
    from confide.monitor.alarms import BLOCK, Wealth, calibration_bets, risk_bets

    told = []
    for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 2):
        for wrong in (0.0, 1.0):
            own = Wealth(1, 0.05)
            own.add(*risk_bets(np.full(n, wrong), 0.2, np.ones(n)))
            told.append([n, wrong, own.value, own.highest, own.alarm_at, own.alarmed, own.seen, len(own.history)])
    parts = Wealth(1, 0.05)
    for k in range(4):
        parts.add(*risk_bets(np.full(BLOCK // 2 + k, 1.0), 0.2, np.ones(BLOCK // 2 + k)))
    gains, lows = calibration_bets(
        np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.75, 0.8]), np.array([0.5, 0.75]), np.array([0.1, 0.2, 0.3, 0.05]),
        np.array([1.0, 0.5, 2.0]), 2.0,
    )  # fmt: skip
    return [told, parts.value, parts.alarm_at, gains.tolist(), lows.tolist()]


# Networks and what they are fed.


def _networks() -> dict[str, Callable[[], Any]]:
    return {
        "feeds": _feeds,
        "preparations": _preparations,
        "devices": _devices,
        "weights of others": _weights_of_others,
        "sizes": lambda: [
            confide.models.parameter_count(confide.models.create("densenet121", shape, 3, growth=2))
            for shape in ((3, 63, 64), (3, 64, 64), (1, 64, 63))
        ],
        "long texts": lambda: [_network("text_cnn", (n,), {"filters": 4})["outputs"] for n in (9, 19, 44, 45)],
        "batches": lambda: [
            [list(map(int, b)) for b in preparation.rows_in_batches(*n)] for n in ((5, 2), (4, 2), (0, 3))
        ],
    }  # fmt: skip


def _feeds() -> Any:
    """Batches as they come, whole in memory and read ahead, cut, flipped and mirrored."""
    pixels = np.random.default_rng(0).integers(0, 255, (9, 1, 5, 6)).astype(np.uint8)
    split, told = _split(pixels, 9), {}
    usual = preparation.Preparation("image", (1, 5, 6), (100.0,), (50.0,))
    batches = preparation.rows_in_batches(9, 2)
    for augment in ("none", "crop", "flip", "crop_flip"):
        if augment not in confide.training.settings.AUGMENTS:
            continue
        for budget in (0, 10**9):
            feed = preparation.Feed(split, usual, torch.device("cpu"), augment=augment, seed=3, memory_budget=budget)
            feed.start_epoch(2)
            rows = [(x.clone(), at) for x, at in feed.batches(batches)]
            told[f"{augment} {budget}"] = [
                feed.resident,
                feed.padding,
                torch.cat([x for x, _ in rows]).numpy(),
                torch.cat([at for _, at in rows]).tolist(),
            ]
    grown = preparation.Feed(split, usual, torch.device("cpu"), augment="crop_flip", memory_budget=9 * 13 * 14)
    small = preparation.Feed(split, usual, torch.device("cpu"), augment="crop_flip", memory_budget=9 * 13 * 14 - 1)
    empty = preparation.Feed(split.take(np.arange(0)), usual, torch.device("cpu"), memory_budget=0)
    return [told, grown.resident, small.resident, empty.resident, len(empty)]


def _preparations() -> Any:
    def dataset(inputs: Any, kind: str, n: int) -> Any:
        return confide.data.Dataset("made", kind, {"train": _split(inputs, n)}, ("a", "b", "c"))

    def shown(own: Any) -> Any:
        return [own.kind, list(own.shape), list(own.mean), list(own.std), list(own.words), own.tokenizer]

    texts = [f"word{k} the the, a" + " b" * (3 * k) for k in range(9)]
    texts_of = dataset(texts, "text", 9)
    pixels = np.random.default_rng(0).integers(0, 255, (9, 2, 3, 3)).astype(np.uint8)
    rows = np.random.default_rng(1).normal(size=(1203, 2)) * [1, 0] + [0, 4]
    told = [
        shown(preparation.fit_preparation(texts_of, texts_of.split("train"), model="text_cnn", vocabulary=6)),
        shown(preparation.fit_preparation(texts_of, texts_of.split("train"), model="hf:x")),
        *(
            shown(preparation.fit_preparation(own, own.split("train"), model=model))
            for own in (dataset(pixels, "image", 9), dataset(rows, "rows", 1203))
            for model in ("mlp", "features:x")
        ),
    ]
    usual = preparation.fit_preparation(texts_of, texts_of.split("train"), model="text_cnn", vocabulary=6)
    images = preparation.Preparation("image", (2, 3, 3), (0.0, 0.0), (1.0, 1.0))
    told += [
        usual.encode(["the word8 b b b", ""]).tolist(),
        preparation.Preparation.from_dict(json.loads(json.dumps(usual.as_dict()))) == usual,
        list(usual.blank(2).shape),
        str(usual.blank(2).dtype),
        str(images.blank(1).dtype),
        _or_line(lambda: usual.check(_split(pixels, 9), "it")),
        _or_line(lambda: usual.check(_split([], 0), "it")) or "taken",
        _or_line(lambda: images.check(_split(pixels, 9), "it")) or "taken",
        _or_line(lambda: images.check(_split(pixels[:, :1], 9), "it")),
        _or_line(lambda: preparation.fit_preparation(dataset(pixels, "image", 9), _split(pixels[:0], 0), model="x")),
        _or_line(lambda: shown(preparation.fit_preparation(
            dataset(np.array([[math.nan], [1.0]]), "rows", 2), _split(np.array([[math.nan], [1.0]]), 2), model="x"))),
        replace(usual, words=()).encode(["the"]).tolist(),
    ]  # fmt: skip
    return told


def _weights_of_others() -> Any:
    from confide.models.trained import build_model, load_weights

    rows = preparation.Preparation("rows", (3,), (0.0,) * 3, (1.0,) * 3)
    model = build_model("mlp", {"hidden": [2]}, rows, 2)
    own = dict(model.state_dict())
    first = next(iter(own))
    cases: tuple[Any, ...] = (own, {k: v for k, v in own.items() if k != first}, {**own, "more": own[first]},
                              {**own, first: own[first][:1]})  # fmt: skip
    texts = preparation.Preparation("text", (8,), words=("a", "b", "c"))
    read = build_model("text_cnn", {"filters": 2}, texts, 2)
    return [
        *_each(lambda weights: load_weights(model, weights), *cases),
        next(p.shape[0] for name, p in read.named_parameters() if "vectors" in name),
    ]


def _devices() -> Any:
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    told: list[Any] = _each(lambda word: str(Device.of(word).device), "cpu", "auto", "nowhere", "tpu:x")
    told += _each(lambda word: str(Device.of("cpu", word)), "auto", "float32", "bfloat16", "float16", "float8")
    told += [Device.for_prediction("cpu", word).precision for word in ("float16", "bfloat16", "float32", "auto")]
    for deterministic in (True, False):
        torch.manual_seed(7)
        with Device.of("cpu").seeded(3, deterministic):
            inside = torch.rand(1).item(), torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
        told += [*inside, torch.rand(1).item()]
    told.append((torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == before)
    told += [is_out_of_memory(RuntimeError(text)) for text in ("can't allocate memory: 1", "other")]
    for precision in ("float32", "bfloat16"):
        with Device.of("cpu", precision).autocast():
            told.append(str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype))
    return told


# Verbs of the command line, where what they call is not worked out or is not the same everywhere.


def _verbs() -> dict[str, Callable[[], Any]]:
    from confide.cli import doctor, main, result_tables
    from tests.kept.pages import _small

    def said(call: Callable[[], Any]) -> Any:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = call()
            except SystemExit as stop:
                status = stop.code
        return [status, out.getvalue().splitlines(), err.getvalue().splitlines()]

    def examined(core: dict[str, str | None], extras: dict[str, bool], json: bool = False) -> Any:
        report = {
            **{"confide": "1", "python": "3", "system": "S", "cores": 2, "accelerator": "none", "threads": 1},
            **{"neighbours": "own", "free_disk_gb": 7.6, "core": core},
            "extras": {name: {"installed": own, "brings": f"for {name}"} for name, own in extras.items()},
        }
        with patch.object(doctor, "examine", lambda: report):
            return said(lambda: doctor.run(SimpleNamespace(json=json)))

    def guarded(error: BaseException) -> Any:
        def run(_: Any) -> None:
            raise error

        try:
            return said(lambda: main.guarded(run, SimpleNamespace(quiet=True)))
        except RuntimeError as other:
            return f"raised: {other}"

    def explored(*words: str) -> Any:
        predictions().save("p.npz")

        def serve(layout: Any, say: Callable[[str], None], **options: Any) -> None:
            for line in ("reading", "explorer: http://here", "ready"):
                say(line)
            print(options)

        with patch.object(confide.explorer, "serve", serve):
            return said(lambda: main.main(["explore", "p.npz", *words]))

    def scored(*words: str) -> Any:
        asked: list[Any] = []

        def score_folder(job: Any) -> Any:
            asked.append({**vars(job), "source": str(job.source), "out": str(job.out)})
            raise confide.InputError("stopped here")

        np.savez("i.npz", images=np.zeros((4, 2, 2), np.uint8), labels=[0, 1, 0, 1])
        with patch("confide.scale.score_folder", score_folder):
            told = said(lambda: main.main(["score", "i.npz", "--engine", "ray", *words]))
        return [told, [str(own) for own in asked]]

    return {
        "doctor": lambda: [
            examined({"torch": "2"}, {"vision": True, "text": False}),
            examined({"torch": "2"}, {"vision": True}),
            examined({"torch": None, "numpy": "1", "scipy": None}, {"a": True, "longer": False}),
            examined({}, {}),
            examined({"torch": None}, {}, json=True),
        ],
        "guarded": lambda: _each(
            guarded, MemoryError("first\nsecond"), MemoryError(), RuntimeError("can't allocate memory"),
            RuntimeError("other"), OSError(28, "No space", "file"), OSError("plain"), confide.InputError("bad"),
            confide.checks.MissingExtra("a", "b", "c"),
        ),
        "no verb": lambda: [said(lambda: main.main([]))[0], said(lambda: main.main(["-x"]))[0],
                            said(lambda: main.main(["evalate"]))[2][-1:], said(lambda: main.main(["zzz"]))[0]],
        "explore": lambda: _each(
            lambda words: explored(*words.split()),
            "", "--json", "--quiet", "--no-token --port 0 --browser", "--top 3", "--export x.csv",
            "--export x.csv --top 3", "--export x.csv --top 0", "--export x.csv --top 1 --json", "--export x.txt",
            "--export x.parquet --top 2 --sort -confidence", "--export x.csv --sort nothing --top 2",
        ),
        "score on ray": lambda: _each(
            lambda words: scored(*words.split()),
            "-o s.parquet --features pixels", "-o s.parquet --features pixels --workers 0 --method prototype",
            "-o s.parquet --features pixels --workers 3 --batch-size 7 --method rmd --method rmd", "-o s.parquet",
        ),
        "run table": lambda: result_tables.run_table(_small()).splitlines(),
        "run table of odd rows": lambda: result_tables.run_table(
            replace(_small(), measurements=tuple(replace(m, p_value=0.05, bounds=None) for m in _small().measurements))
        ).splitlines(),
        "all fail": lambda: said(lambda: _trained_nothing(main.main)),
    }  # fmt: skip


def _trained_nothing(main: Callable[[list[str]], int]) -> int:
    """Trainings that fail, all and one of two; which does not matter here."""
    from confide.cli import train

    outcome = SimpleNamespace(error="no loss", folder="t/a")
    with patch.object(train, "_run_jobs", lambda *_: [outcome, outcome]):
        return main(["train", "none.npz", "--out", "t"])


# Classifiers of scikit-learn, and what other trainers log.


def _estimators() -> dict[str, Callable[[], Any]]:
    from sklearn.linear_model import LogisticRegression, Perceptron
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    from confide.integrations import sklearn as wrapped, torchmetrics
    from confide.integrations.epoch_log import logged_metrics

    x, y = features("train"), np.array(NAMES)[labels("train")]
    test = features("test")

    def lines(call: Callable[[], Any]) -> Any:
        try:
            return _shown(call())
        except (ValueError, AttributeError) as error:
            return str(error)[:160]

    def calibrated(estimator: Any = None, given: Any = y, **options: Any) -> Any:
        weights = options.pop("weights", None)
        own = wrapped.ConfideClassifier(estimator, **{"cv": 3, **options}).fit(x, given, weights)
        tags = own.__sklearn_tags__().input_tags
        return [own.predict_proba(test).round(2), own.predict(test)[:5].tolist(), list(map(str, own.classes_)),
                [tags.sparse, tags.pairwise, tags.allow_nan], getattr(own, "n_features_in_", None)]  # fmt: skip

    def fitted(kind: Any, given: Any = y, **options: Any) -> Any:
        own = kind(**{"random_state": 0, **options}).fit(x, given)
        # How many classes stay in a set: which ones at its edge hangs on the last digits of the foreign fit.
        told = round(float(own.predict_set(test).mean()), 1) if kind is wrapped.SetClassifier else own.accept(test)
        return [told, [str(v) for v in own.predict(test)[:12]], own.predict_proba(test).round(2)]

    def transformed(inputs: str, given: Any, targets: Any) -> Any:
        own = wrapped.CalibratorTransformer("temperature", inputs).fit(given, targets)
        return [own.transform(given).round(3), own.predict(given)[:6].tolist(), own.get_feature_names_out().tolist()]

    probs = predictions().probabilities().double().numpy()
    numbers, rare = labels("train"), np.where(np.arange(N) < 2, "eel", y)
    before = LogisticRegression().fit(x, y)
    binary = (labels("train") > 0).astype(int)
    odd = np.where(labels("val") == 3, 2, labels("val"))
    return {
        "calibrated": lambda: [
            lines(lambda o=o: calibrated(**o))
            for o in ({}, {"estimator": LinearSVC(random_state=0)},
                      {"estimator": DecisionTreeClassifier(random_state=0)},
                      {"estimator": before, "cv": "prefit"}, {"given": numbers}, {"calibrator": "vector"},
                      {"given": binary}, {"given": rare, "cv": 5},
                      {"given": rare, "cv": 2}, {"given": np.zeros(N, int)}, {"weights": np.ones(N)})
        ],
        "weights": lambda: [
            lines(lambda w=w, e=e: calibrated(e, given=binary, weights=w))
            for e, w in ((None, binary * 1.0), (None, np.linspace(0, 1, N)), (Perceptron(), np.ones(N)),
                         (_Plain(), np.ones(N)))
        ],
        "selective": lambda: [
            lines(lambda o=o: fitted(wrapped.SelectiveClassifier, **{"risk": 0.3, **o}))
            for o in ({}, {"given": numbers}, {"given": numbers, "abstain": 9}, {"risk": 0.001}, {"holdout": 0.9},
                      {"estimator": before, "holdout": "prefit"},
                      {"estimator": before, "holdout": "prefit", "given": rare},
                      {"given": np.where(np.arange(N) == 0, "eel", y)}, {"ranked_by": "entropy"})
        ],
        "sets": lambda: [
            lines(lambda o=o: fitted(wrapped.SetClassifier, **o)) for o in ({}, {"coverage": 0.6, "method": "aps"})
        ],
        "transformed": lambda: [
            lines(lambda o=o: transformed(*o))
            for o in (("probs", probs, labels("val")), ("logits", np.log(probs + 1e-9), labels("val")),
                      ("probs", probs, np.array(NAMES)[labels("val")]), ("probs", probs, odd), ("odd", probs, odd),
                      ("probs", probs, np.array(NAMES)[odd]), ("probs", probs * 2, odd), ("probs", probs, odd - 1),
                      ("probs", probs, odd + 1), ("probs", probs, odd * 10))
        ],
        "logged": lambda: [
            logged_metrics(np.log(probs[:, None] + 1e-9), np.where(np.arange(N) < 3, -100, labels("val"))[:, None]),
            logged_metrics(np.log(probs + 1e-9), labels("val"), ["accuracy", "ece", "brier"]),
        ],
        "batched": lambda: [_batched(torchmetrics, word, probs) for word in ("ece", "accuracy", "auroc", "nll")],
        "names": lambda: [
            torchmetrics.class_name("classwise_ece"), len(dir(torchmetrics)), dir(torchmetrics)[:6],
            lines(lambda: torchmetrics.ECEE), lines(lambda: torchmetrics._ece), torchmetrics.ece.__name__,
        ],
    }  # fmt: skip


class _Plain:
    """A classifier that takes no weights."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def fit(self, x: Any, y: Any) -> _Plain:
        self.classes_ = np.unique(y)
        return self


def _batched(torchmetrics: Any, word: str, probs: Any) -> Any:
    metric = torchmetrics.metric_class(word)
    told: list[Any] = [metric.higher_is_better, metric.plot_lower_bound, metric.plot_upper_bound, metric.__name__]
    for outputs, options in ((probs, {"from_probs": True}), (np.log(probs + 1e-9), {}), (probs[:, 1] * 4 - 2, {})):
        truth = torch.as_tensor(labels("val") if outputs.ndim == 2 else (labels("val") == 1).astype(int))
        own = metric(**options)
        for part in np.array_split(np.arange(N), 3):
            own.update(torch.as_tensor(outputs[part]), truth[part])
        told.append(float(own.compute()))
    return told
