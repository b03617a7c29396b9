"""How raw inputs become the tensors a model sees; fitted on the training split and kept with the checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError, MissingExtra
from confide.files.formats import plain
from confide.records import Dataset, Split

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

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionary; `from_dict` reads it back."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preparation:
        """The preparation of a checkpoint."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
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

    def encode(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Word numbers of texts, n x length, padded with 0 and cut."""
        length = self.shape[0]
        if self.tokenizer:
            return _pretrained_encode(self.tokenizer, texts, length)
        number = {word: i + 2 for i, word in enumerate(self.words)}
        rows = np.full((len(texts), length), PAD, dtype=np.int64)
        for i, text in enumerate(texts):
            found = [number.get(word, UNKNOWN) for word in words_of(text)[:length]]
            rows[i, : len(found)] = found
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
