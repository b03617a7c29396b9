"""After training: fit calibrators and trust on held-out predictions, apply them, and say what calibration changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confide import calibrators, difficulty, evaluation, trust
from confide.calibrators import DIFFICULTY
from confide.calibrators.fitting import NONE
from confide.checks import InputError, MissingExtra
from confide.config import MethodChoice
from confide.metrics import table_words
from confide.predictions import Predictions
from confide.records import Features, Scores
from confide.results import RAW, Comparison, Evaluation
from confide.scoring import fitted_extractor
from confide.store import RunPaths


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
            f"the predicted class changes on {changed} of {len(calibrated)} applied samples, "
            f"accuracy by {100 * gain:+.2f} points"
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
    by_chance = len(applied) * sum(count for count in repeats.values() if count > 1) / len(fitted)
    if shared <= by_chance + 3 * math.sqrt(by_chance) + len(applied) / 100:
        return []
    return [f"{shared} of {len(applied)} applied samples have the very outputs of a fitted one: are the sets apart?"]


def _output_rows(predictions: Predictions) -> list[bytes]:
    outputs = predictions.logits if predictions.outputs.all_classes else predictions.facts.confidence
    return [row.tobytes() for row in outputs.double().cpu().numpy()]


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
