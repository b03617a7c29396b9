"""A saved calibrator or trust predictor for `confide predict`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from confide import trust as room
from confide.checks import InputError, MissingExtra
from confide.predictions import Predictions
from confide.records import Features, load_features

# Predictions after a saved calibrator, with the difficulty that it may go by.


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
    from confide.pipeline import FITTED_DIFFICULTY
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
