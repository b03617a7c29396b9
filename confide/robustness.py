"""Trained models on corrupted, attacked and out-of-distribution data: a model on its device, calibrators and trust
fitted on clean data, and out-of-distribution samples by word or path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide import calibrators, difficulty, trust
from confide.checks import InputError
from confide.evaluation import Subject
from confide.models.device import Device
from confide.predictions import Predictions
from confide.records import Dataset, Features, Split
from confide.training import Trained

# Trained models as subjects of a grid: forward on the device, calibrators and trust fitted on clean data.

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

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
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
            logits, features = self.forward(images)
            assert features is not None
            parts.append((logits.cpu(), features.cpu()))
        logits, features = (torch.cat([part[k] for part in parts]) for k in (0, 1))
        labels = torch.as_tensor(split.labels)
        extractor = f"model:{self.trained.settings.model}"
        predictions = Predictions(logits, labels, split.ids, name, class_names=self.trained.class_names)
        return predictions, Features(features.numpy(), split.labels, split.ids, extractor, name)


@dataclass(frozen=True)
class CleanFits:
    """What is fitted on clean data beside the model."""

    calibrators: Sequence[str] = ()
    trust: Sequence[str] = ()
    rmd: bool = False
    batch_size: int = 1000
    seed: int = 0


def reference_features(runner: ModelOnDevice, dataset: Dataset, batch_size: int) -> Features:
    """Features of the training split, or of a part of it spread over the whole."""
    train = dataset.train
    rows = np.linspace(0, len(train) - 1, min(len(train), MAX_REFERENCE_SAMPLES)).round().astype(np.int64)
    return runner.outputs(train.take(rows), "train", batch_size)[1]


def make_subject(runner: ModelOnDevice, dataset: Dataset, wishes: CleanFits, identity: str) -> Subject:
    """The model with its calibrators and trust predictors, fitted on the clean validation split."""
    words = [word for word in wishes.trust if trust.TRUST.get(word).spec.trained]
    needs_val = bool(wishes.calibrators or words)
    if needs_val and ("val" not in dataset.splits or not len(dataset.val)):
        raise InputError(
            f"calibrators and trust predictors are fitted on 'val', but '{dataset.name}' has none; load it with one"
        )
    val, val_features = runner.outputs(dataset.val, "val", wishes.batch_size) if needs_val else (None, None)
    stages = {}
    for word in wishes.calibrators:
        assert val is not None
        stages[word] = calibrators.fit(word, val)
    predictors = {word: fit_trust_predictor(word, val, val_features, wishes.seed) for word in wishes.trust}
    hardness = None
    if wishes.rmd:
        fitted = difficulty.fit("rmd", reference_features(runner, dataset, wishes.batch_size))

        def hardness(features: Any, labels: Any) -> Any:
            return fitted.score(np.asarray(features), labels).values

    return Subject(runner.forward, stages, predictors, hardness, runner.attacked, identity)


@dataclass(frozen=True, eq=False)
class FixedTrust:
    """A trust predictor that needs neither fitting nor features."""

    fitted: trust.Trust

    @property
    def scale(self) -> str:
        return self.fitted.scale

    def __call__(self, predictions: Predictions, features: Any) -> Any:
        return self.fitted(predictions)


def fit_trust_predictor(word: str, val: Predictions | None, features: Features | None, seed: int) -> Any:
    """A trust predictor as a function of (predictions, features), fitted on validation data if it learns."""
    method = trust.TRUST.get(word)
    if not method.spec.trained:
        return FixedTrust(trust.fit(word))
    options = {"seed": seed} if "seed" in method.options else {}
    return trust.fit(word, val, features, **options)


# Foreign data by word or path: found in the data folder, brought to the model's shape, overlapping classes dropped.

OUT_OF_SCOPE = "out-of-scope"


def ood_name(source: str) -> str:
    """How a foreign set is called: its word, or the name of its file or folder."""
    return Path(source.rstrip("/")).name.split(".")[0] or source


def load_ood_split(
    source: str, known: Dataset, known_source: str, shape: tuple[int, ...] | None, *, most: int
) -> Split:
    """The foreign samples of a source.

    Args:
        source: a path, a word of the data room, a name in the data folder, or `out-of-scope` of the known data.
        known_source: how the known data were named; out-of-scope queries are in the same file.
        shape: of the model's images; None for other inputs.
        most: samples at most; 0 takes all.
    """
    from confide.checks import InputError, OptionError
    from confide.data import data_folder, load_dataset
    from confide.shift.ood import ood_pair, ood_split

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
    # All of a set that has no test split of its own is foreign: nothing of it is cut off.
    whole: dict[str, Any] = {"val_fraction": 0, "test_fraction": 0}
    try:
        # Folders hold images of any size: those are scaled as they are read.
        dataset = load_dataset(place, **({**whole, "size": shape[1:]} if shape else whole))
    except OptionError:
        dataset = load_dataset(place, **whole)
    if dataset.kind != known.kind:
        raise InputError(f"foreign data '{source}' must be {known.kind}s as '{known.name}' is, got {dataset.kind}s")
    return ood_split(dataset, ood_pair(known.name, ood_name(source)), shape, most=most)


def find_in_data_folder(source: str, folder: Path) -> str:
    """The entry of the data folder with that name, else one that adds digits to it, such as dtd10_64.npz for dtd."""
    from confide.data import names

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
    found = folder / source if named else entries[name]
    # The official archive of DTD keeps its class folders one deeper.
    return str(found / "images" if (found / "images").is_dir() and (found / "labels").is_dir() else found)
