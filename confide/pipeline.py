"""One training from data to a calibrated model: `run_training` does what a `TrainingJob` says, with a recipe too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confide import calibrators, difficulty, features
from confide.checks import InputError
from confide.config import Config, load_config
from confide.data import load_dataset
from confide.records import Dataset, Features, Scores
from confide.training import Trained, group_scores, group_scores_kind, predict, predict_members
from confide.training.distributed import is_lead_process
from confide.training.jobs import TrainingJob, TrainingOutcome, train_networks

FITTED_DIFFICULTY = "difficulty.safetensors"
"""A fitted difficulty beside a calibrator that goes by it."""
BAND_SCORES, VAL_DIFFICULTY = "difficulty.parquet", "hardness.parquet"
"""Files in the run's folder: scores that make the loss's groups; the difficulty of val that the calibrator reads."""


def run_training(job: TrainingJob) -> TrainingOutcome:
    """Train as a job says; with a recipe, score what its loss and calibrator go by before, and calibrate after.

    Args:
        job: data, settings, folder and the rest of the training.

    Returns:
        The chosen epoch of every network, and the seconds spent.
    """
    dataset = load_dataset(job.data, **job.data_options)
    scores = job.load_scores()
    if job.recipe is None:
        return TrainingOutcome.of(job, train_networks(job, dataset, scores))
    recipe = load_config(job.recipe)
    scores = recipe_scores(job, recipe, dataset, scores)
    trained = train_networks(job, dataset, scores)
    if is_lead_process() and "val" in dataset.splits:
        recipe_calibrator(trained, dataset, recipe, job.out)
    return TrainingOutcome.of(job, trained)


def try_training(job: TrainingJob) -> TrainingOutcome:
    """Train one cell of a grid; one that cannot be trained does not keep the others from it.

    Args:
        job: as in `run_training`.

    Returns:
        The outcome; its `error` says why nothing was trained.
    """
    try:
        return run_training(job)
    except InputError as error:
        return TrainingOutcome(job.out, job.settings, error=str(error))


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe says of training: its settings and its first loss."""
    config = load_config(name)
    first = config.losses[0]
    return {**config.training, "loss": first.word, "loss_options": dict(first.options)}


def recipe_scores(job: TrainingJob, recipe: Config, dataset: Dataset, scores: Scores | None) -> Scores | None:
    """What the loss reads: `scores`, or made by the recipe; what the calibrator goes by is made before training too."""
    kind = group_scores_kind(job.settings) if scores is None else ""
    groups_file, val_file, fit_file = (job.out / name for name in (BAND_SCORES, VAL_DIFFICULTY, FITTED_DIFFICULTY))
    needed = [groups_file] if kind else []
    needed += [val_file] if _uses_difficulty(recipe) else []
    if not all(file.exists() for file in needed) or _of_other_features(fit_file, job.features):
        rows = _recipe_features(dataset, recipe, job.features)
        if kind:
            group_scores(kind, recipe.difficulty.word, rows, **recipe.difficulty.options).save(groups_file)
        if val_file in needed and "val" in rows:
            # The fitted difficulty, by which later samples are scored, and what it says of val without its labels.
            fitted = difficulty.fit(recipe.difficulty.word, rows["train"], **recipe.difficulty.options)
            fitted.save(fit_file)
            fitted.score(rows["val"], "predicted").save(val_file)
    return Scores.load(groups_file) if kind else scores


def _uses_difficulty(recipe: Config) -> bool:
    return any(choice.options.get("by") == calibrators.DIFFICULTY for choice in recipe.calibrators[:1])


def _of_other_features(path: Path, extractor: str | None) -> bool:
    """Whether a difficulty that was fitted before is one of other features than are asked for now."""
    return extractor is not None and path.exists() and difficulty.load(path).source.get("extractor") != extractor


def _recipe_features(dataset: Dataset, recipe: Config, extractor: str | None) -> dict[str, Features]:
    word, options = (extractor, {}) if extractor else (recipe.features.word, recipe.features.options)
    word = features.usual(dataset) if word == "auto" else word
    splits = [split for split in ("train", "val") if split in dataset.splits]
    return {split: features.extract(word, dataset, split, **options) for split in splits}


def recipe_calibrator(trained: Sequence[Trained], dataset: Dataset, recipe: Config, out: Path) -> None:
    """The recipe's calibrator, fitted on what model or ensemble predicts on val, as calibrator.json in the folder."""
    for choice in recipe.calibrators[:1]:
        val = predict_members(trained, dataset, "val") if len(trained) > 1 else predict(trained[0], dataset, "val")
        if _uses_difficulty(recipe):
            val = val.with_column(calibrators.DIFFICULTY, Scores.load(out / VAL_DIFFICULTY).of(val.ids))
        calibrators.fit(choice.word, val, **choice.options).save(out / "calibrator.json")
