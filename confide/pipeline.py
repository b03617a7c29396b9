"""The stages of an experiment as functions: open data, extract, score, train, predict, trust, calibrate, evaluate,
conclude. `confide.run` calls them one after the other and keeps what each gives in its run folder, `confide train
--recipe` and `confide predict` call some of them, and so may you.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confide import calibrators, data, difficulty, evaluation, features, scale, training, trust
from confide.calibrators import DIFFICULTY
from confide.calibrators.fitting import NONE
from confide.checks import InputError, MissingExtra
from confide.config import Config, MethodChoice, load_config
from confide.evaluation.streaming import ROWS as SHARD_ROWS, shard_paths
from confide.features.extraction import weights_digest
from confide.files import disk, formats
from confide.files.columns import ID_COLUMNS
from confide.metrics import table_words
from confide.predictions import Predictions, predictions_from_columns
from confide.random import generator
from confide.records import Dataset, Features, Scores
from confide.results import About, Comparison, Curve, Evaluation, ModelPoint
from confide.scoring import fitted_extractor
from confide.store import RunPaths
from confide.training.distributed import held, is_lead_process
from confide.training.jobs import TrainingJob, TrainingOutcome, train_networks
from confide.training.settings import suited_settings

__all__ = [
    "SketchJob",
    "add_trust",
    "apply_calibrator",
    "apply_to_folder",
    "calibration_effect",
    "conclude",
    "evaluate_model",
    "extract",
    "fit_calibrator",
    "fit_difficulty",
    "fit_trust",
    "open_data",
    "predict",
    "run_training",
    "sample_folder",
    "score_groups",
    "score_predicted_class",
    "score_split",
    "settings_of",
    "sketch_files",
    "sketch_folder",
    "try_training",
    "with_difficulty",
]

RAW = "raw"
"""The stage of a model as it was trained."""
THRESHOLD_SPLIT = "promise"
"""The part of val that nothing is fitted on, so that thresholds chosen on it can be promised."""
PREDICTED_CLASS = "predicted_class"
"""Scores over several splits: to the likeliest class or to the label's, by which a loss groups; by which calibrators
go."""


# Data, features, difficulty.


def open_data(source: Any, *, threshold_share: float = 0.0, seed: int = 0, **options: Any) -> Dataset:
    """The dataset, with a part of val set apart for thresholds that are promised.

    Args:
        source: a dataset's word or path, or arrays.
        threshold_share: of val; 0 sets none apart.
        seed: of splits that the data do not have.
        options: of the dataset.

    Returns:
        The dataset; the part is its split `promise`.

    Example:
        >>> from confide import pipeline
        >>> dataset = pipeline.open_data("fashion-sample", threshold_share=0.25)
        >>> len(dataset.val), len(dataset.split("promise"))
        (1500, 500)
    """
    dataset = data.load_dataset(source, seed=seed, **options)
    if not threshold_share:
        return dataset
    parts = data.cut(dataset.val, {THRESHOLD_SPLIT: threshold_share}, seed)
    splits = {**dataset.splits, "val": parts["train"], THRESHOLD_SPLIT: parts[THRESHOLD_SPLIT]}
    return replace(dataset, splits=splits)


def extractor_word(dataset: Dataset, choice: MethodChoice) -> str:
    """The extractor that is meant by a choice: for `auto` the usual one of such data."""
    return features.usual(dataset) if choice.word == "auto" else choice.word


def extract(dataset: Dataset, choice: str | MethodChoice = "auto", split: str = "train", **run: Any) -> Features:
    """Features of one split.

    Args:
        dataset: with that split.
        choice: an extractor's word or a choice with its options; `auto` takes the usual one of such data, `cached`
            the features that the data carry.
        split: to look at.
        run: how it is done: out, batch_size, device, workers.

    Returns:
        Features of every sample, with labels and ids.

    Example:
        >>> from confide import pipeline
        >>> pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val").dim
        64
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    return features.extract(extractor_word(dataset, choice), dataset, split, **run, **choice.options)


