"""A table or figure of a paper: what it reports, what is run here at each of three scales, and what comes of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.lib.claims import Claim, Verdict, verdicts
from benchmarks.lib.grid import Cell, Setting, lite_cells, method_named
from benchmarks.lib.results import Results
from benchmarks.lib.values import Summary, Value, summaries

SCALES = ("smoke", "lite", "paper")
SMOKE = Setting(
    "fashion-sample",
    "small_cnn",
    {"epochs": 3, "batch_size": 64, "learning_rate": 0.05, "augment": "none"},
    seeds=2,
    options={"selective_au": {"coverage": 0.5}},
)
SMOKE_SAMPLES = 300
"""Samples of every split at `smoke` scale: shows that everything runs, not what it is worth."""

NAMES = {"cifar10": "CIFAR-10", "tiny32": "Tiny-ImageNet-32", "fashion-sample": "Fashion-MNIST sample"}
LITE = ("cifar10", "tiny32")
CHANCE = {"cifar10": 1 / 10, "tiny32": 1 / 200, "fashion-sample": 1 / 10, "cifar100": 1 / 100, "tiny-imagenet": 1 / 200}
LEARNT = 2.0
"""Times chance: a network whose validation accuracy is below has not learnt."""


@dataclass(frozen=True)
class Reported:
    """One number of the paper, in the words of the tables here."""

    dataset: str
    method: str
    quantity: str
    value: float


@dataclass(frozen=True)
class Study:
    """What an item computes its values from; `paper` are the paper's settings as they are run, with `limit` samples."""

    results: Results
    scale: str
    datasets: tuple[str, ...]
    folder: Path
    data: Mapping[str, str] = field(default_factory=dict)
    paper: tuple[Setting, ...] = ()
    limit: int = 0


