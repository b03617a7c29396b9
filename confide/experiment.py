"""The whole story on one page: from data to report.

Every stage of `confide.pipeline` writes its record to the run folder. A second call skips what is done, a killed run
goes on where it was, and changing one option makes again only what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from confide import calibrators, difficulty, pipeline, report, training, trust
from confide.checks import InputError, check_name
from confide.config import Config, MethodChoice, load_config
from confide.features.extraction import weights_digest
from confide.files import formats
from confide.pipeline import PREDICTED_CLASS, RAW, EvaluatedStage
from confide.predictions import Predictions
from confide.records import Dataset, Features, Scores
from confide.results import About, Evaluation
from confide.store import DataNote, RunFolder, environment, seed_name
from confide.training.settings import suited_settings
from confide.types import JsonObject, Options

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """Where a run left its results: the folder, the evaluation, the report, and the stages computed this time."""

    folder: Path
    evaluation: Evaluation
    report: Path
    computed: tuple[str, ...]

    def as_dict(self) -> JsonObject:
        """As JSON holds it."""
        return {"folder": self.folder, "report": self.report, "made": self.computed, **self.evaluation.to_dict()}


def run(config: str | Path | Options | Config, out: str | Path | None = None, **changes: Any) -> Outcome:
    """Run an experiment from data to report, resumable in its run folder.

    Args:
        config: a YAML file, a built-in recipe's name (demo, confide), a mapping or a Config.
        out: the run folder; `runs/<title>` when left out. A second call goes on there where the first was.
        changes: fields of the config to change; `**{"training.epochs": 3}` changes one inner field.

    Returns:
        The folder, the evaluation, the report, and the stages that were computed this time.

    Raises:
        InputError: where a word, option or value of the config is not known, before any work; or where another process
            writes the folder.

    Example:
        >>> import confide, numpy as np
        >>> draw, labels = np.random.default_rng(0), np.arange(120) % 2
        >>> np.savez("rows.npz", x=draw.normal(size=(120, 2)) + 2 * labels[:, None], y=labels)
        >>> config = {"data": "rows.npz", "features": "pixels", "training": {"model": "mlp", "epochs": 1},
        ...           "metrics": ["accuracy"], "promise": 0.0}
        >>> outcome = confide.run(config, "run")
        >>> outcome.report.name, len(confide.run(config, "run").computed)
        ('report.html', 0)
    """
    config = load_config(config, **changes)
    models = trained_models(config)
    settings = {model.name: pipeline.settings_of(config, model.loss, model.seed) for model in models}
    if out is None:
        out = Path("runs") / check_name(config.title or "run", "config field 'title', without a run folder,")
    with RunFolder(out, config.as_dict(), config.seed) as folder:
        dataset = open_data(folder, config)
        settings = {name: suited_settings(each, dataset.kind) for name, each in settings.items()}
        rows = {split: extract(folder, config, dataset, split) for split in dataset.splits}
        scores = score(folder, config, rows, settings)
        stages: list[EvaluatedStage] = []
        for model in models:
            predictions = train(folder, model.name, settings[model.name], dataset, scores)
            trust_values = fit_trust(folder, config, model.name, predictions, rows)
            for stage in calibrate(folder, config, model.name, predictions, rows, scores.get(PREDICTED_CLASS)):
                ranked_by = trust_values if stage.name == RAW else {}
                stages.append(evaluate(folder, config, model, stage, scores["test"], ranked_by))
        evaluation = conclude(folder, config, dataset, stages, scores["test"])
        return Outcome(folder.path, evaluation, write_report(folder, evaluation), tuple(folder.computed))


@dataclass(frozen=True)
class TrainedModel:
    """One network of an experiment: the name that its files carry, its loss and its seed."""

    name: str
    loss: MethodChoice
    seed: int
    seed_of: str | None = None  # the model's name in tables, where it is trained with several seeds


def trained_models(config: Config) -> list[TrainedModel]:
    """One network for each loss, or for each loss and seed; all see the same split of the data."""
    if not config.seeds:
        return [TrainedModel(loss.name, loss, config.seed) for loss in config.losses]
    return [
        TrainedModel(seed_name(loss.name, seed), loss, seed, loss.name)
        for loss in config.losses
        for seed in config.seeds
    ]


def open_data(folder: RunFolder, config: Config) -> Dataset:
    """The dataset with a part of val set apart for promises, and a note of where it came from."""
    dataset = pipeline.open_data(config.data, threshold_share=config.promise, seed=config.seed, **config.data_options)
    note = DataNote.of(dataset)
    folder.stage(
        "data",
        uses={"data": config.data, "options": dict(config.data_options), "seed": config.seed, "note": note.as_dict()},
        file=folder.paths.data,
        make=lambda: note,
        read=DataNote.load,
    )
    formats.write_text(folder.paths.config, yaml.safe_dump(formats.plain(config.as_dict()), sort_keys=False))
    return dataset


def extract(folder: RunFolder, config: Config, dataset: Dataset, split: str) -> Features:
    """Features of one split."""
    word = pipeline.extractor_word(dataset, config.features)
    # Under the word of the user's own model may stand other weights than before.
    weights = {"weights": digest} if (digest := weights_digest(word)) else {}
    return folder.stage(
        f"features:{split}",
        uses={"features": word, **config.features.options, **weights},
        after=("data",),
        file=folder.paths.features(split),
        make=lambda: pipeline.extract(dataset, config.features, split),
        read=Features.load,
    )


STAGE_OF_SCORES = {
    training.GROUPS: "difficulty:bands",
    training.LABEL_GROUPS: "difficulty:label_bands",
    PREDICTED_CLASS: "difficulty:unlabelled",
}
"""Stages whose scores span several splits, under the names that keys were made of from the first."""


def score(
    folder: RunFolder, config: Config, rows: Mapping[str, Features], settings: Mapping[str, training.Settings]
) -> dict[str, Scores]:
    """Difficulty of train and test, on test also which labels look wrong; and what losses and calibrators go by."""

    @cache
    def fitted() -> difficulty.FittedDifficulty:
        """Fitted once, when a stage first needs it, and kept for samples that come later."""
        model = pipeline.fit_difficulty(config.difficulty, rows["train"])
        with suppress(InputError):  # a method without a state to write is fitted where it is used
            model.save(folder.paths.difficulty)
        return model

    def group_scores(kind: str) -> Scores:
        return pipeline.score_groups(kind, fitted(), rows)

    def stage(name: str, splits: tuple[str, ...], make: Callable[[], Scores]) -> Scores:
        return folder.stage(
            STAGE_OF_SCORES.get(name, f"difficulty:{name}"),
            uses={"difficulty": config.difficulty.word, **config.difficulty.options},
            after=tuple(f"features:{split}" for split in splits),
            file=folder.paths.scores(name),
            make=make,
            read=Scores.load,
        )

    scores = {
        "train": stage("train", ("train", "train"), lambda: pipeline.score_split(fitted(), rows["train"])),
        "test": stage(
            "test", ("train", "test"), lambda: pipeline.score_split(fitted(), rows["test"], judge_labels=True)
        ),
    }
    for kind in sorted({training.group_scores_kind(each) for each in settings.values()} - {""}):
        scores[kind] = stage(kind, ("train", "val"), partial(group_scores, kind))
    if any(choice.by_difficulty for choice in config.calibrators):
        scores[PREDICTED_CLASS] = stage(
            PREDICTED_CLASS, tuple(rows), lambda: pipeline.score_predicted_class(fitted(), rows)
        )
    return scores


def train(
    folder: RunFolder, model: str, settings: training.Settings, dataset: Dataset, scores: Mapping[str, Scores]
) -> dict[str, Predictions]:
    """Predictions of a trained model, on every split but its own."""
    home = folder.paths.model(model)
    kind = training.group_scores_kind(settings)
    record = dataset.split(settings.record)
    history = training.SampleHistory(folder.paths.history(model), record.labels, settings.record)
    folder.stage(
        f"train:{model}",
        uses=settings.as_dict(),
        after=("data", STAGE_OF_SCORES.get(kind, "difficulty:train")),
        file=home / "model.safetensors",
        make=lambda: training.fit(
            dataset, settings, scores=scores[kind or "train"], folder=home, recorder=history, if_other="restart"
        ),
        write=lambda trained, path: trained.save(path.parent),
        read=training.Trained.load,
        also=lambda: [home / "log.parquet", *history.finish(settings.epochs)],
    )

    def predict(split: str) -> Predictions:
        return folder.stage(
            f"predict:{model}:{split}",
            after=(f"train:{model}",),
            file=folder.paths.predictions(model, split),
            make=lambda: pipeline.predict(home, dataset, split),
            read=Predictions.load,
        )

    return {split: predict(split) for split in dataset.splits if split != "train"}


def fit_trust(
    folder: RunFolder,
    config: Config,
    model: str,
    predictions: Mapping[str, Predictions],
    rows: Mapping[str, Features],
) -> dict[str, Tensor]:
    """Trust in every test prediction, by each trust predictor fitted on val; kept for the explorer."""
    test = predictions["test"]

    def fitted(choice: MethodChoice) -> trust.Trust:
        return folder.stage(
            f"trust:{model}:{choice.name}",
            uses={"trust": choice.word, **choice.options},
            after=(f"predict:{model}:val", "features:val"),
            file=folder.paths.trust(model, choice.name),
            make=lambda: pipeline.fit_trust(choice, predictions["val"], rows["val"]),
            read=trust.load,
        )

    def values_of(choice: MethodChoice, predictor: trust.Trust) -> Tensor:
        return folder.stage(
            f"trusted:{model}:{choice.name}",
            after=(f"trust:{model}:{choice.name}", f"predict:{model}:test", "features:test"),
            file=folder.paths.trust_values(model, choice.name, "test"),
            make=lambda: predictor(test, rows["test"]),
            write=lambda values, path: formats.write_table(path, {"id": test.ids, "trust": values.cpu().numpy()}),
            read=lambda path: torch.tensor(formats.read_table(path)[0]["trust"]),
        )

    return {choice.name: values_of(choice, fitted(choice)) for choice in config.trust}


@dataclass(frozen=True)
class Stage:
    """Predictions of a model by split, raw or after a calibrator."""

    name: str
    predictions: Mapping[str, Predictions]
    calibrator: calibrators.Calibrator | None = None


def calibrate(
    folder: RunFolder,
    config: Config,
    model: str,
    predictions: Mapping[str, Predictions],
    rows: Mapping[str, Features],
    scores: Scores | None,
) -> list[Stage]:
    """Predictions raw, and after each calibrator fitted on val; `scores` are what these may go by."""
    known = dict(predictions)
    if scores is not None:
        known = {split: pipeline.with_difficulty(part, scores) for split, part in predictions.items()}

    def fitted(choice: MethodChoice) -> calibrators.Calibrator:
        goes_by = [STAGE_OF_SCORES[PREDICTED_CLASS]] if choice.by_difficulty else []
        goes_by += ["features:train", "features:val"] if choice.looks_at_features else []
        return folder.stage(
            f"calibrate:{model}:{choice.name}",
            uses={"calibrator": choice.word, **choice.options},
            after=(f"predict:{model}:val", *goes_by),
            file=folder.paths.calibrator(model, choice.name),
            make=lambda: pipeline.fit_calibrator(choice, known["val"], rows=rows),
            read=calibrators.load,
        )

    stages = [Stage(RAW, dict(predictions))]
    for choice in config.calibrators:
        calibrator = fitted(choice)
        calibrated = {split: calibrator(part, rows[split]) for split, part in known.items()}
        stages.append(Stage(choice.name, calibrated, calibrator))
    return stages


def evaluate(
    folder: RunFolder,
    config: Config,
    model: TrainedModel,
    stage: Stage,
    scores: Scores,
    trust_values: dict[str, Tensor],
) -> EvaluatedStage:
    """Metrics with intervals of one model at one stage, by class and difficulty, and thresholds to promise."""
    after = ["difficulty:test", *(f"predict:{model.name}:{split}" for split in stage.predictions)]
    after += [f"trust:{model.name}:{name}" for name in trust_values]
    after += [f"calibrate:{model.name}:{stage.name}"] if stage.calibrator is not None else []
    evaluation = folder.stage(
        f"evaluate:{model.name}:{stage.name}",
        uses={"metrics": config.metrics, "seed": config.seed, "risks": list(config.risks)},
        after=after,
        file=folder.paths.model_evaluation(model.name, stage.name),
        make=lambda: pipeline.evaluate_model(
            stage.predictions,
            model=model.name,
            stage=stage.name,
            metrics=config.metrics,
            scores=scores,
            trust_values=trust_values,
            risks=config.risks,
            seed=config.seed,
        ),
        read=Evaluation.load,
    )
    return EvaluatedStage(
        model.name, stage.name, stage.predictions["test"], evaluation, stage.calibrator, model.seed_of
    )


def conclude(
    folder: RunFolder, config: Config, dataset: Dataset, stages: list[EvaluatedStage], scores: Scores
) -> Evaluation:
    """All evaluations in one, with paired tests, training curves and samples to look at."""

    def make() -> Evaluation:
        logs = {
            name: training.Trained.load(folder.paths.model(name)) for name in dict.fromkeys(s.model for s in stages)
        }
        return pipeline.conclude(
            stages,
            dataset,
            scores,
            curves=[curve for name, trained in logs.items() for curve in trained.curves(name)],
            gallery=config.gallery,
            seed=config.seed,
            about=About(
                title=config.title or None,
                difficulty=config.difficulty.word,
                chosen_stage=config.calibrators[0].name if config.calibrators else None,
                config=config.as_dict(),
                seed=config.seed,
                timings={name: record.seconds for name, record in folder.stages.items()},
                commands=(f"confide run {folder.paths.config} --out {folder.path}",),
                **vars(environment()),
            ),
        )

    return folder.stage(
        "conclude",
        uses={"title": config.title, "gallery": config.gallery, "seed": config.seed},
        after=("data", *(f"evaluate:{stage.model}:{stage.stage}" for stage in stages)),
        file=folder.paths.evaluation,
        make=make,
        read=Evaluation.load,
    )


def write_report(folder: RunFolder, evaluation: Evaluation) -> Path:
    """The report."""
    folder.stage(
        "report",
        after=("conclude",),
        file=folder.paths.report,
        make=lambda: evaluation,
        write=report.write_report,
        read=lambda path: evaluation,
    )
    return folder.paths.report
