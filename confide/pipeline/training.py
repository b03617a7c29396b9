"""Train a network; one training from data to a calibrated model, by a recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confide import training
from confide.checks import InputError
from confide.config import Config, MethodChoice, load_config
from confide.features.extraction import weights_digest
from confide.files import disk, formats
from confide.pipeline.calibration import fit_calibrator
from confide.pipeline.prediction import predict
from confide.pipeline.preparation import (
    PREDICTED_CLASS,
    extract,
    extractor_word,
    fit_difficulty,
    open_data,
    score_groups,
    score_predicted_class,
)
from confide.progress import Progress
from confide.records import Dataset, Features, Scores
from confide.scale import Job, run_jobs, train_workers
from confide.store import RunPaths
from confide.training.distributed import held, is_lead_process
from confide.training.jobs import TrainingJob, TrainingOutcome, train_networks
from confide.training.settings import suited_settings
from confide.types import JsonObject, Options


def loss_settings(config: Config, loss: MethodChoice) -> Options:
    """What a config says of training with one of its losses, as fields of `training.Settings`."""
    return {**config.training, "loss": loss.word, "loss_options": dict(loss.options)}


def settings_of(config: Config, loss: MethodChoice, seed: int | None = None) -> training.Settings:
    """Training settings of one loss of a config; unknown options are refused here, before any work.

    Args:
        config: of the experiment.
        loss: one of its losses.
        seed: of the training; the experiment's unless said.

    Returns:
        The settings, with the seed.

    Example:
        >>> from confide import pipeline
        >>> from confide.config import load_config
        >>> config = load_config("confide")
        >>> pipeline.settings_of(config, config.losses[0]).loss
        'cross_entropy'
    """
    return training.Settings.from_dict({**loss_settings(config, loss), "seed": config.seed if seed is None else seed})


def run_training(job: TrainingJob) -> TrainingOutcome:
    """Train as a job says; with a recipe, score what its loss and calibrator go by before, and calibrate after.

    Args:
        job: data, settings, folder and the rest of the training.

    Returns:
        The chosen epoch of every network, and the seconds spent.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from confide import pipeline, training
        >>> from confide.training.jobs import TrainingJob
        >>> np.savez("rows.npz", x=np.random.default_rng(0).normal(size=(60, 2)), y=np.arange(60) % 2)
        >>> settings = training.Settings(model="mlp", epochs=1, device="cpu")
        >>> outcome = pipeline.run_training(TrainingJob("rows.npz", settings, Path("run")))
        >>> len(outcome.members), (outcome.folder / "model.safetensors").exists()
        (1, True)
    """
    dataset = open_data(job.data, **job.data_options)
    job = replace(job, settings=suited_settings(job.settings, dataset.kind))
    scores = job.load_scores()
    with held(job.out):
        if is_lead_process():
            disk.remove_leftovers(RunPaths(job.out).folders())
        if job.recipe is None:
            return TrainingOutcome.of(job, train_networks(job, dataset, scores))
        return _train_by_recipe(job, load_config(job.recipe), dataset, scores)


def _train_by_recipe(job: TrainingJob, recipe: Config, dataset: Dataset, scores: Scores | None) -> TrainingOutcome:
    paths = RunPaths(job.out)
    scores = _recipe_scores(job, recipe, dataset, scores)
    trained = train_networks(job, dataset, scores)
    if is_lead_process() and "val" in dataset.splits:
        for choice in recipe.calibrators[:1]:
            known = paths.existing(paths.scores(PREDICTED_CLASS)) if choice.by_difficulty else None
            val = predict(trained, dataset, "val")
            rows = _recipe_rows(_recipe_features(job, recipe), dataset) if choice.looks_at_features else None
            calibrator = fit_calibrator(choice, val, None if known is None else Scores.load(known), rows)
            calibrator.save(paths.calibrator(recipe.losses[0].name, choice.name))
            calibrator.save(paths.first_calibrator)
    return TrainingOutcome.of(job, trained)


def try_training(job: TrainingJob) -> TrainingOutcome:
    """Train one cell of a grid; one that cannot be trained does not keep the others from it.

    Args:
        job: as in `run_training`.

    Returns:
        The outcome; its `error` says why nothing was trained.

    Example:
        >>> from pathlib import Path
        >>> from confide import pipeline, training
        >>> from confide.training.jobs import TrainingJob
        >>> pipeline.try_training(TrainingJob("nowhere.npz", training.Settings(), Path("run"))).error is None
        False
    """
    try:
        return run_training(job)
    except InputError as error:
        return TrainingOutcome(job.out, job.settings, error=str(error))


def run_trainings(jobs: Sequence[TrainingJob], *, engine: str = "local", workers: int = 1) -> list[TrainingOutcome]:
    """Train as several jobs say, side by side; or a single job over all the workers of a cluster.

    Args:
        jobs: as in `run_training`.
        engine: `local` processes, or a `ray` cluster.
        workers: trainings at a time; of a single job on a cluster, processes that train it together.

    Returns:
        An outcome for each job, in their order.

    Raises:
        InputError: several jobs or a cluster, in a process that `torchrun` started; or a single job that cannot be
            trained. Of several jobs the outcome's `error` says so.

    Example:
        >>> from pathlib import Path
        >>> from confide import pipeline, training
        >>> from confide.training.jobs import TrainingJob
        >>> jobs = [TrainingJob("nowhere.npz", training.Settings(), Path("runs") / name) for name in ("a", "b")]
        >>> [outcome.error is None for outcome in pipeline.run_trainings(jobs)]
        [False, False]
    """
    if len(jobs) == 1 and engine == "local":
        return [run_training(jobs[0])]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("a grid and --engine ray start processes of their own; start them without torchrun")
    if engine == "ray":
        jobs = [job.absolute() for job in jobs]
    if len(jobs) == 1:
        work = Job(jobs[0].out.name, lambda job: run_training(job).as_dict(), jobs[0])
        answer = train_workers(work, workers, storage=jobs[0].out / "ray")
        return [TrainingOutcome.from_dict(answer)]
    cells = [Job(job.out.name, try_training, job) for job in jobs]
    with Progress("grid", len(cells)) as progress:
        return run_jobs(cells, engine=engine, workers=workers, on_done=lambda job, _: progress.step(1, job.name))


def _recipe_scores(job: TrainingJob, recipe: Config, dataset: Dataset, scores: Scores | None) -> Scores | None:
    """What the loss reads: `scores`, or made by the recipe; what the calibrator goes by is made before training too."""
    paths = RunPaths(job.out)
    kind = training.group_scores_kind(job.settings) if scores is None else ""
    by_difficulty = "val" in dataset.splits and any(choice.by_difficulty for choice in recipe.calibrators[:1])
    needed = [paths.scores(name) for name in (kind, PREDICTED_CLASS if by_difficulty else "") if name]
    choice = _recipe_features(job, recipe)
    made_of = _what_scores_are_made_of(dataset, choice, recipe.difficulty)
    there = all(paths.existing(file).exists() for file in needed)
    if needed and not (there and _made_of(paths) == made_of):
        disk.remove(paths.scores_of)
        rows = _recipe_rows(choice, dataset)
        fitted = fit_difficulty(recipe.difficulty, rows["train"])
        if kind:
            score_groups(kind, fitted, rows).save(paths.scores(kind))
        if by_difficulty:
            fitted.save(paths.difficulty)
            score_predicted_class(fitted, rows).save(paths.scores(PREDICTED_CLASS))
        formats.write_json(paths.scores_of, made_of)
    return Scores.load(paths.existing(paths.scores(kind))) if kind else scores


def _recipe_features(job: TrainingJob, recipe: Config) -> MethodChoice:
    """The extractor of the job, or else of its recipe."""
    return MethodChoice(job.features) if job.features else recipe.features


def _recipe_rows(choice: MethodChoice, dataset: Dataset) -> dict[str, Features]:
    """Features of train and val."""
    return {split: extract(dataset, choice, split) for split in ("train", "val") if split in dataset.splits}


def _what_scores_are_made_of(dataset: Dataset, choice: MethodChoice, method: MethodChoice) -> JsonObject:
    """What decides the difficulty of a training's samples, as JSON holds it."""
    word = extractor_word(dataset, choice)
    made_of: JsonObject = formats.plain(
        {
            "samples": {name: part.fingerprint for name, part in dataset.splits.items() if name in ("train", "val")},
            "features": {"word": word, "weights": weights_digest(word), **choice.options},
            "difficulty": {"word": method.word, **method.options},
        }
    )
    return made_of


def _made_of(paths: RunPaths) -> Any:
    """What the scores that lie in a training folder were made of."""
    return formats.read_json(paths.scores_of) if paths.scores_of.exists() else None