def fit_difficulty(choice: str | MethodChoice, rows: Features) -> difficulty.FittedDifficulty:
    """A difficulty fitted on the features of the training split, once for all that is scored by it.

    Args:
        choice: a difficulty's word, or a choice with its options.
        rows: features of the training split.

    Returns:
        The fitted difficulty.

    Example:
        >>> from confide import pipeline
        >>> dataset = pipeline.open_data("fashion-sample")
        >>> rows = {split: pipeline.extract(dataset, "cached", split) for split in ("train", "val")}
        >>> fitted = pipeline.fit_difficulty("prototype", rows["train"])
        >>> len(pipeline.score_split(fitted, rows["val"])), len(pipeline.score_predicted_class(fitted, rows))
        (2000, 2000)
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    return difficulty.fit(choice.word, rows, **choice.options)


def score_split(fitted: difficulty.FittedDifficulty, rows: Features, *, judge_labels: bool = False) -> Scores:
    """Difficulty of one split, to the class of each label.

    Args:
        fitted: on the training split.
        rows: features of the split.
        judge_labels: also tell which labels look wrong.

    Returns:
        Scores; with `judge_labels` they have a column `verdict`.

    Example:
        >>> from confide import pipeline
        >>> rows = pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")
        >>> scores = pipeline.score_split(pipeline.fit_difficulty("prototype", rows), rows, judge_labels=True)
        >>> "verdict" in scores.columns
        True
    """
    scores = fitted.score(rows)
    return difficulty.with_verdicts(scores, difficulty.verdicts(rows, scores=scores)) if judge_labels else scores


def score_predicted_class(fitted: difficulty.FittedDifficulty, rows: Mapping[str, Features]) -> Scores:
    """Difficulty to the likeliest class, known without labels, of all splits but the training split.

    Args:
        fitted: on the training split.
        rows: features by split.

    Returns:
        Scores of the splits together: what calibrators may go by.

    Example:
        >>> from confide import pipeline
        >>> rows = {"val": pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")}
        >>> len(pipeline.score_predicted_class(pipeline.fit_difficulty("prototype", rows["val"]), rows))
        2000
    """
    return Scores.joined([fitted.score(part, "predicted") for split, part in rows.items() if split != "train"])


def score_groups(kind: str, fitted: difficulty.FittedDifficulty, rows: Mapping[str, Features]) -> Scores:
    """Difficulty of train and val by which a loss groups its samples.

    A difficulty that knows the label puts misread samples into the hard group, which then looks too sure even where
    the network is calibrated; benchmarks/results/findings.md tells what came of either.

    Args:
        kind: `groups` for the difficulty to the likeliest class, `label_groups` for that to the label's.
        fitted: on the training split.
        rows: features by split.

    Returns:
        Scores of both splits.

    Example:
        >>> from confide import pipeline
        >>> rows = {"train": pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")}
        >>> len(pipeline.score_groups("groups", pipeline.fit_difficulty("prototype", rows["train"]), rows))
        2000
    """
    labels = None if kind == training.LABEL_GROUPS else "predicted"
    return Scores.joined([fitted.score(rows[split], labels) for split in ("train", "val") if split in rows])


# Training and prediction.


def loss_settings(config: Config, loss: MethodChoice) -> dict[str, Any]:
    """What a config says of training with one of its losses, as fields of `training.Settings`."""
    return {**config.training, "loss": loss.word, "loss_options": dict(loss.options)}


def settings_of(config: Config, loss: MethodChoice) -> training.Settings:
    """Training settings of one loss of a config; unknown options are refused here, before any work.

    Args:
        config: of the experiment.
        loss: one of its losses.

    Returns:
        The settings, with the experiment's seed.

    Example:
        >>> from confide import pipeline
        >>> from confide.config import load_config
        >>> config = load_config("confide")
        >>> pipeline.settings_of(config, config.losses[0]).loss
        'entropy_regularization'
    """
    return training.Settings.from_dict({**loss_settings(config, loss), "seed": config.seed})


def predict(
    model: str | Path | training.Trained | Sequence[training.Trained], data: Any, split: str = "test", **options: Any
) -> Predictions:
    """Predictions of a trained model, or the mean of an ensemble's.

    Args:
        model: a trained model or its folder; the members of an ensemble, or their folder.
        data: a dataset or a split.
        split: to predict.
        options: passes, average, ood, batch_size, device, as in `training.predict`.

    Returns:
        Predictions with labels and ids.

    Example:
        >>> import numpy as np
        >>> from confide import pipeline, training
        >>> rows = {"x": np.random.default_rng(0).normal(size=(60, 2)), "y": np.arange(60) % 2}
        >>> np.savez("rows.npz", **rows)
        >>> dataset = pipeline.open_data("rows.npz")
        >>> model = training.fit(dataset, training.Settings(model="mlp", epochs=1, device="cpu"))
        >>> len(pipeline.predict(model, dataset)) == len(dataset.test)
        True
    """
    if isinstance(model, (str, Path)):
        members: Sequence[Any] = training.member_folders(model)
        if members:
            return training.predict_members(members, data, split, **options)
        return training.predict(model, data, split, **options)
    if isinstance(model, training.Trained):
        return training.predict(model, data, split, **options)
    if len(model) > 1:
        return training.predict_members(model, data, split, **options)
    return training.predict(model[0], data, split, **options)


# Calibration.


def with_difficulty(predictions: Predictions, scores: Scores) -> Predictions:
    """Predictions with the column `difficulty` that calibrators may go by.

    Args:
        predictions: of some samples.
        scores: of these samples, and perhaps others, by id.

    Returns:
        The predictions with the column.

    Example:
        >>> import numpy as np
        >>> from confide import Predictions, Scores, pipeline
        >>> predictions = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1], ids=["a", "b"])
        >>> scores = Scores(np.array(["b", "a"]), np.array([3.0, 1.0]), "rmd")
        >>> pipeline.with_difficulty(predictions, scores).columns["difficulty"].tolist()
        [1.0, 3.0]
    """
    return predictions.with_column(DIFFICULTY, scores.of(predictions.ids))


def fit_calibrator(
    choice: str | MethodChoice,
    val: Predictions,
    scores: Scores | None = None,
    rows: Mapping[str, Features] | None = None,
) -> calibrators.Calibrator:
    """A calibrator fitted on validation predictions.

    Args:
        choice: a calibrator's word, or a choice with its options.
        val: predictions on data that the model was not trained on.
        scores: difficulty of the samples to their likeliest class, where the calibrator goes by it.
        rows: features of `train` and `val`, where the calibrator looks at them.

    Returns:
        The fitted calibrator: Predictions in, calibrated Predictions out.

    Example:
        >>> from confide import Predictions, pipeline
        >>> val = Predictions([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]], [0, 0, 1, 1], split="val")
        >>> pipeline.fit_calibrator("temperature", val).temperature > 1
        True
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    if choice.by_difficulty and scores is not None:
        val = with_difficulty(val, scores)
    known = rows if choice.looks_at_features and rows else {}
    return calibrators.fit(choice.word, val, features=known.get("val"), fitted=known.get("train"), **choice.options)


