"""Trust beside predictions: a saved trust predictor, given the features it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confide import trust as room
from confide.core import files
from confide.core.door import InputError
from confide.core.feature_files import load_features
from confide.core.predictions import Predictions
from confide.core.records import Features


def with_trust(predictions: Predictions, path: str, own_features: Any, given: str | None) -> Predictions:
    """The predictions with the column `trust` of a saved predictor.

    Args:
        own_features: gives the model's penultimate features when called; asked only where they are needed.
        given: file or folder of features, where the predictor was fitted on those of another extractor.
    """
    trust = room.load(path)
    if trust.wants == "members":
        raise InputError(f"'{trust.word}' needs the logits of several members and cannot be applied to one model")
    if trust.feature_dim is None:
        return trust.add_to(predictions)
    if given:
        return trust.add_to(predictions, load_features(given, ids=predictions.ids, labels=predictions.labels.numpy()))
    return trust.add_to(predictions, own_features())


def write_features(path: str, features: Features) -> None:
    """Features of one split as .npz or .parquet: `features`, `label`, `id`."""
    columns = {"features": features.values, "label": features.labels, "id": features.ids}
    metadata = {"extractor": features.extractor, **({"split": features.split} if features.split else {})}
    if Path(path).suffix not in (".npz", ".parquet"):
        raise InputError(f"features must be written to .npz or .parquet, got '{path}'")
    files.write_table(path, columns, metadata)
