"""Models: word -> nn.Module that maps inputs to logits `n c`.

A model is a function of the shape of one input and the number of classes; its keyword-only arguments are options.
Whatever it returns is a `Classifier` (a body that gives features `n d`, and a head on them), so that penultimate
features and Monte-Carlo dropout work for all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import InputError, did_you_mean
from confide.core.registry import Method, Registry

MODELS = Registry("model")
Factory = Callable[..., "Classifier"]


class Classifier(nn.Module):
    """Logits of a body and a head: head(dropout(body(inputs))); `features` stops before the head."""

    def __init__(self, body: nn.Module, head: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def features(self, inputs: Tensor) -> Tensor:
        """Penultimate features, n d."""
        features: Tensor = self.body(inputs)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.features(inputs)))
        return logits


def names() -> tuple[str, ...]:
    """All model words; `timm:<name>` and `hf:<name>` stand for every model of these libraries."""
    return tuple(f"{word}:<name>" if MODELS.get(word).facts.get("named") else word for word in MODELS.names())


def method(word: str) -> tuple[Method, dict[str, Any]]:
    """The registered model of a word, and the name after the colon for `timm:<name>` and `hf:<name>`."""
    prefix, colon, name = word.partition(":")
    if colon and prefix in MODELS and MODELS.get(prefix).facts.get("named"):
        if not name:
            raise InputError(f"model '{word}' must name a model after the colon, such as '{prefix}:resnet18'")
        return MODELS.get(prefix), {"name": name}
    if word not in MODELS or MODELS.get(word).facts.get("named"):
        raise InputError(f"no model named '{word}'; {did_you_mean(word, names())}")
    return MODELS.get(word), {}


def create(word: str, shape: tuple[int, ...], num_classes: int, **options: Any) -> Classifier:
    """The model of a word for inputs of this shape.

    Args:
        shape: of one input: (channels, height, width) of an image, (d,) of a row, (length,) of a text's word numbers.
        num_classes: width of the output.
        options: of the model, by name.
    """
    found, named = method(word)
    found.check_options(options)
    kind = found.facts.get("takes", "image")
    if kind != "any" and len(shape) != {"image": 3, "rows": 1, "text": 1}[kind]:
        raise InputError(
            f"model '{word}' takes {kind} inputs, got inputs of shape {tuple(shape)}; choose another model"
        )
    if num_classes < 2:
        raise InputError(f"num_classes must be at least 2, got {num_classes}")
    model: Classifier = found.function(tuple(shape), num_classes, **named, **options)
    return model


def parameter_count(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def check_output_width(model: nn.Module, inputs: Tensor, num_classes: int) -> None:
    """A model's output must be n x num_classes."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(inputs)
    model.train(was_training)
    if logits.ndim != 2 or logits.shape[1] != num_classes:
        raise InputError(
            f"the model must give one logit per class ({num_classes}), got outputs of shape {tuple(logits.shape)}; "
            "set its number of classes"
        )