def apply_calibrator(
    path: str | Path,
    predictions: Predictions,
    extract_by: Callable[..., Features] | None = None,
    *,
    rows: str | Path | None = None,
    opinions: Mapping[str, Predictions] | None = None,
) -> Predictions:
    """Predictions after a saved calibrator; where it goes by difficulty or features these are made first.

    Args:
        path: of the calibrator. The difficulty it goes by is a column of the predictions (`with_difficulty`), or fitted
            and saved beside it.
        predictions: to calibrate.
        extract_by: gives the features of these samples by an extractor's word and options.
        rows: file or folder of the features that the calibrator looks at; without it its extractor is asked.
        opinions: predictions of the other models that it was fitted with, by name.

    Returns:
        The calibrated predictions.

    Raises:
        InputError: where the difficulty or the features cannot be had; one line says what to do.

    Example:
        >>> from confide import Predictions, pipeline
        >>> val = Predictions([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]], [0, 0, 1, 1], split="val")
        >>> path = pipeline.fit_calibrator("temperature", val).save("calibrator.json")
        >>> bool((pipeline.apply_calibrator("calibrator.json", val).logits.abs() < 4).all())
        True
    """
    calibrator = calibrators.load(path)
    by = getattr(calibrator, "by", None)
    if by == DIFFICULTY and by not in predictions.columns:
        predictions = with_difficulty(predictions, _scores_beside(Path(path), extract_by))
    features = None
    if calibrator.feature_dim is not None:
        features = _read_rows(rows, predictions) if rows else _opinion_rows(calibrator, path, extract_by)
    return calibrator(predictions, features, opinions)


def _read_rows(file: str | Path, predictions: Predictions) -> Features:
    """Features of the predicted samples from a file or folder; one without ids or labels has theirs."""
    labels = predictions.labels.numpy() if predictions.has_labels else None
    return Features.load(file, ids=predictions.ids, labels=labels)


