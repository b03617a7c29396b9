"""Out-of-fold predictions of a training split: honest errors for an oracle to learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from confide.core.door import check_range
from confide.core.predictions import Predictions
from confide.core.records import Dataset
from confide.training.loop import fit
from confide.training.predict import predict
from confide.training.settings import Settings
from confide.trust.errors import class_folds


def cross_fit(dataset: Dataset, settings: Settings, *, folds: int = 5, split: str = "train") -> Predictions:
    """Out-of-fold predictions of the training split: K classifiers, each trained without the fold it predicts."""
    check_range(folds, "folds", 2)
    samples = dataset.split(split)
    fold = class_folds(np.asarray(samples.labels), samples.ids, folds, settings.seed)
    logits = torch.empty(len(samples), dataset.num_classes)
    for one in range(folds):
        inside, outside = np.flatnonzero(fold == one), np.flatnonzero(fold != one)
        part = replace(dataset, splits={**dataset.splits, split: samples.take(outside)})
        said = predict(fit(part, settings), samples.take(inside), split)
        logits[torch.from_numpy(inside)] = said.logits.float()
    return Predictions(logits, torch.as_tensor(samples.labels), samples.ids, split, class_names=dataset.class_names)
