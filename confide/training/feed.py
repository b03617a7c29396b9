"""Feed: the samples of one split as batches on a device, with crop and flip in one batched gather.

Resident where the inputs fit into the device's memory; otherwise read ahead by threads, through pinned memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core import random
from confide.core.records import Split
from confide.training.preparation import Preparation

PADDING = 4
AHEAD = 4


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
        with ThreadPoolExecutor(min(AHEAD, os.cpu_count() or 1)) as pool:
            waiting: deque[Future[Tensor]] = deque(pool.submit(self._read, rows) for rows in rows_of_batches[:AHEAD])
            for i, rows in enumerate(rows_of_batches):
                values = waiting.popleft().result()
                if i + AHEAD < len(rows_of_batches):
                    waiting.append(pool.submit(self._read, rows_of_batches[i + AHEAD]))
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
