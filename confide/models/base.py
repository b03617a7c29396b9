"""Models: word -> nn.Module that maps inputs to logits `n c`.

A model is a function of the shape of one input and the number of classes; its keyword-only arguments are options.
Whatever it returns is a `Classifier` (a body that gives features `n d`, and a head on them), so that penultimate
features and Monte-Carlo dropout work for all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from confide.checks import InputError, check_choice, check_number, check_options, did_you_mean
from confide.registry import Method, MethodSpec, Registry


@dataclass(frozen=True, kw_only=True)
class ModelSpec(MethodSpec):
    """What is said of a model: `takes` image, rows, text or any inputs; `named`: its word goes on with `:<name>`."""

    takes: str = "image"
    named: bool = False


MODELS = Registry("model", ModelSpec)
RANGES: Mapping[str, tuple[float, float]] = {
    "dropout": (0, 1),
    "width": (1, 1e6),
    "filters": (1, 1e6),
    "hidden": (0, 1e6),
    "vocabulary": (2, 1e9),
    "depth": (1, 1e4),
    "patch": (0, 1e6),
}
"""Options that mean the same for every model that has them: smallest and largest value."""
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
        hidden = self.dropout(self.features(inputs))
        exact = not self.training and hidden.dtype in (torch.bfloat16, torch.float16)
        # Rounded to the eight bits of autocast, ten thousand predictions share a few hundred logits.
        with torch.autocast(hidden.device.type, enabled=False) if exact else nullcontext():
            logits: Tensor = self.head(hidden.to(next(self.head.parameters()).dtype) if exact else hidden)
        return logits


def names() -> tuple[str, ...]:
    """All model words; `timm:<name>` and `hf:<name>` stand for every model of these libraries."""
    return tuple(f"{word}:<name>" if MODELS.get(word).spec.named else word for word in MODELS.names())


def method(word: str) -> tuple[Method[ModelSpec], dict[str, Any]]:
    """The registered model of a word, and the name after the colon for `timm:<name>` and `hf:<name>`."""
    prefix, colon, name = word.partition(":")
    if colon and prefix in MODELS and MODELS.get(prefix).spec.named:
        if not name:
            raise InputError(f"model '{word}' must name a model after the colon, such as '{prefix}:resnet18'")
        return MODELS.get(prefix), {"name": name}
    if word not in MODELS or MODELS.get(word).spec.named:
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
    check_values(found, options, named)
    kind = found.spec.takes
    if kind != "any" and len(shape) != {"image": 3, "rows": 1, "text": 1}[kind]:
        raise InputError(
            f"model '{word}' takes {kind} inputs, got inputs of shape {tuple(shape)}; choose another model"
        )
    if num_classes < 2:
        raise InputError(f"num_classes must be at least 2, got {num_classes}")
    model: Classifier = found.function(tuple(shape), num_classes, **named, **options)
    return model


def check_values(found: Method[ModelSpec], options: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """Options of a model must be among those it has, and of the kind of their defaults."""
    check_options(found.word, "model", options, [name for name in found.options if name not in named])
    for name, value in options.items():
        usual, where = found.options[name], f"{name} of model '{found.word}'"
        low, high = RANGES.get(name, (-math.inf, math.inf))
        if isinstance(usual, bool):
            check_choice(value, (True, False), where)
        elif isinstance(usual, (int, float)):
            check_number(value, where, usual, low, high)
        elif isinstance(usual, tuple):
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise InputError(f"{where} must be a list of numbers, such as [256, 128], got {value!r}")
            for one in value:
                check_number(one, where, 1, 1, high)


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
