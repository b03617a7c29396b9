"""The end of the river: what was measured on each model and stage becomes one evaluation and one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from confide import calibrators, evaluation, report, training
from confide.config import Choice, Config
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Scores
from confide.core.results import Evaluation
from confide.store import RunFolder, surroundings

PROMISE = "promise"
"""The part of val that nothing is fitted on, so that thresholds chosen on it can be promised."""

COMPARED = ("accuracy", "nll", "brier", "ece", "ece_mass", "aurc", "auroc")


@dataclass(frozen=True)
class Judged:
    """One model at one stage: its test predictions and what was measured on them."""

    predictions: Predictions
    evaluation: Evaluation


def calibrator_file(folder: RunFolder, choice: Choice, wanted: Choice) -> Path:
    """Where the calibrator of one model is kept."""
    return folder.path / "calibrators" / f"{choice.name}-{wanted.name}.json"


def judge(
    folder: RunFolder,
    plan: Config,
    choice: Choice,
    stage: str,
    spoken: Mapping[str, Predictions],
    scores: Scores,
    trusted: Mapping[str, Tensor],
) -> Judged:
    """Metrics with intervals of one model at one stage, by class and difficulty, and thresholds to promise."""

    def make() -> Evaluation:
        found = evaluation.evaluate(
            spoken["test"], plan.metrics, model=choice.name, stage=stage, scores=scores, trust=trusted, seed=plan.seed
        )
        if PROMISE not in spoken:
            return found
        points = []
        for risk in plan.risks:
            point = evaluation.operating_point(spoken[PROMISE], risk)
            seen = evaluation.observed(point, spoken["test"])
            there = {f"test_{k}": v for k, v in seen.items()}
            points.append({**point.to_dict(), "model": choice.name, "stage": stage, **there})
        return replace(found, operating_points=tuple(points))

    splits = [f"predict:{choice.name}:{split}" for split in spoken]
    fitted = [f"trust:{choice.name}:{name}" for name in trusted]
    if stage != "raw":
        fitted.append(f"calibrate:{choice.name}:{stage}")
    found = folder.stage(
        f"evaluate:{choice.name}:{stage}",
        uses={"metrics": plan.metrics, "seed": plan.seed, "risks": list(plan.risks)},
        after=("difficulty:test", *splits, *fitted),
        file=f"evaluations/{choice.name}-{stage}.json",
        make=make,
        write=Evaluation.save,
        read=Evaluation.load,
    )
    return Judged(spoken["test"], found)


def conclude(
    folder: RunFolder, plan: Config, dataset: Dataset, judged: Mapping[str, Judged], scores: Scores
) -> Evaluation:
    """All evaluations in one, with paired tests between models and stages, training curves and samples to look at."""

    def make() -> Evaluation:
        logs = [training.Trained.load(folder.path / "models" / choice.name) for choice in plan.losses]
        curves = tuple(c for log, choice in zip(logs, plan.losses, strict=True) for c in log.curves(choice.name))
        first = judged[f"{plan.losses[0].name}/raw"].predictions
        return evaluation.join(
            [*(one.evaluation for one in judged.values()), Evaluation((), curves)],
            comparisons=evaluation.compare(
                {name: one.predictions for name, one in judged.items()},
                metrics=COMPARED,
                pairs=pairs_of(list(judged)),
                seed=plan.seed,
            ),
            samples=(
                *evaluation.gallery(dataset.test, scores, dataset.class_names, predictions=first, each=plan.gallery),
                *evaluation.suspects(dataset.test, scores, dataset.class_names),
            ),
            about=about(folder, plan, dataset),
            warnings=[f"{name}: {note}" for name, fitted in calibrators_of(folder, plan) for note in fitted.notes],
        )

    return folder.stage(
        "conclude",
        uses={"title": plan.title, "gallery": plan.gallery, "seed": plan.seed},
        after=("data", *(f"evaluate:{name.replace('/', ':', 1)}" for name in judged)),
        file="evaluation.json",
        make=make,
        write=Evaluation.save,
        read=Evaluation.load,
    )


def pairs_of(names: list[str]) -> list[tuple[str, str]]:
    """What is worth a test: models at the same stage, and stages of the same model against raw."""
    split = {name: name.rsplit("/", 1) for name in names}
    return [
        (a, b)
        for a, b in combinations(names, 2)
        if split[a][1] == split[b][1] or (split[a][0] == split[b][0] and split[a][1] == "raw")
    ]


def calibrators_of(folder: RunFolder, plan: Config) -> list[tuple[str, calibrators.Calibrator]]:
    """The fitted calibrators by "model/stage"."""
    return [
        (f"{choice.name}/{wanted.name}", calibrators.load(calibrator_file(folder, choice, wanted)))
        for choice in plan.losses
        for wanted in plan.calibrators
    ]


def temperatures(fitted: calibrators.Calibrator) -> str:
    """The temperature of a calibrator, or from the lowest to the highest where it has several."""
    several = isinstance(fitted, calibrators.GroupCalibrator) and fitted.word == "temperature"
    if not several or not any(fitted.weights.values()):
        return f"T = {fitted.temperature:.2f}"
    overall = 1 / fitted.temperature
    # A group's logits are divided by a mean of the inverse temperatures: its own, and the overall one.
    found = [
        1 / (overall + fitted.weights[name] * (1 / own.temperature - overall)) for name, own in fitted.groups.items()
    ]
    return f"T = {min(found):.2f} to {max(found):.2f} by {fitted.by}"


def about(folder: RunFolder, plan: Config, dataset: Dataset) -> dict[str, Any]:
    """How it was made: what a report tells at its end."""
    counts = np.bincount(dataset.test.labels, minlength=dataset.num_classes)
    return {
        "title": plan.title or dataset.name,
        "unit": {"image": "images", "text": "texts"}.get(dataset.kind, "samples"),
        "class_names": list(dataset.class_names),
        "label_counts": dict(zip(dataset.class_names, counts.tolist(), strict=True)),
        "difficulty": plan.difficulty.word,
        "stages": {
            name: temperatures(fitted)
            for name, fitted in calibrators_of(folder, plan)
            if "temperature" in fitted.values
        },
        "data": {"name": dataset.name, **dataset.provenance},
        "config": plan.as_dict(),
        "seed": plan.seed,
        "timings": {name: stage["seconds"] for name, stage in folder.stages.items()},
        "commands": [f"confide run {folder.path / 'config.yaml'} --out {folder.path}"],
        **surroundings(),
    }


def draw(folder: RunFolder, verdict: Evaluation) -> Path:
    """The report."""

    def write(record: Evaluation, path: Path) -> None:
        report.write_report(record, path)

    folder.stage(
        "report",
        uses={},
        after=("conclude",),
        file="report.html",
        make=lambda: verdict,
        write=write,
        read=lambda path: verdict,
    )
    return folder.path / "report.html"