def _opinion_rows(
    calibrator: calibrators.Calibrator, path: str | Path, extract_by: Callable[..., Features] | None
) -> Features:
    """Features by the extractor that the calibrator was fitted with."""
    word = calibrator.source.extractor
    by = f" by '{word}'" if word else ""
    needs = f"{path} needs features of these samples, {calibrator.feature_dim} each{by}"
    if extract_by is None or not word:
        raise InputError(f"{needs}; pass them by --second FILE")
    try:
        return extract_by(word, **calibrator.source.options)
    except (InputError, MissingExtra) as error:
        raise InputError(f"{needs}, which cannot be made here: {error}; pass them by --second FILE") from None


def _scores_beside(path: Path, extract_by: Callable[..., Features] | None) -> Scores:
    """Scores by the fitted difficulty in the calibrator's folder, or in the run folder that holds it."""
    places = [RunPaths(folder).difficulty for folder in (path.parent, path.parent.parent)]
    beside = next((place for place in places if place.exists()), places[0])
    needs = f"{path} goes by the difficulty of every sample"
    other = "pass --scores FILE (confide score DATA --labels predicted makes one)"
    if not beside.exists():
        raise InputError(f"{needs}, but {beside} is not there; keep both files together, or {other}")
    if extract_by is None:
        raise InputError(f"{needs}; pass extract_by, or add the column '{DIFFICULTY}' to the predictions")
    fitted = difficulty.load(beside)
    try:
        word, options = fitted_extractor(str(beside), fitted)
        rows = extract_by(word, **options)
    except (InputError, MissingExtra) as error:
        raise InputError(f"{needs}, but the features for it cannot be had: {error}; or {other}") from None
    return fitted.score(rows, "predicted")


@dataclass(frozen=True)
class CalibrationEffect:
    """What a chosen calibrator did to the predictions it was applied to: no `after` where none was chosen, and nothing
    to judge by where they have no labels.
    """

    predictions: Predictions
    before: Evaluation | None
    after: Evaluation | None
    comparisons: tuple[Comparison, ...]
    warnings: tuple[str, ...]


def calibration_effect(
    choice: calibrators.Choice,
    fitted_on: Predictions,
    applied_to: Predictions,
    *,
    seed: int = 0,
    features: Features | None = None,
    opinions: Mapping[str, Predictions] | None = None,
) -> CalibrationEffect:
    """Before and after a chosen calibrator, with intervals, the paired test and warnings.

    Args:
        choice: of `calibrators.choose`.
        fitted_on: the predictions that it was chosen and fitted on.
        applied_to: other predictions, to calibrate and, where they have labels, to judge on.
        seed: of the resampling.
        features: of the applied samples, where the calibrator looks at them.
        opinions: predictions of other models on them, likewise.

    Returns:
        The calibrated predictions, both evaluations, and the paired tests between them.

    Example:
        >>> import torch
        >>> from confide import Predictions, calibrators, pipeline
        >>> logits = 4 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = torch.arange(200) % 3
        >>> val, test = (Predictions(logits[k::2], labels[k::2], split=name) for k, name in enumerate(("val", "test")))
        >>> choice = calibrators.choose(val, ["temperature"], may_decline=False)
        >>> effect = pipeline.calibration_effect(choice, val, test)
        >>> effect.after.value("nll") < effect.before.value("nll")
        True
    """
    warnings = [*choice.warnings, *_shared_samples(fitted_on, applied_to)]
    calibrated = choice(applied_to, features, opinions)
    if applied_to.facts.right is None:
        return CalibrationEffect(calibrated, None, None, (), tuple(warnings))
    words, score = table_words("calibrated"), choice.score
    if applied_to.outputs.only_confidence:
        words = (*(word for word in words if word not in ("nll", "brier")), *table_words("confidence"))
        score = f"confidence_{score}"
    before = evaluation.evaluate(applied_to, words, seed=seed)
    if choice.word == NONE:
        return CalibrationEffect(applied_to, before, None, (), tuple(warnings))
    comparisons = evaluation.compare(applied_to, calibrated, names=(RAW, choice.word), metrics=words, seed=seed)
    test = next(c for c in comparisons if c.metric == score)
    if test.better != "b":
        outcome = "makes it worse" if test.better == "a" else "does not help for certain"
        warnings.append(
            f"on the applied predictions '{choice.word}' {outcome}: {score} {test.difference:+.4g} "
            f"(95 % {test.low:+.4g} to {test.high:+.4g}, p = {test.p_value:.2g})"
        )
    changed = 0
    if not applied_to.outputs.only_confidence:
        changed = int((calibrated.facts.prediction != applied_to.facts.prediction).sum())
    if changed:
        gain = float(calibrated.facts.correct.double().mean() - applied_to.facts.correct.double().mean())
        warnings.append(
            f"the predicted class changes on {changed} of {len(calibrated)} applied samples, accuracy by {gain:+.4f}"
        )
    after = evaluation.evaluate(calibrated, words, stage=choice.word, seed=seed)
    return CalibrationEffect(calibrated, before, after, comparisons, tuple(warnings))


