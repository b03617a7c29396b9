"""A recipe on the command line: its settings and scores for `confide train`, and a saved calibrator or trust
predictor
for `confide predict`. (Becomes confide/pipeline.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide import trust as room
from confide.checks import InputError, MissingExtra
from confide.predictions import Predictions
from confide.records import Features, load_features

if TYPE_CHECKING:
    from confide.config import Config
    from confide.records import Scores
    from confide.training import Trained


# Predictions after a saved calibrator, with the difficulty that it may go by.

FITTED_DIFFICULTY = "difficulty.safetensors"
"""A fitted difficulty beside a calibrator that goes by it."""


def with_calibrator(predictions: Predictions, path: str, extract: Callable[..., Features]) -> Predictions:
    """The predictions calibrated; where the calibrator goes by difficulty they are scored first.

    Args:
        path: of the calibrator; the difficulty it goes by lies beside it, or is a column of the predictions.
        extract: gives the features of these samples by an extractor's word and options.
    """
    from confide import calibrators

    calibrator = calibrators.load(path)
    by = getattr(calibrator, "by", None)
    if by == calibrators.DIFFICULTY and by not in predictions.columns:
        predictions = predictions.with_column(by, _difficulty_beside(predictions, Path(path), extract))
    return calibrator(predictions)


def _difficulty_beside(predictions: Predictions, path: Path, extract: Callable[..., Features]) -> Any:
    from confide import difficulty
    from confide.checks import InputError, MissingExtra
    from confide.scoring import fitted_extractor

    beside = path.with_name(FITTED_DIFFICULTY)
    needs = f"{path} goes by the difficulty of every sample"
    other = "pass --scores FILE (confide score DATA --labels predicted makes one)"
    if not beside.exists():
        raise InputError(f"{needs}, but {beside} is not there; keep both files together, or {other}")
    fitted = difficulty.load(beside)
    try:
        word, options = fitted_extractor(str(beside), fitted)
        rows = extract(word, **options)
    except (InputError, MissingExtra) as error:
        raise InputError(f"{needs}, but the features for it cannot be had: {error}; or {other}") from None
    return fitted.score(rows, "predicted").of(predictions.ids)


# Trust beside predictions: a saved trust predictor, given the features it was fitted on and its second opinion.


def with_trust(
    predictions: Predictions,
    path: str,
    own_features: Callable[[], Features],
    given: str | None,
    extract: Callable[[str], Features],
    second: str | None = None,
) -> Predictions:
    """The predictions with the column `trust` of a saved predictor.

    Args:
        own_features: gives the model's penultimate features when called; asked only where they are needed.
        given: file or folder of features, where the predictor was fitted on those of another extractor.
        extract: gives the features of these samples by an extractor's word.
        second: file or folder of the second opinion; without it the extractor that the predictor names is asked.
    """
    trust = room.load(path)
    if trust.wants == "members":
        raise InputError(f"'{trust.word}' needs the logits of several members and cannot be applied to one model")
    if second and trust.second_dim is None:
        raise InputError(f"{path} was fitted without a second opinion; leave --second out")

    def read(file: str) -> Features:
        return load_features(file, ids=predictions.ids, labels=predictions.labels.numpy())

    opinion = None
    if trust.second_dim is not None:
        opinion = read(second) if second else second_opinion(trust, path, extract)
    features = None
    if trust.feature_dim is not None:
        features = read(given) if given else own_features()
    return trust.add_to(predictions, features, opinion)


def second_opinion(trust: room.Trust, path: str, extract: Callable[[str], Features]) -> Features:
    """Features by the extractor that the predictor's file names; one line with what to do where they cannot be had."""
    word = trust.about.get("second_extractor")
    needs = f"{path} needs a second opinion on these samples, {trust.second_dim} features each by '{word}'"
    try:
        features = extract(str(word))
    except MissingExtra as error:
        raise InputError(
            f"{needs}: {error}; or where it can be had run `confide score DATA --split SPLIT --features {word} "
            "--write-features second.npz` and pass --second second.npz"
        ) from None
    except InputError as error:
        raise InputError(f"{needs}, which cannot be made here: {error}; pass them by --second FILE") from None
    if features.dim != trust.second_dim:
        raise InputError(f"{needs}, which gives {features.dim} here; pass them by --second FILE")
    return features


