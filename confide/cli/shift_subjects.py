"""Trained models as subjects of a grid: forward on the device, calibrators and trust fitted on clean data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide import calibrators, difficulty, trust
from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Features, Split
from confide.evaluation import Subject
from confide.training import Trained
from confide.training.device import Device

MOST_REFERENCE = 20_000
"""Training samples that Gaussians and neighbours are fitted on, at most."""


@dataclass(frozen=True, eq=False)
class Runner:
    """A trained image model placed on a device."""

    trained: Trained
    where: Device

    @classmethod
    def of(cls, trained: Trained, device: str) -> Runner:
        where = Device.of(trained.settings.changed(device=device))
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
class Wishes:
    """What is fitted on clean data beside the model."""

    calibrators: Sequence[str] = ()
    trust: Sequence[str] = ()
    rmd: bool = False
    batch_size: int = 1000
    seed: int = 0


def reference_of(runner: Runner, dataset: Dataset, batch_size: int) -> Features:
    """Features of the training split, or of a part of it spread over the whole."""
    train = dataset.train
    rows = np.linspace(0, len(train) - 1, min(len(train), MOST_REFERENCE)).round().astype(np.int64)
    return runner.outputs(train.take(rows), "train", batch_size)[1]


def subject_of(runner: Runner, dataset: Dataset, wishes: Wishes, identity: str) -> Subject:
    """The model with its calibrators and trust predictors, fitted on the clean validation split."""
    words = [word for word in wishes.trust if trust.TRUST.get(word).facts["trained"]]
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
    predictors = {word: fitted_trust(word, val, val_features, wishes.seed) for word in wishes.trust}
    hardness = None
    if wishes.rmd:
        fitted = difficulty.fit("rmd", reference_of(runner, dataset, wishes.batch_size))

        def hardness(features: Any, labels: Any) -> Any:
            return fitted.score(np.asarray(features), labels).values

    return Subject(runner.forward, stages, predictors, hardness, runner.attacked, identity)


@dataclass(frozen=True, eq=False)
class Untaught:
    """A trust predictor that needs neither fitting nor features."""

    fitted: trust.Trust

    @property
    def scale(self) -> str:
        return self.fitted.scale

    def __call__(self, predictions: Predictions, features: Any) -> Any:
        return self.fitted(predictions)


def fitted_trust(word: str, val: Predictions | None, features: Features | None, seed: int) -> Any:
    """A trust predictor as a function of (predictions, features), fitted on validation data if it learns."""
    method = trust.TRUST.get(word)
    if not method.facts["trained"]:
        return Untaught(trust.fit(word))
    options = {"seed": seed} if "seed" in method.options else {}
    return trust.fit(word, val, features, **options)