def _shared_samples(fitted_on: Predictions, applied_to: Predictions) -> list[str]:
    """A warning where samples that were fitted on are judged on: more of them have the outputs of a fitted one than
    fitted ones have of each other, which is how often rounded outputs meet by chance.
    """
    fitted, applied = (_output_rows(predictions) for predictions in (fitted_on, applied_to))
    repeats = Counter(fitted)
    shared = sum(row in repeats for row in applied)
    by_chance = len(applied) * sum(count for count in repeats.values() if count > 1) / max(len(fitted), 1)
    if shared <= by_chance + 3 * math.sqrt(by_chance) + len(applied) / 100:
        return []
    return [f"{shared} of {len(applied)} applied samples have the very outputs of a fitted one: are the sets apart?"]


def _output_rows(predictions: Predictions) -> list[bytes]:
    outputs = predictions.logits if predictions.outputs.all_classes else predictions.facts.confidence
    return [row.tobytes() for row in outputs.double().cpu().numpy()]


# Trust.


def fit_trust(
    choice: str | MethodChoice, val: Predictions | None = None, rows: Features | None = None, *, seed: int | None = None
) -> trust.Trust:
    """A trust predictor, fitted on validation predictions where it learns.

    Args:
        choice: a trust predictor's word, or a choice with its options.
        val: predictions on data that the model was not trained on.
        rows: their features.
        seed: of predictors that draw; by default their own.

    Returns:
        The fitted predictor: predictions and features in, trust of each out.

    Example:
        >>> from confide import Predictions, pipeline
        >>> pipeline.fit_trust("mcp")(Predictions([[0.0, 0.0]], [0])).tolist()
        [0.5]
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    method = trust.TRUST.get(choice.word)
    options = {"seed": seed} if seed is not None and "seed" in method.options else {}
    if not method.spec.trained:
        return trust.fit(choice.word, **choice.options)
    return trust.fit(choice.word, val, rows, **{**options, **choice.options})


def add_trust(
    path: str | Path,
    predictions: Predictions,
    *,
    rows: Callable[[], Features] | str | Path | None = None,
    second: str | Path | None = None,
    extract_by: Callable[..., Features] | None = None,
) -> Predictions:
    """Predictions with the column `trust` of a saved trust predictor.

    Args:
        path: of the predictor.
        predictions: of one model.
        rows: file or folder of the features that it was fitted on, or a function that makes them when they are needed.
        second: file or folder of the second opinion; without it the extractor that the predictor names is asked.
        extract_by: gives the features of these samples by an extractor's word, for the second opinion.

    Returns:
        The predictions with the column.

    Raises:
        InputError: where what the predictor looks at cannot be had; one line says what to do.

    Example:
        >>> from confide import Predictions, pipeline
        >>> path = pipeline.fit_trust("mcp").save("trust.json")
        >>> pipeline.add_trust("trust.json", Predictions([[0.0, 0.0]], [0])).trust.tolist()
        [0.5]
    """
    predictor = trust.load(path)
    if predictor.wants == "members":
        raise InputError(f"'{predictor.word}' needs the logits of several members and cannot be applied to one model")
    if second and predictor.second_dim is None:
        raise InputError(f"{path} was fitted without a second opinion; leave --second out")

    opinion = own = None
    if predictor.second_dim is not None:
        opinion = _read_rows(second, predictions) if second else _second_opinion(predictor, path, extract_by)
    if predictor.feature_dim is not None and rows is not None:
        own = rows() if callable(rows) else _read_rows(rows, predictions)
    return predictor.add_to(predictions, own, opinion)


def _second_opinion(predictor: trust.Trust, path: str | Path, extract_by: Callable[..., Features] | None) -> Features:
    """Features by the extractor that the predictor's file names; one line with what to do where they cannot be had."""
    word = predictor.about.second_extractor
    needs = f"{path} needs a second opinion on these samples, {predictor.second_dim} features each by '{word}'"
    if extract_by is None:
        raise InputError(f"{needs}; pass them as second")
    try:
        rows = extract_by(str(word))
    except MissingExtra as error:
        raise InputError(
            f"{needs}: {error}; or where it can be had run `confide score DATA --split SPLIT --features {word} "
            "--write-features second.npz` and pass --second second.npz"
        ) from None
    except InputError as error:
        raise InputError(f"{needs}, which cannot be made here: {error}; pass them by --second FILE") from None
    if rows.dim != predictor.second_dim:
        raise InputError(f"{needs}, which gives {rows.dim} here; pass them by --second FILE")
    return rows


