"""Worked cases of trainings: what they choose, record, refuse and keep, and how they go on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import confide
from confide import training
from confide.training import Oracle, OracleSettings, SampleHistory, Settings
from confide.training.batch_norm import batch_norm
from confide.training.distributed import World
from confide.training.settings import PRESETS, cycled_momenta, learning_rates, override_settings, suited_settings
from tests.kept.entries import _or_line, _trained, training_entries as plain_entries
from tests.training.conftest import make_dataset


def training_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from plain_entries()
    cases: dict[str, dict[str, Any]] = {
        "chosen late": {"choose": "accuracy", "choose_after": 1, "epochs": 3},
        "chosen never": {"choose": "nll", "choose_after": 9},
        "best at first": {"choose": "brier", "epochs": 3, "learning_rate": 0.5},
        "dropout": {"model_options": {"dropout": 0.5, "hidden": [8, 8]}},
        "flipped": {"augment": "flip", "model": "small_cnn", "model_options": {"width": 4}, "mirror": True},
        "one batch": {"batch_size": 500},
        "last batch of one": {"batch_size": 19},
        "noise of all": {"label_noise": 1.0},
        "average of many": {"average": 3.0, "model": "small_cnn", "model_options": {"width": 4}},
    }
    for name, options in cases.items():
        yield name, partial(_noted, options)
    yield "schedules", _schedules
    yield "presets", _presets
    yield "recorded", _recorded
    yield "members", _members
    yield "passes", _passes
    yield "oracles", _oracles
    yield "gone on with", _gone_on_with
    yield "diverged", _diverged
    yield "batch norm", _batch_norms


def _in_folder(make: Callable[[], Any]) -> Any:
    before = os.getcwd()
    with TemporaryDirectory() as name:
        os.chdir(name)
        try:
            return make()
        finally:
            os.chdir(before)


def _noted(options: dict[str, Any]) -> Any:
    settings = Settings(**{"model": "mlp", "epochs": 2, "batch_size": 32, "device": "cpu", **options})
    dataset = make_dataset(96, size=8)
    own = training.fit(dataset, settings)
    log = {name: values for name, values in own.log.items() if "second" not in name}
    return {"log": log, "chosen": own.chosen_epoch, "notes": own.notes, **_trained(options)}


def _schedules() -> Any:
    told: dict[str, Any] = {}
    for schedule, options in (
        ("one_cycle", {"warmup": 0}), ("one_cycle", {"warmup": 0.5, "cycle_momentum": True}),
        ("one_cycle", {"warmup": 3, "cycle_momentum": True}), ("one_cycle", {"warmup": 1, "start": 0.5, "floor": 0.1}),
        ("one_cycle", {"warmup": 99, "cycle_momentum": True}), ("cosine", {"floor": 0.2, "warmup": 2}),
        ("cosine", {"warmup": 0}), ("constant", {"warmup": 2}), ("constant", {"warmup": 0.25}),
        ("step", {"milestones": [0, 2], "factor": 0.5, "warmup": 1}), ("step", {"milestones": [1, 1]}),
    ):  # fmt: skip
        for epochs, steps in ((1, 1), (1, 2), (3, 2), (4, 3)):
            own = Settings(schedule=schedule, schedule_options=options, epochs=epochs, device="cpu")
            momenta = cycled_momenta(own, steps)
            told[f"{schedule} {options} {epochs} {steps}"] = [
                str(np.round(learning_rates(own, steps), 6).tolist()),
                None if momenta is None else str(np.round(momenta, 6).tolist()),
            ]
    return told


def _presets() -> Any:
    told: dict[str, Any] = {}
    for name in PRESETS:
        for epochs in (2, 3, 100, 400):
            own = training.preset(name, epochs=epochs)
            told[f"{name} {epochs}"] = [own.choose_after, own.schedule, str(own.schedule_options), own.loss]
    changed = training.preset("paper-cifar", schedule="cosine", choose_after=1, augment="none")
    told["changed"] = str(changed.as_dict())
    told["unknown"] = [_or_line(lambda: training.preset("paper"))]
    base = {"mirror": True, "loss": "focal", "loss_options": {"gamma": 1}, "model": "mlp", "model_options": {"a": 1}}
    told["over"] = [
        override_settings(base, change)
        for change in ({}, {"augment": "crop"}, {"augment": "crop_flip"}, {"loss": "focal"}, {"model": "x"})
    ]
    told["suited"] = [
        [own.model, own.optimizer, own.learning_rate, own.weight_decay]
        for settings in (Settings(), Settings(learning_rate=0.5), Settings(model="mlp"))
        for own in (suited_settings(settings, kind) for kind in ("image", "text", "rows"))
    ]
    return told


def _settings(**changes: Any) -> Settings:
    return Settings(**{"model": "mlp", "epochs": 2, "batch_size": 32, "device": "cpu", **changes})


def _recorded() -> Any:
    def record(split: str, **changes: Any) -> Any:
        dataset = make_dataset(60, size=6)
        own = SampleHistory("history", np.asarray(dataset.split(split).labels), split)
        training.fit(dataset, _settings(record=split, **changes), recorder=own)
        first = confide.files.read_table(own.file(0))[0]
        longer = sorted(p.name for p in Path("history").iterdir())
        kept = [p.name for p in own.finish(1)]
        return [
            longer,
            kept,
            sorted(p.name for p in Path("history").iterdir()),
            first["probability"],
            first["prediction"],
        ]

    return {split: _in_folder(partial(record, split)) for split in ("train", "val", "test")}


def _members() -> Any:
    def fit() -> Any:
        dataset, rows = make_dataset(60, size=6), []
        members = training.fit_members(
            dataset, _settings(), members=2, folder="m", on_epoch=lambda k, row: rows.append([k, row["epoch"]])
        )
        together = training.predict_members(members, dataset)
        Path("m/member-10").mkdir()
        alone = training.predict_members("m", dataset)
        columns = {name: np.asarray(values) for name, values in together.columns.items()}
        return [
            rows,
            [own.settings.seed for own in members],
            together.logits,
            bool(torch.allclose(together.logits, alone.logits)),
            columns,
            [path.name for path in training.member_folders("m")],
            _or_line(lambda: training.fit_members(dataset, _settings(), members=0)),
            str(_or_line(lambda: training.fit_members(dataset, _settings(), members=2, stack=True)))[:60],
        ]

    return _in_folder(fit)


def _passes() -> Any:
    dataset = make_dataset(60, size=6)
    own = training.fit(dataset, _settings(model_options={"dropout": 0.5}))
    told: list[Any] = []
    for options in (
        {}, {"batch_size": 1}, {"passes": 1}, {"passes": 3}, {"passes": 3, "average": "probs"}, {"ood": True},
        {"passes": 2, "batch_size": 7},
    ):  # fmt: skip
        predictions = training.predict(own, dataset, **options)
        columns = {k: np.asarray(v) for k, v in predictions.columns.items() if np.asarray(v).dtype.kind in "fi"}
        told.append([predictions.logits, columns, predictions.labels[:5].tolist()])
    told += [
        _or_line(lambda: training.predict(own, dataset, passes=-1)),
        _or_line(lambda: training.predict(own, dataset, passes=1, average="odd")),
        _or_line(lambda: training.predict(own, dataset, batch_size=0)),
        _or_line(lambda: training.predict(own, dataset.split("test").take(np.arange(0)))),
        training.penultimate(own, dataset, batch_size=9).values,
    ]
    return dict(enumerate(told))


def _oracles() -> Any:
    dataset = make_dataset(60, size=6)
    own = training.fit(dataset, _settings(learning_rate=0.02, epochs=1))
    told: dict[str, Any] = {}
    for name, options in {
        "usual": {}, "balanced": {"loss": "class_balanced"}, "tcp": {"loss": "tcp", "target": "ratio"},
        "head": {"depth": "head", "hidden": (5,)}, "focal": {"loss": "binary_focal", "augment": "flip"},
        "trained": {"batch_norm": "trained", "backbone_rate": 0},
    }.items():  # fmt: skip
        settings = OracleSettings(**{"epochs": 2, "batch_size": 16, "device": "cpu", **options})
        oracle = _or_line(lambda settings=settings: training.fit_oracle(own, dataset, "train", settings=settings))
        if isinstance(oracle, str):
            told[name] = oracle
            continue
        with TemporaryDirectory() as folder:
            oracle.save(folder)
            again = Oracle.load(folder)
        z = oracle(dataset, "test", batch_size=7)
        told[name] = [oracle.log, z, bool(torch.allclose(z, again(dataset, "test"))), vars(oracle.about)]
    folds = training.cross_fit(dataset, _settings(epochs=1), folds=2)
    told["folds"] = [folds.logits, folds.labels[:6].tolist()]
    target = OracleSettings(epochs=1, device="cpu", loss="tcp")
    told["targets"] = _or_line(
        lambda: training.fit_oracle(own, dataset, "train", settings=target, targets=folds)(dataset, "test")
    )
    return told


def _gone_on_with() -> Any:
    class Stopped(Exception):
        pass

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 1:
            raise Stopped

    def run() -> Any:
        dataset, settings = make_dataset(60, size=6), _settings(epochs=3, choose="nll", average=0.5)
        whole = training.fit(dataset, settings, folder="whole", checkpoint_seconds=0)
        try:
            training.fit(dataset, settings, folder="parts", checkpoint_seconds=0, on_epoch=stop)
        except Stopped:
            stopped = sorted(p.name for p in Path("parts").iterdir())
        again = training.fit(dataset, settings, folder="parts", checkpoint_seconds=0)
        same = Path("whole/model.safetensors").read_bytes() == Path("parts/model.safetensors").read_bytes()
        other = settings.changed(epochs=2)
        return [
            same,
            stopped,
            sorted(p.name for p in Path("parts").iterdir()),
            again.chosen_epoch == whole.chosen_epoch,
            training.fit(dataset, settings, folder="parts").chosen_epoch,
            str(_or_line(lambda: training.fit(dataset, other, folder="parts"))),
            len(training.fit(dataset, other, folder="parts", if_other="restart").log["epoch"]),
            str(_or_line(lambda: training.fit(make_dataset(50, size=6), other, folder="parts")))[:80],
        ]

    return _in_folder(run)


def _diverged() -> Any:
    dataset = make_dataset(60, size=6)
    lines = [
        _or_line(lambda: training.fit(dataset, _settings(learning_rate=1e30))),
        _or_line(lambda: training.fit(dataset, _settings(learning_rate=1e18, epochs=3))),
        _or_line(lambda: training.fit(make_dataset(60, size=6, val=False), _settings(val_fraction=0, choose="nll"))),
        _or_line(lambda: training.fit(make_dataset(60, size=6, val=False), _settings(val_fraction=0, loss="adafocal"))),
        _or_line(lambda: training.fit(dataset, _settings(record="nothing"), recorder=SampleHistory("h", [], "x"))),
    ]
    return [line if isinstance(line, str) else "taken" for line in lines]


def _batch_norms() -> Any:
    draws = torch.Generator().manual_seed(0)
    told: list[Any] = []
    for shape in ((4, 3), (2, 3, 5), (2, 3, 2, 2), (1, 3), (1, 3, 2)):
        for training_mode in (True, False):
            for affine in (True, False):
                values = (torch.randn(shape, generator=draws) * 3 + 100).requires_grad_()
                weight = torch.tensor([1.0, -2.0, 0.5], requires_grad=True) if affine else None
                bias = torch.tensor([0.1, 0.2, 0.3], requires_grad=True) if affine else None
                ours, theirs = [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
                options = {"weight": weight, "bias": bias, "training": training_mode, "momentum": 0.3, "eps": 1e-3}
                try:
                    out = batch_norm(values, *ours, **options, world=World())
                except ValueError as error:
                    told.append(str(error))
                    continue
                expected = functional.batch_norm(values, *theirs, **options)
                inputs = [v for v in (values, weight, bias) if v is not None]
                both = [torch.autograd.grad((o * o.detach().cos()).sum(), inputs) for o in (out, expected)]
                far = [float((a - b).abs().max()) for a, b in zip((out, *both[0]), (expected, *both[1]), strict=True)]
                moved = [float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)]
                told.append([max(far) < 2e-3, max(moved) < 1e-4, ours[0].tolist(), ours[1].tolist()])
    half = batch_norm(torch.ones(4, 3, dtype=torch.bfloat16), None, None, training=True, world=World())
    return dict(enumerate([*told, str(half.dtype)]))
