"""How raw inputs become the tensors a model sees: a `Preparation`, fitted on the training split and kept with the
checkpoint, and a `Feed` that gives the prepared samples of a split as batches on a device.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import random
from confide.checks import InputError, MissingExtra
from confide.files.formats import plain
from confide.records import Dataset, Split
from confide.types import JsonObject

PAD, UNKNOWN = 0, 1
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Preparation:
    """Scaling of images and rows by mean and std per channel, or the word numbers of texts.

    `mean` and `std` are in the units of the raw inputs. `tokenizer` names the one of a pre-trained text model.
    """

    kind: str  # "image", "rows" or "text"
    shape: tuple[int, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    tokenizer: str = ""

    def as_dict(self) -> JsonObject:
        """Plain dictionary; `from_dict` reads it back."""
        values: JsonObject = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: JsonObject) -> Preparation:
        """The preparation of a checkpoint."""
        fields: JsonObject = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fields)

    def check(self, split: Split, where: str) -> None:
        """Inputs must have the shape this preparation was fitted on."""
        if self.kind == "text":
            if len(split) and not isinstance(split.inputs[0], str):
                raise InputError(
                    f"inputs of {where} must be texts as in training, got {type(split.inputs[0]).__name__}"
                )
            return
        shape = input_shape(split)
        if shape != self.shape:
            raise InputError(
                f"inputs of {where} must have shape {self.shape} as in training, got {shape}; convert them first"
            )

    def blank(self, n: int) -> Tensor:
        """n prepared inputs of zeros, to ask a network for shapes."""
        return torch.zeros((n, *self.shape), dtype=torch.int64 if self.kind == "text" else torch.float32)

    def encode(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Word numbers of texts, n x length, padded with 0 and cut."""
        length = self.shape[0]
        if self.tokenizer:
            return _pretrained_encode(self.tokenizer, texts, length)
        number = {word: i + 2 for i, word in enumerate(self.words)}
        rows = np.full((len(texts), length), PAD, dtype=np.int64)
        for i, text in enumerate(texts):
            numbers = [number.get(word, UNKNOWN) for word in words_of(text)[:length]]
            rows[i, : len(numbers)] = numbers
        return rows


def words_of(text: str) -> list[str]:
    """Lower-case words and signs of a text."""
    return _WORD.findall(text.lower())


def input_shape(split: Split) -> tuple[int, ...]:
    """Shape of one input, from the array's or by looking at the first."""
    shape = getattr(split.inputs, "shape", None)
    if shape is None:
        shape = (0, *np.asarray(split.inputs[np.arange(1)]).shape[1:])
    return tuple(int(extent) for extent in shape[1:])


def fit_preparation(dataset: Dataset, train: Split, *, model: str, vocabulary: int = 20_000) -> Preparation:
    """The preparation for a dataset, from its training split alone."""
    if not len(train):
        raise InputError(f"dataset '{dataset.name}' must have training samples, got none")
    if dataset.kind == "text":
        texts = [str(text) for text in train.inputs]
        lengths = [len(words_of(text)) for text in texts]
        length = int(min(max(np.quantile(lengths, 0.98), 8), 512))
        if model.startswith("hf:"):
            return Preparation("text", (min(2 * length, 512),), tokenizer=model[3:])
        counts = Counter(word for text in texts for word in words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return Preparation("text", (length,), words=tuple(ranked[: vocabulary - 2]))
    if model.startswith("features:"):
        # The extractor has a normalisation of its own, of levels.
        channels = input_shape(train)[0]
        return Preparation(dataset.kind, input_shape(train), (0.0,) * channels, (1.0,) * channels)
    mean, std = _channel_moments(train, dataset.kind)
    return Preparation(dataset.kind, input_shape(train), mean, std)


def _channel_moments(train: Split, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    # Images per channel over at most 10,000 evenly spread samples; rows per column over all.
    n = len(train)
    chosen = np.unique(np.linspace(0, n - 1, min(n, 10_000)).astype(np.int64)) if kind == "image" else np.arange(n)
    channels = input_shape(train)[0]
    total, square = torch.zeros(channels, dtype=torch.float64), torch.zeros(channels, dtype=torch.float64)
    count = 0
    for start in range(0, len(chosen), 1000):
        block = torch.as_tensor(np.asarray(train.inputs[chosen[start : start + 1000]]))
        block = block.flatten(2) if kind == "image" else block[:, :, None]
        # Whole numbers up to 255 are exact in float32, and so are their squares; rows keep all their digits.
        wide = block.to(torch.float32 if block.dtype == torch.uint8 else torch.float64)
        total += wide.sum(dim=(0, 2), dtype=torch.float64)
        square += wide.square().sum(dim=(0, 2), dtype=torch.float64)
        count += block.shape[0] * block.shape[2]
    mean = total / count
    std = (square / count - mean.square()).clamp_min(0).sqrt()
    if not bool(torch.isfinite(mean).all()):
        raise InputError("training inputs must be finite, got NaN or infinity; mend or drop those samples")
    # A constant channel has no scale of its own.
    std = torch.where(std > 1e-12, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _pretrained_encode(name: str, texts: Sequence[str], length: int) -> NDArray[np.int64]:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtra("transformers", "text", f"model 'hf:{name}'") from None
    tokenizer = AutoTokenizer.from_pretrained(name)
    coded = tokenizer(list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="np")
    ids: NDArray[np.int64] = coded["input_ids"].astype(np.int64)
    # Masked places become -1: the model must not depend on which number pads.
    return np.where(coded["attention_mask"] == 1, ids, -1)


# ---- Batches on a device, with crop and flip in one batched gather ----
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
            for name in ("down", "across", "mirror"):
                setattr(self, name, torch.zeros(len(self), dtype=torch.int64, device=device))

    def __len__(self) -> int:
        return len(self.labels)

    def _bytes(self) -> int:
        if len(self) == 0:
            return 0
        image = np.asarray(self.source[np.arange(1)])
        grown = np.prod([extent + 2 * self.padding for extent in image.shape[2:]]) / max(np.prod(image.shape[2:]), 1)
        return int(image.nbytes * grown * len(self))

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


def rows_in_batches(n: int, batch_size: int) -> list[NDArray[np.int64]]:
    """Rows 0..n-1 cut into batches."""
    return [np.arange(start, min(start + batch_size, n), dtype=np.int64) for start in range(0, n, batch_size)]
