"""Words -> extractors that turn inputs into feature rows: registry and door.

A factory `(name, *, options) -> Extractor` is registered per word; words with a colon (`timm:resnet50`) pass what
stands behind it as the name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.core.door import InputError, did_you_mean
from confide.core.records import Dataset, Split
from confide.core.registry import Method, Registry

EXTRACTORS = Registry("extractor")


@dataclass(frozen=True, eq=False)
class Extractor:
    """How one input is prepared (in decoding workers) and how a batch of prepared inputs becomes rows `n d`."""

    name: str
    kind: str  # "image", "text" or "rows": what the inputs are
    prepare: Callable[[Any], Any]
    encode: Callable[[Any], Tensor]
    collate: Callable[[list[Any]], Any] = torch.stack
    module: nn.Module | None = None
    encode_text: Callable[[list[str]], Tensor] | None = None
    rows_of: Callable[[Split], NDArray[Any]] | None = None
    """Where a whole split is turned into rows at once, instead of prepare and encode."""


def split_word(word: str) -> tuple[Method, str]:
    """The registered method of a word and what stands behind its colon."""
    head, _, name = word.partition(":")
    known = {m.word: m for m in EXTRACTORS}
    if f"{head}:" in known and name:
        return known[f"{head}:"], name
    if word in known:
        return known[word], ""
    shown = [w + "<name>" if w.endswith(":") else w for w in known]
    raise InputError(f"no extractor named '{word}'; {did_you_mean(word, shown)}")


def create(word: str, **options: Any) -> Extractor:
    """The extractor of a word."""
    method, name = split_word(word)
    method.check_options(options)
    extractor: Extractor = method.function(name, **options)
    return extractor


def usual(dataset: Dataset, split: str = "train") -> str:
    """The extractor's word where none was chosen: what the data carries, else one that suits its kind."""
    if "features" in dataset.split(split).columns:
        return "cached"
    return {"text": "minilm", "rows": "pixels"}.get(dataset.kind, "efficientnet_lite0")


def names() -> tuple[str, ...]:
    """All words; those that end in a colon take a name behind it."""
    return EXTRACTORS.names()