# What `confide train --recipe` takes from a recipe: settings, the difficulty that is asked for, the calibrator.

BAND_SCORES, VAL_DIFFICULTY = "difficulty.parquet", "hardness.parquet"
"""Files in the run's folder: scores that make the loss's bands, and the difficulty of val that the calibrator reads."""


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe says of training: its settings and its first loss."""
    from confide.config import load_config

    config = load_config(name)
    first = config.losses[0]
    return {**config.training, "loss": first.word, "loss_options": dict(first.options)}


def recipe_scores(job: Mapping[str, Any], dataset: Any, settings: Any, given: Scores | None) -> Scores | None:
    """What the loss reads, given or made by the recipe; what the calibrator goes by is made before training too."""
    from confide.config import load_config
    from confide.records import Scores
    from confide.training import group_scores, group_scores_kind

    plan, out = load_config(job["recipe"]), Path(job["out"])
    kind = group_scores_kind(settings) if given is None else ""
    wanted = [name for name in (BAND_SCORES if kind else "", VAL_DIFFICULTY if _uses_difficulty(plan) else "") if name]
    if not all((out / name).exists() for name in wanted) or _other_features(
        out / FITTED_DIFFICULTY, job.get("features")
    ):
        rows = _recipe_features(dataset, plan, job.get("features"))
        if kind:
            group_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options).save(out / BAND_SCORES)
        if VAL_DIFFICULTY in wanted and "val" in rows:
            _save_difficulty(rows, plan, out)
    return Scores.load(out / BAND_SCORES) if kind else given


def _uses_difficulty(plan: Config) -> bool:
    from confide.calibrators import DIFFICULTY

    return any(choice.options.get("by") == DIFFICULTY for choice in plan.calibrators[:1])


def _other_features(path: Path, asked: str | None) -> bool:
    """Whether a difficulty that was fitted before is one of other features than are asked for now."""
    from confide import difficulty

    return asked is not None and path.exists() and difficulty.load(path).source.get("extractor") != asked


def _recipe_features(dataset: Any, plan: Config, asked: str | None) -> dict[str, Features]:
    from confide import features

    word, options = (asked, {}) if asked else (plan.features.word, plan.features.options)
    word = features.usual(dataset) if word == "auto" else word
    splits = [split for split in ("train", "val") if split in dataset.splits]
    return {split: features.extract(word, dataset, split, **options) for split in splits}


def _save_difficulty(rows: dict[str, Features], plan: Config, out: Path) -> None:
    """The fitted difficulty, by which later samples are scored, and what it says of val without its labels."""
    from confide import difficulty

    fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
    fitted.save(out / FITTED_DIFFICULTY)
    fitted.score(rows["val"], "predicted").save(out / VAL_DIFFICULTY)


def recipe_calibrator(trained: Sequence[Trained], dataset: Any, recipe: str, out: Path) -> None:
    """The recipe's calibrator, fitted on what model or ensemble says on val, as calibrator.json in the run's folder."""
    from confide import calibrators
    from confide.config import load_config
    from confide.records import Scores
    from confide.training import predict, predict_members

    plan = load_config(recipe)
    for choice in plan.calibrators[:1]:
        said = predict_members(trained, dataset, "val") if len(trained) > 1 else predict(trained[0], dataset, "val")
        if _uses_difficulty(plan):
            said = said.with_column(calibrators.DIFFICULTY, Scores.load(out / VAL_DIFFICULTY).of(said.ids))
        calibrators.fit(choice.word, said, **choice.options).save(out / "calibrator.json")
