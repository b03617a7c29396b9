"""Predictions after a saved calibrator, with the difficulty that it may go by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.core.predictions import Predictions
    from confide.core.records import Features

FITTED = "difficulty.safetensors"
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
        predictions = predictions.with_column(by, _hardness(predictions, Path(path), extract))
    return calibrator(predictions)


def _hardness(predictions: Predictions, path: Path, extract: Callable[..., Features]) -> Any:
    from confide import difficulty
    from confide.cli.score_fitted import extractor_of
    from confide.core.door import InputError, MissingExtra

    beside = path.with_name(FITTED)
    needs = f"{path} goes by the difficulty of every sample"
    other = "pass --scores FILE (confide score DATA --labels predicted makes one)"
    if not beside.exists():
        raise InputError(f"{needs}, but {beside} is not there; keep both files together, or {other}")
    fitted = difficulty.load(beside)
    try:
        word, options = extractor_of(str(beside), fitted)
        rows = extract(word, **options)
    except (InputError, MissingExtra) as error:
        raise InputError(f"{needs}, but the features for it cannot be had: {error}; or {other}") from None
    return fitted.score(rows, "predicted").of(predictions.ids)
