"""The whole story on one page: from data to report.

Every stage writes its record to the run folder. A second call skips what is done, a killed run goes on where it was,
and changing one option makes again only what depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from confide import calibrators, data, difficulty, evaluation, features, metrics, report, training, trust
from confide.calibrators import DIFFICULTY
from confide.config import Config, MethodChoice, load_config
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Dataset, Features, Scores
from confide.results import About, Evaluation, ModelPoint
from confide.store import DataNote, RunFolder, environment

# The end of the river: what was measured on each model and stage becomes one evaluation and one report.

THRESHOLD_SPLIT = "promise"
"""The part of val that nothing is fitted on, so that thresholds chosen on it can be promised."""

GROUP_FILES = {"bands": "groups", "label_bands": "label_groups"}


@dataclass(frozen=True)
class EvaluatedStage:
    """One model at one stage: its test predictions and what was measured on them."""

    predictions: Predictions
    evaluation: Evaluation


def evaluate_stage(
    folder: RunFolder,
    plan: Config,
    choice: MethodChoice,
    stage: str,
    spoken: Mapping[str, Predictions],
    scores: Scores,
    trusted: Mapping[str, Tensor],
) -> EvaluatedStage:
    """Metrics with intervals of one model at one stage, by class and difficulty, and thresholds to promise."""

    def make() -> Evaluation:
        found = evaluation.evaluate(
            spoken["test"], plan.metrics, model=choice.name, stage=stage, scores=scores, trust=trusted, seed=plan.seed
        )
        if THRESHOLD_SPLIT not in spoken:
            return found
        points = []
        for risk in plan.risks:
            point = evaluation.operating_point(spoken[THRESHOLD_SPLIT], risk)
            points.append(ModelPoint(point, choice.name, stage, evaluation.observed(point, spoken["test"])))
        return replace(found, operating_points=tuple(points))

    splits = [f"predict:{choice.name}:{split}" for split in spoken]
    fitted = [f"trust:{choice.name}:{name}" for name in trusted]
    if stage != "raw":
        fitted.append(f"calibrate:{choice.name}:{stage}")
    found = folder.stage(
        f"evaluate:{choice.name}:{stage}",
        uses={"metrics": plan.metrics, "seed": plan.seed, "risks": list(plan.risks)},
        after=("difficulty:test", *splits, *fitted),
        file=folder.paths.model_evaluation(choice.name, stage),
        make=make,
        write=Evaluation.save,
        read=Evaluation.load,
    )
    return EvaluatedStage(spoken["test"], found)


def conclude(
    folder: RunFolder, plan: Config, dataset: Dataset, judged: Mapping[str, EvaluatedStage], scores: Scores
) -> Evaluation:
    """All evaluations in one, with paired tests between models and stages, training curves and samples to look at."""

    def make() -> Evaluation:
        logs = [training.Trained.load(folder.paths.model(choice.name)) for choice in plan.losses]
        curves = tuple(c for log, choice in zip(logs, plan.losses, strict=True) for c in log.curves(choice.name))
        first = judged[f"{plan.losses[0].name}/raw"].predictions
        return evaluation.join(
            [*(one.evaluation for one in judged.values()), Evaluation((), curves)],
            comparisons=evaluation.compare(
                {name: one.predictions for name, one in judged.items()},
                metrics=metrics.table_words("summary"),
                pairs=pairs_to_compare(list(judged)),
                seed=plan.seed,
            ),
            samples=(
                *evaluation.gallery(dataset.test, scores, dataset.class_names, predictions=first, each=plan.gallery),
                *evaluation.suspects(dataset.test, scores, dataset.class_names),
            ),
            about=describe_run(folder, plan, dataset),
            warnings=[f"{name}: {note}" for name, fitted in load_calibrators(folder, plan) for note in fitted.notes],
        )

    return folder.stage(
        "conclude",
        uses={"title": plan.title, "gallery": plan.gallery, "seed": plan.seed},
        after=("data", *(f"evaluate:{name.replace('/', ':', 1)}" for name in judged)),
        file=folder.paths.evaluation,
        make=make,
        write=Evaluation.save,
        read=Evaluation.load,
    )


def pairs_to_compare(names: list[str]) -> list[tuple[str, str]]:
    """What is worth a test: models at the same stage, and stages of the same model against raw."""
    split = {name: name.rsplit("/", 1) for name in names}
    return [
        (a, b)
        for a, b in combinations(names, 2)
        if split[a][1] == split[b][1] or (split[a][0] == split[b][0] and split[a][1] == "raw")
    ]


def load_calibrators(folder: RunFolder, plan: Config) -> list[tuple[str, calibrators.Calibrator]]:
    """The fitted calibrators by "model/stage"."""
    return [
        (f"{choice.name}/{wanted.name}", calibrators.load(folder.paths.calibrator(choice.name, wanted.name)))
        for choice in plan.losses
        for wanted in plan.calibrators
    ]


def temperature_text(fitted: calibrators.Calibrator) -> str:
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


def describe_run(folder: RunFolder, plan: Config, dataset: Dataset) -> About:
    """How it was made: what a report tells at its end."""
    counts = np.bincount(dataset.test.labels, minlength=dataset.num_classes)
    return About(
        title=plan.title or dataset.name,
        unit={"image": "images", "text": "texts"}.get(dataset.kind, "samples"),
        class_names=tuple(dataset.class_names),
        label_counts=dict(zip(dataset.class_names, counts.tolist(), strict=True)),
        difficulty=plan.difficulty.word,
        stages={
            name: temperature_text(fitted)
            for name, fitted in load_calibrators(folder, plan)
            if "temperature" in fitted.values
        },
        chosen_stage=plan.calibrators[0].name if plan.calibrators else None,
        data={"name": dataset.name, **dataset.provenance},
        config=plan.as_dict(),
        seed=plan.seed,
        timings={name: stage.seconds for name, stage in folder.stages.items()},
        commands=(f"confide run {folder.paths.config} --out {folder.path}",),
        **environment(),
    )


def write_run_report(folder: RunFolder, verdict: Evaluation) -> Path:
    """The report."""

    def write(record: Evaluation, path: Path) -> None:
        report.write_report(record, path)

    folder.stage(
        "report",
        uses={},
        after=("conclude",),
        file=folder.paths.report,
        make=lambda: verdict,
        write=write,
        read=lambda path: verdict,
    )
    return folder.paths.report


# The whole story on one page: the river from data to report.
#
# Every stage writes its record to the run folder. A second call skips what is done, a killed run goes on where it was,
# and changing one option makes again only what depends on it.


@dataclass(frozen=True)
class Outcome:
    """Where a run left its results: the folder, the evaluation, the report, and the stages made this time."""

    folder: Path
    evaluation: Evaluation
    report: Path
    made: tuple[str, ...]


def run(config: str | Path | Mapping[str, Any] | Config, out: str | Path | None = None, **changes: Any) -> Outcome:
    """Run an experiment from a config (file, recipe, mapping or Config), resumable in its run folder.

    Args:
        out: the run folder; `runs/<title>` when left out.
        changes: fields of the config to change.
    """
    plan = load_config(config, **changes)
    settings = {choice.name: settings_of(plan, choice) for choice in plan.losses}
    with RunFolder(out or Path("runs") / (plan.title or "run"), plan.as_dict(), plan.seed) as folder:
        dataset = open_data(folder, plan)
        rows = {split: extract(folder, plan, dataset, split) for split in dataset.splits}
        scores = {split: score(folder, plan, rows, split) for split in ("train", "test")}
        for kind in {training.group_scores_kind(one) for one in settings.values()} - {""}:
            scores[kind] = score_groups(kind, folder, plan, rows)
        hardness = score_unlabelled(folder, plan, rows) if any(map(uses_difficulty, plan.calibrators)) else None
        judged: dict[str, EvaluatedStage] = {}
        for choice in plan.losses:
            said = train(folder, choice, settings[choice.name], dataset, scores)
            trusted = fit_trust(folder, plan, choice, said, rows)
            for stage, spoken in calibrate(folder, plan, choice, said, hardness).items():
                believed = trusted if stage == "raw" else {}
                judged[f"{choice.name}/{stage}"] = evaluate_stage(
                    folder, plan, choice, stage, spoken, scores["test"], believed
                )
        verdict = conclude(folder, plan, dataset, judged, scores["test"])
        return Outcome(folder.path, verdict, write_run_report(folder, verdict), tuple(folder.made))


def settings_of(plan: Config, choice: MethodChoice) -> training.Settings:
    """Training settings of one loss; unknown options are refused here, before any work."""
    chosen = {"loss": choice.word, "loss_options": dict(choice.options), "seed": plan.seed}
    return training.Settings.from_dict({**plan.training, **chosen})


def open_data(folder: RunFolder, plan: Config) -> Dataset:
    """The dataset with a part of val set apart for promises, and a note of where it came from."""
    dataset = data.load_dataset(plan.data, seed=plan.seed, **plan.data_options)
    if plan.promise:
        parts = data.cut(dataset.val, {THRESHOLD_SPLIT: plan.promise}, plan.seed)
        dataset = replace(
            dataset, splits={**dataset.splits, "val": parts["train"], THRESHOLD_SPLIT: parts[THRESHOLD_SPLIT]}
        )
    note = DataNote.of(dataset)
    folder.stage(
        "data",
        uses={"data": plan.data, "options": dict(plan.data_options), "seed": plan.seed, "note": note.as_dict()},
        file=folder.paths.data,
        make=lambda: note,
        write=DataNote.save,
        read=DataNote.load,
    )
    formats.write_text(folder.paths.config, yaml.safe_dump(formats.plain(plan.as_dict()), sort_keys=False))
    return dataset


def extract(folder: RunFolder, plan: Config, dataset: Dataset, split: str) -> Features:
    """Features of one split."""
    word = features.usual(dataset) if plan.features.word == "auto" else plan.features.word
    return folder.stage(
        f"features:{split}",
        uses={"features": word, **plan.features.options},
        after=("data",),
        file=folder.paths.features(split),
        make=lambda: features.extract(word, dataset, split, **plan.features.options),
        write=Features.save,
        read=Features.load,
    )


def score(folder: RunFolder, plan: Config, rows: Mapping[str, Features], split: str) -> Scores:
    """Difficulty of one split, by a model fitted on the training split; on test also which labels look wrong."""

    def make() -> Scores:
        fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
        scores = fitted.score(rows[split])
        if split != "test":
            return scores
        return difficulty.with_verdicts(scores, difficulty.verdicts(rows[split], scores=scores))

    return folder.stage(
        f"difficulty:{split}",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=("features:train", f"features:{split}"),
        file=folder.paths.scores(split),
        make=make,
        write=Scores.save,
        read=Scores.load,
    )


def score_groups(kind: str, folder: RunFolder, plan: Config, rows: Mapping[str, Features]) -> Scores:
    """The scores that bands are made of."""
    return folder.stage(
        f"difficulty:{kind}",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=("features:train", "features:val"),
        file=folder.paths.scores(GROUP_FILES[kind]),
        make=lambda: training.group_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options),
        write=Scores.save,
        read=Scores.load,
    )


def uses_difficulty(wanted: MethodChoice) -> bool:
    """Whether a calibrator goes by the difficulty of a sample."""
    return wanted.options.get("by") == DIFFICULTY


def score_unlabelled(folder: RunFolder, plan: Config, rows: Mapping[str, Features]) -> Scores:
    """Difficulty to the likeliest class of every sample that is predicted: what calibrators may go by."""
    splits = [split for split in rows if split != "train"]

    def make() -> Scores:
        fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
        return Scores.joined([fitted.score(rows[split], "predicted") for split in splits])

    return folder.stage(
        "difficulty:unlabelled",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=tuple(f"features:{split}" for split in rows),
        file=folder.paths.scores("predicted_class"),
        make=make,
        write=Scores.save,
        read=Scores.load,
    )


def train(
    folder: RunFolder, choice: MethodChoice, settings: training.Settings, dataset: Dataset, scores: Mapping[str, Scores]
) -> dict[str, Predictions]:
    """What a model trained with one loss says on every split but its own."""
    home = folder.paths.model(choice.name)
    used = training.group_scores_kind(settings) or "train"
    history = training.SampleHistory(
        folder.paths.history(choice.name), dataset.split(settings.record).labels, settings.record
    )
    folder.stage(
        f"train:{choice.name}",
        uses=settings.as_dict(),
        after=("data", f"difficulty:{used}"),
        file=home / "model.safetensors",
        make=lambda: training.fit(
            dataset, settings, scores=scores[used], folder=home, recorder=history, if_other="restart"
        ),
        write=lambda trained, path: trained.save(path.parent),
        read=training.Trained.load,
        also=lambda: [home / "log.parquet", *history.finish(settings.epochs)],
    )

    def predict(split: str) -> Predictions:
        return folder.stage(
            f"predict:{choice.name}:{split}",
            uses={},
            after=(f"train:{choice.name}",),
            file=folder.paths.predictions(choice.name, split),
            make=lambda: training.predict(home, dataset, split),
            write=Predictions.save,
            read=Predictions.load,
        )

    return {split: predict(split) for split in dataset.splits if split != "train"}


def fit_trust(
    folder: RunFolder, plan: Config, choice: MethodChoice, said: Mapping[str, Predictions], rows: Mapping[str, Features]
) -> dict[str, Tensor]:
    """Trust in every test prediction, by each trust predictor fitted on val; kept for the explorer."""
    asked = said["test"]

    def fitted(wanted: MethodChoice) -> trust.Trust:
        return folder.stage(
            f"trust:{choice.name}:{wanted.name}",
            uses={"trust": wanted.word, **wanted.options},
            after=(f"predict:{choice.name}:val", "features:val"),
            file=folder.paths.trust(choice.name, wanted.name),
            make=lambda: trust.fit(wanted.word, said["val"], rows["val"], **wanted.options),
            write=lambda record, path: record.save(path),
            read=trust.load,
        )

    def valued(wanted: MethodChoice, predictor: trust.Trust) -> Tensor:
        return folder.stage(
            f"trusted:{choice.name}:{wanted.name}",
            uses={},
            after=(f"trust:{choice.name}:{wanted.name}", f"predict:{choice.name}:test", "features:test"),
            file=folder.paths.trust_values(choice.name, wanted.name, "test"),
            make=lambda: predictor(asked, rows["test"]),
            write=lambda values, path: formats.write_table(path, {"id": asked.ids, "trust": values.cpu().numpy()}),
            read=lambda path: torch.tensor(formats.read_table(path)[0]["trust"]),
        )

    return {wanted.name: valued(wanted, fitted(wanted)) for wanted in plan.trust}


def calibrate(
    folder: RunFolder, plan: Config, choice: MethodChoice, said: Mapping[str, Predictions], hardness: Scores | None
) -> dict[str, dict[str, Predictions]]:
    """Predictions by stage: raw, and after each calibrator fitted on val; `hardness` is what these may go by."""
    known = dict(said)
    if hardness is not None:
        known = {split: one.with_column(DIFFICULTY, hardness.of(one.ids)) for split, one in said.items()}

    def fitted(wanted: MethodChoice) -> calibrators.Calibrator:
        read = ("difficulty:unlabelled",) if uses_difficulty(wanted) else ()
        return folder.stage(
            f"calibrate:{choice.name}:{wanted.name}",
            uses={"calibrator": wanted.word, **wanted.options},
            after=(f"predict:{choice.name}:val", *read),
            file=folder.paths.calibrator(choice.name, wanted.name),
            make=lambda: calibrators.fit(wanted.word, known["val"], **wanted.options),
            write=lambda record, path: record.save(path),
            read=calibrators.load,
        )

    stages = {"raw": dict(said)}
    for wanted in plan.calibrators:
        calibrator = fitted(wanted)
        stages[wanted.name] = {split: calibrator(spoken) for split, spoken in known.items()}
    return stages