@dataclass(frozen=True)
class Outcome:
    """What an item gave: every number, the verdicts, and the cells that are not there."""

    rows: tuple[Summary, ...]
    verdicts: tuple[Verdict, ...]
    missing: tuple[str, ...]
    about: Mapping[tuple[str, str], Mapping[str, Any]]
    rescued: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Args:
        setting: of the paper, in words.
        here: what is run at `lite` scale and where it differs.
        values: the numbers of a study.
        methods: of the grid, by name; none where `values` needs no cells.
        models: networks at `lite` scale, where they differ from the grid's own.
        paper: the paper's own settings.
        origin: where numbers come from that no cell holds: commit, hardware, seconds.
        staged: two rows per method, before and after its calibrator, a table per dataset.
        words: other words for the verdicts, where the claims are targets of this library.
        axes: what lies along the axis of a figure, by quantity or method, "" for all others.
        across: the values tell networks apart themselves; else those of a paper's networks are found one by one.
        smoke: methods at `smoke` scale, where fewer will do; `smoke_models` likewise.
    """

    name: str
    title: str
    source: str
    setting: str
    here: str
    values: Callable[[Study], list[Value]]
    methods: tuple[str, ...] = ()
    models: tuple[str, ...] = ("resnet18",)
    datasets: tuple[str, ...] = LITE
    reported: tuple[Reported, ...] = ()
    claims: tuple[Claim, ...] = ()
    baseline: str = "cross_entropy"
    paper: tuple[Setting, ...] = ()
    smoke: tuple[str, ...] = ()
    smoke_models: tuple[str, ...] = ("small_cnn",)
    origin: Callable[[Study], list[Mapping[str, Any]]] | None = None
    across: bool = False
    staged: bool = False
    words: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)

    def axis_of(self, quantity: str, method: str) -> str:
        """What lies along the axis of a curve."""
        return self.axes.get(method) or self.axes.get(quantity) or self.axes.get("", "x")

    def cells(self, scale: str) -> list[Cell]:
        """The cells this item needs at a scale."""
        if scale == "lite":
            cells = lite_cells(self.datasets, methods=self.methods)
            return [cell for cell in cells if cell.model in self.models]
        settings = tuple(replace(SMOKE, model=model) for model in self.smoke_models) if scale == "smoke" else self.paper
        names = (self.smoke or self.methods) if scale == "smoke" else self.methods
        rows = [method_named(name) for name in names]
        return [cell for setting in settings for cell in setting.cells(rows, range(setting.seeds))]

    def outcome(self, study: Study) -> Outcome:
        """Numbers and verdicts."""
        if study.scale != "paper":
            study.results.check_alike()
        values = self._values(study)
        rows = summaries(values, self.baseline)
        missing = [cell.name for cell in self.cells(study.scale) if cell.name not in study.results.cells]
        own = [cell.name for cell in self.cells(study.scale) if cell.name in study.results.cells]
        every = [study.results.cells[name][1] for name in own] + ([] if self.origin is None else self.origin(study))
        pairs = dict.fromkeys((row.dataset, row.method) for row in rows)
        # A row that is no cell's, such as a mean of several, comes from all of the item's cells.
        about = {pair: _about(list(study.results.of(*pair).values()) or every) for pair in pairs}
        judged = tuple(verdicts(self.claims, without_failed(values, study.results), NAMES))
        judged = tuple(replace(verdict, verdict=self.words.get(verdict.verdict, verdict.verdict)) for verdict in judged)
        if study.scale == "smoke":
            judged = tuple(
                Verdict(verdict.claim, "not testable here", "smoke scale shows that it runs") for verdict in judged
            )
        rescued = tuple(str(result["name"]) for result in every if result.get("rescued"))
        return Outcome(tuple(rows), judged, tuple(missing), about, rescued)

    def _values(self, study: Study) -> list[Value]:
        networks = tuple(dict.fromkeys(cell.model for cell in self.cells(study.scale)))
        if study.scale != "paper" or self.across or len(networks) < 2:
            return self.values(study)
        values = []
        for name in networks:
            own = replace(study, results=replace(study.results, models=(name,)))
            values += [replace(value, dataset=f"{value.dataset}, {name}") for value in self.values(own)]
        return values


def without_failed(values: Sequence[Value], results: Results) -> list[Value]:
    """The values with those of networks that did not learn made NaN: low confidence at chance is no calibration."""
    failed = {
        (cell["dataset"], cell["model"], cell["method"]["name"], int(cell["seed"]))
        for cell, accuracy in (
            (result["cell"], result["validation"]["raw"]["accuracy"]) for _, result in results.cells.values()
        )
        if accuracy < LEARNT * CHANCE.get(cell["dataset"], 0.0)
    }
    known = {model for _, model, _, _ in failed}

    def learnt(value: Value) -> bool:
        # A row of one network among several names it: "cifar10, resnet34".
        dataset, *rest = re.split(" / |, ", value.dataset)
        networks = known.intersection(rest) or (known.intersection(results.models) if results.models else known)
        return not any((dataset, model, value.method, value.seed) in failed for model in networks)

    return [value if learnt(value) else replace(value, value=math.nan) for value in values]


def reported(dataset: str, quantities: str, rows: Mapping[str, Iterable[float | None]]) -> tuple[Reported, ...]:
    """Rows of a paper's table: for every method its values, in the order of the quantities."""
    words = [word.strip() for word in quantities.split(";")]
    return tuple(
        Reported(dataset, name, word, float(value))
        for name, values in rows.items()
        for word, value in zip(words, values, strict=True)
        if value is not None
    )


def _about(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Time, hardware and commit of the cells behind a row."""
    if not results:
        return {"seconds": float("nan"), "hardware": "", "commit": "", "schedule": ""}
    return {
        "seconds": sum(sum(result["seconds"].values()) for result in results) / len(results),
        "hardware": ", ".join(dict.fromkeys(str(result["hardware"]) for result in results)),
        "commit": ", ".join(dict.fromkeys(str(result["commit"])[:12] for result in results)),
        "schedule": ", ".join(dict.fromkeys(_schedule(result) for result in results)),
    }


def _schedule(result: Mapping[str, Any]) -> str:
    settings = result.get("settings", {})
    names = {"epochs": "epochs", "batch_size": "batch", "learning_rate": "learning rate"}
    return " ".join(f"{word} {settings[name]}" for name, word in names.items() if name in settings)