# Evaluation.


def evaluate_model(
    predictions: Mapping[str, Predictions],
    *,
    model: str = "model",
    stage: str = RAW,
    metrics: str | Sequence[str] = "core",
    scores: Scores | None = None,
    trust_values: Mapping[str, torch.Tensor] | None = None,
    risks: Sequence[float] = (),
    seed: int = 0,
) -> Evaluation:
    """Metrics with intervals of one model at one stage, by class and difficulty, and thresholds to promise.

    Args:
        predictions: by split; `test` is measured, thresholds are chosen on `promise` where it is there.
        model: its name.
        stage: `raw`, or the calibrator's name.
        metrics: core, all, or words.
        scores: difficulty of the test samples.
        trust_values: of the test predictions, by trust predictor.
        risks: error rates that thresholds are chosen for.
        seed: of the resampling.

    Returns:
        The evaluation.

    Example:
        >>> from confide import Predictions, pipeline
        >>> test = Predictions([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]], [0, 0, 1, 1], split="test")
        >>> pipeline.evaluate_model({"test": test}, model="small", metrics=["accuracy"]).value("accuracy")
        0.75
    """
    test, holdout = predictions["test"], predictions.get(THRESHOLD_SPLIT)
    measured = evaluation.evaluate(
        test, metrics, model=model, stage=stage, scores=scores, trust=trust_values, seed=seed
    )
    if holdout is None:
        return measured
    points = [evaluation.operating_point(holdout, risk) for risk in risks]
    observed = [ModelPoint(point, model, stage, evaluation.observed(point, test)) for point in points]
    return replace(measured, operating_points=tuple(observed))


@dataclass(frozen=True)
class EvaluatedStage:
    """One model at one stage: its test predictions, what was measured on them, and the calibrator that made them."""

    model: str
    stage: str
    predictions: Predictions
    evaluation: Evaluation
    calibrator: calibrators.Calibrator | None = None

    @property
    def name(self) -> str:
        """`model/stage`, as comparisons call it."""
        return f"{self.model}/{self.stage}"


def conclude(
    stages: Sequence[EvaluatedStage],
    dataset: Dataset,
    scores: Scores,
    *,
    curves: Sequence[Curve] = (),
    gallery: int = 6,
    seed: int = 0,
    about: About | None = None,
) -> Evaluation:
    """All evaluations in one, with paired tests between models and stages, training curves and samples to look at.

    Args:
        stages: every model at every stage, measured on the same test samples.
        dataset: whose test samples are shown.
        scores: their difficulty.
        curves: of the trainings.
        gallery: easiest and hardest samples shown of each class.
        seed: of the resampling.
        about: what else a report tells.

    Returns:
        The evaluation that `report.write_report` draws.

    Example:
        >>> import numpy as np
        >>> from confide import Predictions, Scores, pipeline
        >>> dataset = pipeline.open_data("fashion-sample")
        >>> test = Predictions(3 * np.eye(10)[dataset.test.labels], dataset.test.labels, dataset.test.ids, "test")
        >>> measured = pipeline.evaluate_model({"test": test}, metrics=["accuracy"])
        >>> scores = Scores(test.ids, np.arange(len(test), dtype=float), "rmd")
        >>> stage = pipeline.EvaluatedStage("model", "raw", test, measured)
        >>> len(pipeline.conclude([stage], dataset, scores, gallery=1).samples)
        20
    """
    comparisons: Sequence[Comparison] = ()
    if len(stages) > 1:
        predictions, pairs = {stage.name: stage.predictions for stage in stages}, pairs_to_compare(stages)
        comparisons = evaluation.compare(predictions, metrics=table_words("summary"), pairs=pairs, seed=seed)
    shown = (dataset.test, scores, dataset.class_names)
    by_difficulty = evaluation.gallery(*shown, predictions=stages[0].predictions, each=gallery)
    calibrated = [(stage.name, stage.calibrator) for stage in stages if stage.calibrator is not None]
    return evaluation.join(
        [*(stage.evaluation for stage in stages), Evaluation((), tuple(curves))],
        comparisons=comparisons,
        samples=(*by_difficulty, *evaluation.suspects(*shown)),
        about=(about or About()).over(_describe(dataset, stages)),
        warnings=[f"{name}: {note}" for name, calibrator in calibrated for note in calibrator.notes],
    )


