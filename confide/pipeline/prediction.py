"""What a trained model predicts, alone and with all that a file of predictions may carry beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from confide import training
from confide.checks import InputError
from confide.config import MethodChoice
from confide.data import load_dataset, load_unlabelled
from confide.models.trained import TrainedFile
from confide.pipeline.calibration import add_trust, apply_calibrator, with_difficulty
from confide.pipeline.preparation import extract
from confide.predictions import Predictions
from confide.records import Dataset, Features, Scores
from confide.shift import corrupt_split
from confide.types import Options


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


@dataclass(frozen=True)
class PredictionRequest:
    """Which samples a model predicts, how, and what is added to its predictions.

    Args:
        split: to predict; of data without labels, all.
        passes: of Monte-Carlo dropout.
        average: of these passes, the `logits` or the `probs`.
        shift: images made worse first: gaussian_noise, fog, ...
        severity: of the shift, 1 to 5.
        ood: data of other classes, whose labels do not count.
        trust: file of a trust predictor, which adds the column `trust`.
        scores: file with the difficulty of these samples, which becomes the column `difficulty`.
        calibrator: file of a calibrator, which is applied.
        features: file or folder for `trust`; without it the model's penultimate features.
        second: file or folder of the second opinion that `trust` or `calibrator` asks for; without it it is extracted.
        opinions: files of the other models' predictions that `calibrator` was fitted with, by name.
        keep_features: whether to return the model's penultimate features.
        batch_size: samples at a time; by default what suits the device.
        device: cpu or cuda; `auto` is a GPU where there is one.
        data_options: of the dataset.
    """

    split: str = "test"
    passes: int = 0
    average: str = "logits"
    shift: str | None = None
    severity: int = 3
    ood: bool = False
    trust: str | Path | None = None
    scores: str | Path | None = None
    calibrator: str | Path | None = None
    features: str | Path | None = None
    second: str | Path | None = None
    opinions: Mapping[str, str | Path] = field(default_factory=dict)
    keep_features: bool = False
    batch_size: int | None = None
    device: str = "auto"
    data_options: Options = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PredictedData:
    """Predictions with what was asked for, how many networks gave them, their features where kept, and the price.

    `milliseconds` a sample: of the network, and of every extractor that trust or calibrator needed beside it.
    """

    predictions: Predictions
    networks: int
    features: Features | None
    milliseconds: Mapping[str, float]


def predict_data(model: str | Path, source: str | Path, request: PredictionRequest | None = None) -> PredictedData:
    """Predictions of a trained model on data from a word or path, with trust, difficulty and calibration.

    Data without labels are predicted whole; pictures of any size become those that the model was trained on.

    Args:
        model: folder of a training, or of an ensemble.
        source: a dataset's word, or a path.
        request: which samples, how, and what is added.

    Returns:
        The predictions, and what they cost.

    Raises:
        InputError: where model, data and what is added do not go together; one line says what to do.

    Example:
        >>> import numpy as np
        >>> from confide import pipeline, training
        >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
        >>> np.savez("rows.npz", x=x, y=np.arange(60) % 2)
        >>> np.savez("new.npz", x=x[:5])
        >>> settings = training.Settings(model="mlp", epochs=1, device="cpu")
        >>> trained = training.fit(pipeline.open_data("rows.npz"), settings, folder="model")
        >>> predicted = pipeline.predict_data("model", "new.npz")
        >>> len(predicted.predictions), predicted.predictions.has_labels, list(predicted.milliseconds)
        (5, False, ['network'])
    """
    request = request or PredictionRequest()
    members = training.member_folders(model)
    dataset, split, labelled = _open(members[0] if members else model, source, request)
    milliseconds: dict[str, float] = {}

    def timed(what: str, began: float) -> None:
        milliseconds[what] = 1000 * (time.perf_counter() - began) / max(len(dataset.split(split)), 1)

    @cache
    def own_features() -> Features:
        if members:
            raise InputError("an ensemble has no penultimate features of its own; pass --features, or one member")
        return training.penultimate(model, dataset, split, batch_size=request.batch_size)

    def extract_by(word: str, **options: Any) -> Features:
        device, began = None if request.device == "auto" else request.device, time.perf_counter()
        batch_size = request.batch_size or 64
        rows = extract(dataset, MethodChoice(word, options), split, batch_size=batch_size, device=device)
        timed(f"features {word}", began)
        return rows

    began = time.perf_counter()
    predictions = predict(
        model,
        dataset,
        split,
        passes=request.passes,
        average=request.average,
        ood=request.ood or not labelled,
        batch_size=request.batch_size,
        device=request.device,
    )
    timed("network", began)
    if not labelled:
        predictions = predictions.replace(labels=None, split=None, columns={})
    features = own_features() if request.keep_features else None
    if request.trust:
        rows = request.features or own_features
        predictions = add_trust(request.trust, predictions, rows=rows, second=request.second, extract_by=extract_by)
    if request.scores:
        predictions = with_difficulty(predictions, Scores.load(request.scores))
    if request.calibrator:
        opinions = {name: Predictions.load(file) for name, file in request.opinions.items()}
        predictions = apply_calibrator(
            request.calibrator, predictions, extract_by, rows=request.second, opinions=opinions
        )
    return PredictedData(predictions, len(members) or 1, features, milliseconds)


def _open(model: str | Path, source: str | Path, request: PredictionRequest) -> tuple[Dataset, str, bool]:
    """The data, the split to predict, and whether its samples have labels."""
    dataset, split = None, request.split
    if not request.data_options:
        preparation = TrainedFile.read(model).preparation
        if preparation.kind == "image":
            channels, height, width = preparation.shape
            dataset = load_unlabelled(source, channels=channels, size=(height, width))
        else:
            dataset = load_unlabelled(source)
    labelled = dataset is None
    if dataset is None:
        dataset = load_dataset(source, **request.data_options)
    else:
        (split,) = dataset.splits
    if request.shift:
        dataset = corrupt_split(dataset, split, request.shift, request.severity)
    return dataset, split, labelled
