"""Trained models on corrupted, attacked and out-of-distribution data: `evaluate_shift` does what a `ShiftRequest` says,
with calibrators and trust predictors fitted on clean data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide import calibrators, difficulty, pipeline, trust
from confide.checks import InputError, OptionError
from confide.data import data_folder, load_dataset, names
from confide.evaluation import Side, Subject, evaluate, join, label_noise_curve, ood, shift_grid
from confide.files.formats import checksum
from confide.models.device import Device
from confide.predictions import Predictions
from confide.records import Dataset, Features, Split
from confide.results import About, Evaluation
from confide.shift import SEVERITIES, noisy_labels
from confide.shift.ood import named_ids, ood_pair, ood_split
from confide.training import Trained, penultimate, predict
from confide.types import Options

__all__ = ["ModelOnDevice", "ShiftRequest", "evaluate_shift"]


@dataclass(frozen=True)
class ShiftRequest:
    """How trained models are tested under shift.

    Args:
        shifts: a kind (benchmark, corruptions, corruptions19, domain, attacks, all, none), or words of single shifts
            and attacks.
        severities: of 1 to 5.
        form: published parameters for `32` or `224` pixels; `auto` takes the nearer.
        ood: out-of-distribution data: words, paths, or `out-of-scope`.
        calibrators: fitted on clean val. Default: temperature, where the data have a val split.
        trust: trust predictors, fitted on clean val.
        rmd: difficulty by severity and by label noise. None: where there is a training split.
        samples: of the test split, at most; 0 takes all.
        batch_size: images at once.
        device: cpu or cuda; `auto` is a GPU where there is one.
        seed: of corruptions, attacks and resampling.
        intervals: with bootstrap intervals.
        folder: where finished cells are kept, so that the same request goes on where it was.
        data_options: of the dataset.
    """

    shifts: str | tuple[str, ...] = "corruptions"
    severities: tuple[int, ...] = tuple(SEVERITIES)
    form: str = "auto"
    ood: tuple[str, ...] = ()
    calibrators: tuple[str, ...] | None = None
    trust: tuple[str, ...] = ()
    rmd: bool | None = False
    samples: int = 0
    batch_size: int = 1000
    device: str = "auto"
    seed: int = 0
    intervals: bool = True
    folder: str | Path | None = None
    data_options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("samples", 0)):
            if getattr(self, name) < least:
                raise InputError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")


def evaluate_shift(
    models: Sequence[str | Path], source: str, request: ShiftRequest | None = None, *, about: About | None = None
) -> Evaluation:
    """Trained models side by side on corrupted, attacked and out-of-distribution samples.

    Args:
        models: folders of trained models.
        source: the dataset whose test split is shifted: a word, or a path.
        request: which shifts, and how.
        about: what else a report tells.

    Returns:
        One evaluation: the grid of shifts where the data are images, each out-of-distribution set, RMD by label noise.

    Raises:
        InputError: where models and data do not go together, or nothing is asked for.

    Example:
        >>> import numpy as np
        >>> from confide import load_dataset, training
        >>> from confide.robustness import ShiftRequest, evaluate_shift
        >>> images = np.random.default_rng(0).integers(0, 255, (60, 8, 8)).astype(np.uint8)
        >>> np.savez("images.npz", images=images, labels=np.arange(60) % 2)
        >>> settings = training.Settings(model="mlp", epochs=1, device="cpu")
        >>> model = training.fit(load_dataset("images.npz"), settings, folder="model")
        >>> request = ShiftRequest(shifts=("brightness",), severities=(3,), calibrators=(), intervals=False)
        >>> evaluation = evaluate_shift(["model"], "images.npz", request)
        >>> any(m.group == "shift=mean" for m in evaluation.measurements)
        True
    """
    request = request or ShiftRequest()
    check_model_paths(models)
    dataset = load_dataset(source, **request.data_options)
    trained = _load_models(models)
    test = dataset.test
    if request.samples:
        test = test.take(np.arange(min(request.samples, len(test))))
    for name, model in trained.items():
        model.preparation.check(test, f"'{dataset.name}' for model '{name}'")
    gridded = request.shifts != "none" and dataset.kind == "image"
    if not gridded and not request.ood:
        why = "--kind none" if request.shifts == "none" else f"'{dataset.name}' has no images to corrupt"
        raise InputError(f"nothing to do: {why}, and no --ood was given; name out-of-distribution data")
    # Out-of-distribution data that cannot be had is told before the grid, not after it.
    shape = next(iter(trained.values())).preparation.shape if dataset.kind == "image" else None
    ood_splits = {name: load_ood_split(name, dataset, source, shape, most=request.samples) for name in request.ood}
    if gridded:
        paths = dict(zip(trained, map(Path, models), strict=True))
        files = {name: path / "model.safetensors" if path.is_dir() else path for name, path in paths.items()}
        evaluations = [_evaluate_grid(trained, files, dataset, test, request)]
    else:
        evaluations = [_evaluate_clean(name, model, test, request) for name, model in trained.items()]
    for name, split in ood_splits.items():
        evaluations += _evaluate_ood(ood_name(name), split, trained, dataset, test, request)
    known = About(title=f"{dataset.name} under shift", unit=dataset.unit, class_names=tuple(dataset.class_names))
    return join(evaluations, about=(about or About()).over(known))


def check_model_paths(paths: Sequence[str | Path]) -> None:
    """Shifts need a model to show them to; predictions are of no use."""
    for path in map(Path, paths):
        if path.is_file() and path.suffix != ".safetensors":
            raise InputError(
                f"{path} must be a trained model, got a file of another kind; predictions cannot be corrupted, so give "
                "the folder that confide train --out wrote, or your own model with confide.evaluation.shift_grid"
            )


def _load_models(paths: Sequence[str | Path]) -> dict[str, Trained]:
    """Trained models by the names of their folders; by whole paths where these do not tell them apart."""
    names = [Path(path).resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(Path(path)) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(f"models must differ, got {', '.join(map(str, paths))}")
    return {name: Trained.load(path) for name, path in zip(names, paths, strict=True)}


def _evaluate_clean(name: str, model: Trained, test: Split, request: ShiftRequest) -> Evaluation:
    """A model on the clean test split, for reports without a grid."""
    predictions = predict(model, test, "test", batch_size=request.batch_size, device=request.device)
    return evaluate(predictions, "core", request.intervals, model=name, seed=request.seed)


# A model on its device.

MAX_REFERENCE_SAMPLES = 20_000
"""Training samples that Gaussians and neighbours are fitted on, at most."""


@dataclass(frozen=True, eq=False)
class ModelOnDevice:
    """A trained image model placed on a device."""

    trained: Trained
    where: Device

    @classmethod
    def of(cls, trained: Trained, device: str) -> ModelOnDevice:
        settings = trained.settings
        where = Device.of(device, settings.precision, deterministic=settings.deterministic)
        where.place(trained.model).eval()
        return cls(trained, where)

    def _prepared(self, levels: Tensor) -> Tensor:
        preparation = self.trained.preparation
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=levels.device)[:, None, None]
            for values in (preparation.mean, preparation.std)
        )
        return ((levels - mean) / std).contiguous(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and penultimate features of uint8 images, in one pass."""
        with self.where.autocast():
            features = self.trained.model.features(self._prepared(images.float()))
            return self.trained.model.head(features).float(), features.float()

    def attacked(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1], with a gradient."""
        logits: Tensor = self.trained.model(self._prepared(images * 255))
        return logits

    @torch.no_grad()
    def outputs(self, split: Split, name: str, batch_size: int) -> tuple[Predictions, Features]:
        """Predictions and features of a clean split."""
        parts = []
        for start in range(0, len(split), batch_size):
            rows = np.arange(start, min(start + batch_size, len(split)))
            images = torch.from_numpy(np.ascontiguousarray(split.inputs[rows])).to(self.where.device)
            parts.append([output.cpu() for output in self.forward(images)])
        logits, features = (torch.cat(batches) for batches in zip(*parts, strict=True))
        labels = torch.as_tensor(split.labels)
        extractor = f"model:{self.trained.settings.model}"
        predictions = Predictions(logits, labels, split.ids, name, class_names=self.trained.class_names)
        return predictions, Features(features.numpy(), split.labels, split.ids, extractor, name)


# Trained models as subjects of a grid: calibrators and trust fitted on clean data, forward on the device.


def _evaluate_grid(
    models: Mapping[str, Trained], files: Mapping[str, Path], dataset: Dataset, test: Split, request: ShiftRequest
) -> Evaluation:
    """Every model under every shift and severity."""
    runners = {name: ModelOnDevice.of(model, request.device) for name, model in models.items()}
    subjects = {name: _subject(runner, dataset, request, checksum(files[name])) for name, runner in runners.items()}
    evaluation = shift_grid(
        test,
        subjects,
        words=request.shifts,
        severities=request.severities,
        form=request.form,
        seed=request.seed,
        folder=request.folder,
        batch_size=request.batch_size,
        device=next(iter(runners.values())).where.device,
        intervals=request.intervals,
    )

    def noisy(labels: Any, rate: float) -> Any:
        return noisy_labels(labels, rate, num_classes=dataset.num_classes, ids=test.ids, seed=request.seed)

    curves = list(evaluation.curves)
    for name, subject in subjects.items():
        if subject.difficulty is not None:
            rows = runners[name].outputs(test, "test", request.batch_size)[1].values
            curves.append(label_noise_curve(subject.difficulty, rows, test.labels, noisy, model=name))
    return replace(evaluation, curves=tuple(curves))


def _subject(runner: ModelOnDevice, dataset: Dataset, request: ShiftRequest, identity: str) -> Subject:
    """The model with its calibrators and trust predictors, fitted on the clean validation split."""
    has_val = "val" in dataset.splits and len(dataset.val) > 0
    chosen = request.calibrators if request.calibrators is not None else ("temperature",) if has_val else ()
    needs_val = bool(chosen) or any(trust.TRUST.get(word).spec.trained for word in request.trust)
    if needs_val and not has_val:
        raise InputError(
            f"calibrators and trust predictors are fitted on 'val', but '{dataset.name}' has none; load it with one"
        )
    val, rows = runner.outputs(dataset.val, "val", request.batch_size) if needs_val else (None, None)
    stages = {word: calibrators.fit(word, val) for word in chosen if val is not None}
    predictors = {word: pipeline.fit_trust(word, val, rows, seed=request.seed) for word in request.trust}
    by_label = None
    if request.rmd or (request.rmd is None and "train" in dataset.splits):
        reference = runner.outputs(_reference_split(dataset.train), "train", request.batch_size)[1]
        fitted = difficulty.fit("rmd", reference)

        def by_label(features: Any, labels: Any) -> Any:
            return fitted.score(np.asarray(features), labels).values

    # Calibrators and the like are fitted on these samples: with others, cells kept before are another model's.
    fitted_on = [part.fingerprint for name, part in dataset.splits.items() if name in ("train", "val")]
    return Subject(
        runner.forward,
        stages,
        predictors,
        by_label,
        runner.attacked,
        "-".join([identity, *fitted_on]),
        runner.trained.class_names,
    )


def _reference_split(train: Split) -> Split:
    """The training split, or a part of it spread over the whole, for Gaussians and neighbours."""
    rows = np.linspace(0, len(train) - 1, min(len(train), MAX_REFERENCE_SAMPLES)).round().astype(np.int64)
    return train.take(rows)


# Known or out of distribution: every model on its test split and on another set.


def _evaluate_ood(
    name: str, ood_samples: Split, models: Mapping[str, Trained], dataset: Dataset, test: Split, request: ShiftRequest
) -> list[Evaluation]:
    """Known against OOD samples, for every model."""
    known = Split(test.inputs, test.labels, named_ids(test.ids, dataset.name))
    train = _reference_split(dataset.train) if "train" in dataset.splits else None  # without it no md, rmd and knn
    size, device = request.batch_size, request.device

    def side(model: Trained, part: Split) -> Side:
        predictions = predict(model, part, "test", ood=part is ood_samples, batch_size=size, device=device)
        return Side(predictions, penultimate(model, part, "test", batch_size=size).values)

    return [
        ood(
            side(model, known),
            side(model, ood_samples),
            name=name,
            reference=None if train is None else penultimate(model, train, "train", batch_size=size),
            trust_predictors=_trust_predictors(model, dataset, request),
            model=model_name,
            intervals=request.intervals,
            seed=request.seed,
        )
        for model_name, model in models.items()
    ]


def _trust_predictors(model: Trained, dataset: Dataset, request: ShiftRequest) -> dict[str, trust.Trust]:
    """Trust predictors by word, fitted on the clean validation split where they learn."""
    val = rows = None
    if any(trust.TRUST.get(word).spec.trained for word in request.trust):
        val = predict(model, dataset, "val", batch_size=request.batch_size, device=request.device)
        rows = penultimate(model, dataset, "val", batch_size=request.batch_size)
    return {word: pipeline.fit_trust(word, val, rows, seed=request.seed) for word in request.trust}


# OOD data by word or path: found in the data folder, brought to the model's shape, overlapping classes dropped.

OUT_OF_SCOPE = "out-of-scope"


def ood_name(source: str) -> str:
    """How an OOD set is called: its word, or the name of its file or folder."""
    return Path(source.rstrip("/")).name.split(".")[0] or source


def load_ood_split(
    source: str, known: Dataset, known_source: str, shape: tuple[int, ...] | None, *, most: int
) -> Split:
    """The OOD samples of a source.

    Args:
        source: a path, a dataset's word, a name in the data folder, or `out-of-scope` of the known data.
        known_source: how the known data were named; out-of-scope queries are in the same file.
        shape: of the model's images; None for other inputs.
        most: samples at most; 0 takes all.
    """
    if source == OUT_OF_SCOPE:
        try:
            dataset = load_dataset(known_source, out_of_scope="only")
        except OptionError:
            raise InputError(
                f"'{OUT_OF_SCOPE}' means the out-of-scope queries of clinc150, and '{known.name}' has none; "
                "name other data"
            ) from None
        return ood_split(dataset, ood_pair(known.name, source), shape, most=most)
    place = find_in_data_folder(source, data_folder())
    # All of a set that has no test split of its own is out of distribution: nothing of it is cut off.
    whole: Options = {"val_fraction": 0, "test_fraction": 0}
    try:
        # Folders hold images of any size: those are scaled as they are read.
        dataset = load_dataset(place, **({**whole, "size": shape[1:]} if shape else whole))
    except OptionError:
        dataset = load_dataset(place, **whole)
    if dataset.kind != known.kind:
        raise InputError(
            f"out-of-distribution data '{source}' must be {known.kind}s as '{known.name}' is, got {dataset.kind}s"
        )
    return ood_split(dataset, ood_pair(known.name, ood_name(source)), shape, most=most)


def find_in_data_folder(source: str, folder: Path) -> str:
    """The entry of the data folder with that name, else one that adds digits to it, such as dtd10_64.npz for dtd."""
    if Path(source).exists() or not folder.is_dir():
        return source
    source = source.rstrip("/")
    entries = {entry.name.split(".")[0]: entry for entry in sorted(folder.iterdir(), reverse=True)}
    longer = [n for n in sorted(entries) if re.fullmatch(re.escape(source) + r"[-_\d]+", n)]
    # A dataset's word means that dataset: cifar10 must not find cifar100.
    name = source if source in entries else next(iter(longer), "") if source not in names() else ""
    named = bool(source) and (folder / source).exists()  # with its suffix
    if not (name or named):
        return source
    entry = folder / source if named else entries[name]
    # The official archive of DTD keeps its class folders one deeper.
    return str(entry / "images" if (entry / "images").is_dir() and (entry / "labels").is_dir() else entry)