def pairs_to_compare(stages: Sequence[EvaluatedStage]) -> list[tuple[str, str]]:
    """What is worth a test: models at the same stage, and stages of the same model against raw."""
    return [
        (a.name, b.name)
        for a, b in combinations(stages, 2)
        if a.stage == b.stage or (a.model == b.model and a.stage == RAW)
    ]


def calibrator_text(fitted: calibrators.Calibrator) -> str | None:
    """What a calibrator fitted, where that can be told in a line: its temperature, or the weights of its opinions."""
    if "temperature" in fitted.values:
        return temperature_text(fitted)
    if fitted.word != "second_opinion":
        return None
    names = ("network", *calibrators.opinion_names(fitted))
    weights = zip(names, (fitted.network, *fitted.weights.tolist()), strict=True)
    return f"weights: {', '.join(f'{name} {weight:.2f}' for name, weight in weights)}; strength {fitted.strength:.3g}"


def temperature_text(fitted: calibrators.Calibrator) -> str:
    """The temperature of a calibrator, or from the lowest to the highest where it has several."""
    several = isinstance(fitted, calibrators.GroupCalibrator) and fitted.word == "temperature"
    if not several or not any(fitted.weights.values()):
        return f"T = {fitted.temperature:.2f}"
    overall = 1 / fitted.temperature
    # A group's logits are divided by a mean of the inverse temperatures: its own, and the overall one.
    temperatures = [
        1 / (overall + fitted.weights[name] * (1 / own.temperature - overall)) for name, own in fitted.groups.items()
    ]
    return f"T = {min(temperatures):.2f} to {max(temperatures):.2f} by {fitted.by}"


def _describe(dataset: Dataset, stages: Sequence[EvaluatedStage]) -> About:
    """What a report tells of data and stages."""
    counts = np.bincount(dataset.test.labels, minlength=dataset.num_classes)
    return About(
        title=dataset.name,
        unit=dataset.unit,
        class_names=tuple(dataset.class_names),
        label_counts=dict(zip(dataset.class_names, counts.tolist(), strict=True)),
        stages={
            stage.name: text
            for stage in stages
            if stage.calibrator is not None and (text := calibrator_text(stage.calibrator))
        },
        data={"name": dataset.name, **dataset.provenance.as_dict()},
    )


# One training from data to a calibrated model, with the names of a run folder.


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


