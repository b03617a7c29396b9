"""Which samples train: validation split, label noise and the order of every epoch, all drawn by seed and sample id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from confide import random
from confide.checks import InputError, label_hint
from confide.records import Dataset, Split
from confide.training.settings import Settings


@dataclass(frozen=True, eq=False)
class TrainingSamples:
    """Training and validation samples of a run; `clean_labels` are the training labels before noise."""

    train: Split
    val: Split | None
    clean_labels: NDArray[np.int64]


def choose_samples(dataset: Dataset, settings: Settings) -> TrainingSamples:
    """The dataset's own splits, or a stratified validation split held out by seed; then label noise on train."""
    train, seed = dataset.train, settings.seed
    check_training_labels(dataset, train)
    val = dataset.splits.get("val")
    if val is None and settings.val_fraction:
        fractions = {"val": settings.val_fraction}
        rows = random.split(train.ids, train.labels, fractions, seed=seed, purpose="validation")
        train, val = train.take(rows["train"]), train.take(rows["val"])
    if val is not None and not len(val):
        val = None
    noisy = random.noisy_labels(
        train.labels, settings.label_noise, num_classes=dataset.num_classes, ids=train.ids, seed=seed, draw="rotation"
    )
    return TrainingSamples(Split(train.inputs, noisy, train.ids, train.columns), val, train.labels)


def check_training_labels(dataset: Dataset, train: Split) -> None:
    """Training labels must be class numbers of the dataset."""
    if not len(train):
        raise InputError(f"dataset '{dataset.name}' must have training samples, got none")
    wrong = (train.labels < 0) | (train.labels >= dataset.num_classes)
    if wrong.any():
        bad = int(wrong.nonzero()[0][0])
        raise InputError(
            f"labels must lie in [0, {dataset.num_classes}), got {train.labels[bad]} at training sample {bad}; "
            f"{label_hint(int(train.labels.min()), int(train.labels.max()))}"
        )


class EpochOrder:
    """The batches of every epoch: a shuffle keyed by (seed, epoch, id), or draws that favour no group."""

    def __init__(self, train: Split, settings: Settings, groups: NDArray[np.int64] | None, world: int = 1) -> None:
        self.keys = random.sample_keys(train.ids)
        self.seed, self.batch_size = settings.seed, settings.batch_size
        self.groups = groups
        whole, rest = divmod(len(train), settings.batch_size)
        # A last batch too small for batch statistics on every process is left out.
        self.steps = whole + (rest >= 2 * world or (rest > 0 and whole == 0))

    def rows(self, epoch: int) -> NDArray[np.int64]:
        """Rows of the training split in the order of this epoch."""
        if self.groups is None:
            return random.order(self.seed, self.keys, "order", counter=epoch)
        positions = np.arange(len(self.keys), dtype=np.uint64)
        draws = random.uniform(self.seed, positions, "groups", counter=epoch)
        sizes = np.bincount(self.groups)
        share = 1 / sizes[self.groups] / (sizes > 0).sum()
        return np.minimum(np.searchsorted(np.cumsum(share), draws, side="right"), len(share) - 1).astype(np.int64)

    def batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """The rows of each batch of this epoch."""
        rows = self.rows(epoch)
        size = self.batch_size
        return [rows[i * size : (i + 1) * size] for i in range(self.steps)]
