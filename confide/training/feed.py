"""Which samples train (validation split, label noise, order of every epoch) and how they reach the device as
batches, with crop and flip in one batched gather.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import random
from confide.checks import InputError
from confide.models.preparation import Preparation
from confide.records import Dataset, Split
from confide.training.settings import Settings

# Which samples train: validation split, label noise and the order of every epoch, all drawn by seed and sample id.


@dataclass(frozen=True, eq=False)
class TrainingSamples:
    """Training and validation samples of a run; `clean_labels` are the training labels before noise."""

    train: Split
    val: Split | None
    clean_labels: NDArray[np.int64]


def choose_samples(dataset: Dataset, settings: Settings) -> TrainingSamples:
    """The dataset's own splits, or a stratified validation split held out by seed; then label noise on train."""
    train = dataset.train
    check_training_labels(dataset, train)
    val = dataset.splits.get("val")
    if val is None and settings.val_fraction:
        fractions = {"val": settings.val_fraction}
        rows = random.split(train.ids, train.labels, fractions, seed=settings.seed, purpose="validation")
        train, val = train.take(rows["train"]), train.take(rows["val"])
    if val is not None and not len(val):
        val = None
    noisy = random.noisy_labels(
        train.labels,
        settings.label_noise,
        num_classes=dataset.num_classes,
        ids=train.ids,
        seed=settings.seed,
        draw="rotation",
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
            "drop that sample or name its class"
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


# Feed: the samples of one split as batches on a device, with crop and flip in one batched gather.
#
# Resident where the inputs fit into the device's memory; otherwise read ahead by threads, through pinned memory.

PADDING = 4
READ_AHEAD = 4


class Feed:
    """Batches of a split: `start_epoch`, then `batches(rows of each batch)`; `gather(rows)` where resident."""

    def __init__(
        self,
        split: Split,
        preparation: Preparation,
        device: torch.device,
        *,
        augment: str = "none",
        seed: int = 0,
        memory_budget: int | None = None,
        mirror_twice: bool = False,
    ) -> None:
        self.preparation, self.device, self.augment, self.seed = preparation, device, augment, seed
        self.image = preparation.kind == "image"
        self.mirror_twice = mirror_twice and self.image
        self.padding = PADDING if self.image and "crop" in augment else 0
        self.labels = torch.as_tensor(split.labels, dtype=torch.int64).to(device)
        self.keys = random.sample_keys(split.ids)
        self.source: Any = split.inputs
        if preparation.kind == "text":
            self.source = preparation.encode([str(text) for text in split.inputs])
        self.mean = torch.tensor(preparation.mean, dtype=torch.float32, device=device)
        self.scale = 1 / torch.tensor(preparation.std, dtype=torch.float32, device=device)
        self.down = self.across = self.mirror = torch.zeros(0, dtype=torch.int64, device=device)
        budget = _budget(device) if memory_budget is None else memory_budget
        self.resident = self._bytes() <= budget
        self.inputs = self._to_device(self._read(np.arange(len(self)))) if self.resident else None
        if self.image and augment != "none":
            self._make_draw_buffers()

    def __len__(self) -> int:
        return len(self.labels)

    def _bytes(self) -> int:
        if len(self) == 0:
            return 0
        one = np.asarray(self.source[np.arange(1)])
        grown = np.prod([extent + 2 * self.padding for extent in one.shape[2:]]) / max(np.prod(one.shape[2:]), 1)
        return int(one.nbytes * grown * len(self))

    def _read(self, rows: NDArray[np.integer]) -> Tensor:
        values = self.source if len(rows) == len(self) and isinstance(self.source, np.ndarray) else self.source[rows]
        values = np.ascontiguousarray(values)
        tensor = torch.from_numpy(values if values.flags.writeable else values.copy())
        return tensor.pin_memory() if self.device.type == "cuda" and not self.resident else tensor

    def _to_device(self, values: Tensor) -> Tensor:
        values = values.to(self.device, non_blocking=True)
        if not self.image:
            return values
        # Channels last, so that a batch is one gather of pixels; the border of zeros is what a crop may show.
        values = values.permute(0, 2, 3, 1).contiguous()
        border = self.padding
        return torch.nn.functional.pad(values, (0, 0, border, border, border, border)) if border else values

    def _make_draw_buffers(self) -> None:
        for name in ("down", "across", "mirror"):
            setattr(self, name, torch.zeros(len(self), dtype=torch.int64, device=self.device))

    def start_epoch(self, epoch: int) -> None:
        """Draw this epoch's crop and flip of every sample, keyed by seed, epoch and id."""
        if not len(self.mirror):
            return
        draws = random.uniform(self.seed, self.keys, "augment", counter=epoch, draws=3)
        reach = 2 * self.padding + 1
        # In place: a captured CUDA graph keeps reading the same memory.
        self.down.copy_(torch.from_numpy((draws[:, 0] * reach).astype(np.int64)))
        self.across.copy_(torch.from_numpy((draws[:, 1] * reach).astype(np.int64)))
        if "flip" in self.augment:
            self.mirror.copy_(torch.from_numpy((draws[:, 2] < 0.5).astype(np.int64)))

    def gather(self, rows: Tensor) -> Tensor:
        """Prepared inputs of these rows (a tensor on the device); needs a resident feed."""
        assert self.inputs is not None
        return self._prepare(self.inputs, rows, rows)

    def _prepare(self, stored: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        if not self.image:
            values = stored[places]
            return values if values.dtype == torch.int64 else values.to(torch.float32).sub(self.mean).mul(self.scale)
        values = self._cut(stored, places, rows) if len(self.mirror) else stored[places]
        return values.to(torch.float32).sub_(self.mean).mul_(self.scale).permute(0, 3, 1, 2)

    def _cut(self, stored: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        full_height, full_width, channels = stored.shape[1:]
        height, width = full_height - 2 * self.padding, full_width - 2 * self.padding
        y = torch.arange(height, device=self.device) + self.down[rows, None]
        x = torch.arange(width, device=self.device)[None, :]
        mirror = self.mirror[rows, None]
        x = mirror * (width - 1 - x) + (1 - mirror) * x + self.across[rows, None]
        pixels = ((places[:, None] * full_height + y) * full_width)[:, :, None] + x[:, None, :]
        return stored.view(-1, channels).index_select(0, pixels.view(-1)).view(*pixels.shape, channels)

    def batches(self, rows_of_batches: list[NDArray[np.int64]]) -> Iterator[tuple[Tensor, Tensor]]:
        """(inputs, rows) of every batch, in order; read ahead where the split is not resident."""
        if self.resident:
            for rows in rows_of_batches:
                at = torch.from_numpy(rows).to(self.device, non_blocking=True)
                yield self.gather(at), at
            return
        with ThreadPoolExecutor(min(READ_AHEAD, os.cpu_count() or 1)) as pool:
            waiting: deque[Future[Tensor]] = deque(
                pool.submit(self._read, rows) for rows in rows_of_batches[:READ_AHEAD]
            )
            for i, rows in enumerate(rows_of_batches):
                values = waiting.popleft().result()
                if i + READ_AHEAD < len(rows_of_batches):
                    waiting.append(pool.submit(self._read, rows_of_batches[i + READ_AHEAD]))
                at = torch.from_numpy(rows).to(self.device, non_blocking=True)
                yield self._prepare(self._to_device(values), torch.arange(len(rows), device=self.device), at), at


def _budget(device: torch.device) -> int:
    """Bytes of inputs that may live on the device: half of what is free."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] // 2)
    try:
        return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    except (ValueError, OSError, AttributeError):
        return 4 << 30