def _what_scores_are_made_of(dataset: Dataset, choice: MethodChoice, method: MethodChoice) -> dict[str, Any]:
    """What decides the difficulty of a training's samples, as JSON holds it."""
    word = extractor_word(dataset, choice)
    made_of: dict[str, Any] = formats.plain(
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


# Predictions in more shards than one machine reads.


@dataclass(frozen=True)
class SketchJob:
    """Shards that one job counts, and the file it writes."""

    paths: tuple[str, ...]
    target: str
    split: str | None = None


def sketch_files(job: SketchJob) -> str:
    """The sketch of some files, written to its target; one that is there is not made again.

    Args:
        job: which files, and where to.

    Returns:
        The path of the sketch.

    Example:
        >>> confide.Predictions([[2.0, 0.0]], [0]).save("a.parquet")
        >>> confide.pipeline.sketch_files(confide.pipeline.SketchJob(("a.parquet",), "a.npz"))
        'a.npz'
    """
    if not Path(job.target).exists():
        sketch = evaluation.Sketch()
        for path in job.paths:
            for columns, metadata in formats.table_batches(path, SHARD_ROWS):
                sketch.add(predictions_from_columns(columns, metadata, job.split, path))
        sketch.save(job.target)
    return job.target


def sketch_folder(
    folder: str | Path, out: str | Path, *, engine: str = "local", workers: int = 2, split: str | None = None
) -> evaluation.Sketch:
    """The sketch of a folder of shards, counted by several workers; memory does not grow with the rows.

    Every worker writes what it counted under a name that its files determine: after a crash the same call goes on with
    what is missing, and a worker that dies is started again. The numbers do not depend on the workers.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        out: a folder for the parts, which all workers see.
        engine: `local` processes, or `ray`.
        workers: at a time.
        split: overrides the split that files name.

    Returns:
        A `Sketch` for `evaluation.evaluate_sketch`.

    Raises:
        InputError: there are no shards, or one cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0]], [0]).save("shards/0.parquet")
        >>> confide.pipeline.sketch_folder("shards", "parts", workers=1).rows  # doctest: +SKIP
        1
    """
    paths = [str(path) for path in shard_paths(Path(folder))]
    each = max(1, math.ceil(len(paths) / (4 * workers)))
    jobs = []
    for first in range(0, len(paths), each):
        part = tuple(paths[first : first + each])
        facts = [(path, Path(path).stat()) for path in part]
        stamps = [f"{path} {known.st_size} {known.st_mtime_ns}" for path, known in facts]
        key = hashlib.sha256("\n".join([str(split), *stamps]).encode()).hexdigest()[:16]
        payload = SketchJob(part, str(Path(out).resolve() / f"{key}.npz"), split)
        jobs.append(scale.Job(f"shards {first} to {first + len(part) - 1}", sketch_files, payload, gpu=0.0))
    sketch = evaluation.Sketch()
    for target in scale.run_jobs(jobs, engine=engine, workers=workers):
        sketch.merge(evaluation.Sketch.load(target))
    return sketch


FIT_ROWS = 200_000
"""Rows of a folder that a fit looks at: its parameters are then known far better than shards differ."""


def sample_folder(
    folder: str | Path, *, rows: int = FIT_ROWS, seed: int = 0, split: str | None = None
) -> tuple[Predictions, int]:
    """About so many rows of a folder of shards, drawn at random by seed and place, all of them where there are fewer.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        rows: how many to draw, about.
        seed: of the draw.
        split: overrides the split that files name.

    Returns:
        The drawn predictions, for a fit; and how many rows the folder has.

    Raises:
        InputError: there are no shards, or one cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1]).save("shards/0.parquet")
        >>> drawn, total = confide.pipeline.sample_folder("shards")
        >>> len(drawn), total
        (2, 2)
    """
    paths = shard_paths(Path(folder))
    total = sum(formats.row_count(path) for path in paths)
    share, parts, about = rows / max(total, 1), [], dict[str, str]()
    for number, path in enumerate(paths):
        for batch, (columns, metadata) in enumerate(formats.table_batches(path, SHARD_ROWS)):
            about = about or metadata
            n = max(len(values) for values in columns.values())
            drawn = generator(seed, "folder sample", number, batch).random(n) < share
            parts.append({name: own[drawn] if len(own) == n else own for name, own in columns.items()})
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = [name for name in ID_COLUMNS if name in table]
    if names and len(np.unique(table[names[0]])) < len(table[names[0]]):
        del table[names[0]]  # numbers that count the rows of each shard name no sample
    return predictions_from_columns(table, about, split, str(folder)), total


def apply_to_folder(
    fitted: Callable[[Predictions], Predictions], folder: str | Path, out: str | Path, split: str | None = None
) -> list[Path]:
    """What a fitted calibrator makes of every shard, written under the same names; one shard at a time.

    Args:
        fitted: a calibrator.
        folder: of the shards.
        out: another folder.
        split: overrides the split that files name.

    Returns:
        The files, as .parquet.

    Raises:
        InputError: both folders are one.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], split="val")
        >>> p.save("shards/0.parquet")
        >>> confide.pipeline.apply_to_folder(confide.calibrators.fit("temperature", p), "shards", "calibrated")
        [PosixPath('calibrated/0.parquet')]
    """
    if Path(folder).resolve() == Path(out).resolve():
        raise InputError(f"calibrated shards must go to another folder than {folder}; give one")
    written = []
    for path in shard_paths(Path(folder)):
        target = Path(out) / f"{path.name.split('.')[0]}.parquet"
        fitted(Predictions.load(path, split)).save(target)
        written.append(target)
    return written
