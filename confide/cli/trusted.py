"""Trust beside predictions: a saved trust predictor, given the features it was fitted on and its second opinion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from confide import trust as room
from confide.core import files
from confide.core.door import InputError, MissingExtra
from confide.core.feature_files import load_features
from confide.core.predictions import Predictions
from confide.core.records import Features


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


def write_features(path: str, features: Features) -> None:
    """Features of one split as .npz or .parquet: `features`, `label`, `id`."""
    columns = {"features": np.asarray(features.values[:]), "label": features.labels, "id": features.ids}
    metadata = {"extractor": features.extractor, **({"split": features.split} if features.split else {})}
    metadata |= {"options": json.dumps(files.plain(features.options))} if features.options else {}
    if Path(path).suffix not in (".npz", ".parquet"):
        raise InputError(f"features must be written to .npz or .parquet, got '{path}'")
    files.write_table(path, columns, metadata)
