"""Models: word -> nn.Module that maps inputs to logits `n c`.

A model is a function of the shape of one input and the number of classes; its keyword-only arguments are options.
Whatever it returns is a `Classifier` (a body that gives features `n d`, and a head on them), so that penultimate
features and Monte-Carlo dropout work for all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from confide.checks import InputError, check_choice, check_number, check_options, did_you_mean
from confide.registry import Method, MethodSpec, Registry
from confide.types import Options


@dataclass(frozen=True, kw_only=True)
class ModelSpec(MethodSpec):
    """What is said of a model: `takes` image, rows, text or any inputs; `named`: its word goes on with `:<name>`."""

    takes: str = "image"
    named: bool = False


MODELS = Registry("model", ModelSpec, elsewhere="confide.features.fine_tuning")
RANGES: Mapping[str, tuple[float, float]] = {
    "dropout": (0, 1),
    "width": (1, 1e6),
    "filters": (1, 1e6),
    "hidden": (0, 1e6),
    "vocabulary": (2, 1e9),
    "depth": (1, 1e4),
    "patch": (0, 1e6),
    "body_rate": (0, 1e6),
    "frozen_epochs": (0, 1e9),
}
"""Options that mean the same for every model that has them: smallest and largest value."""


class Classifier(nn.Module):
    """Logits of a body and a head: head(dropout(body(inputs))); `features` stops before the head.

    The body learns at `body_rate` times the learning rate, and not at all in the first `frozen_epochs`.
    """

    body_rate = 1.0
    frozen_epochs = 0

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
        return self.logits_of(self.features(inputs))

    def logits_of(self, features: Tensor) -> Tensor:
        """Logits of penultimate features: dropout and the head."""
        hidden = self.dropout(features)
        exact = not self.training and hidden.dtype in (torch.bfloat16, torch.float16)
        # Rounded to the eight bits of autocast, ten thousand predictions share a few hundred logits.
        with torch.autocast(hidden.device.type, enabled=False) if exact else nullcontext():
            logits: Tensor = self.head(hidden.to(next(self.head.parameters()).dtype) if exact else hidden)
        return logits


def names() -> tuple[str, ...]:
    """All model words; `timm:<name>`, `hf:<name>` and `features:<name>` stand for all of theirs.

    Returns:
        The words that `create` takes.

    Example:
        >>> from confide import models
        >>> "resnet18" in models.names(), "timm:<name>" in models.names()
        (True, True)
    """
    return tuple(f"{word}:<name>" if MODELS.get(word).spec.named else word for word in MODELS.names())


def method(word: str) -> tuple[Method[ModelSpec], Options]:
    """The registered model of a word, and the name after the colon for `timm:<name>` and `hf:<name>`.

    Args:
        word: of a model, as `names` lists them.

    Returns:
        The registered method, and `{"name": ...}` for a word with a colon, else an empty dictionary.

    Raises:
        InputError: for a word that is no model's.

    Example:
        >>> from confide import models
        >>> method, named = models.method("timm:resnet50")
        >>> method.word, named
        ('timm', {'name': 'resnet50'})
    """
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
        word: of a model, as `names` lists them.
        shape: of one input: (channels, height, width) of an image, (d,) of a row, (length,) of a text's word numbers.
        num_classes: width of the output.
        options: of the model, by name.

    Returns:
        A `Classifier`: logits when called, penultimate features by its method `features`.

    Raises:
        InputError: for an unknown word, inputs that the model does not take, or fewer than two classes.

    Example:
        >>> import torch
        >>> from confide import models
        >>> model = models.create("small_cnn", (1, 28, 28), 10, width=8)
        >>> model(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    known, named = method(word)
    check_values(known, options, named)
    kind = known.spec.takes
    if kind != "any" and len(shape) != {"image": 3, "rows": 1, "text": 1}[kind]:
        raise InputError(
            f"model '{word}' takes {kind} inputs, got inputs of shape {tuple(shape)}; choose another model"
        )
    if num_classes < 2:
        raise InputError(f"num_classes must be at least 2, got {num_classes}")
    model: Classifier = known.function(tuple(shape), num_classes, **named, **options)
    return model


def check_values(model: Method[ModelSpec], options: Options, named: Options) -> None:
    """Options of a model must be among those it has, and of the kind of their defaults."""
    check_options(model.word, "model", options, [name for name in model.options if name not in named])
    for name, value in options.items():
        default, where = model.options[name], f"{name} of model '{model.word}'"
        low, high = RANGES.get(name, (-math.inf, math.inf))
        if isinstance(default, bool):
            check_choice(value, (True, False), where)
        elif isinstance(default, (int, float)):
            check_number(value, where, default, low, high)
        elif isinstance(default, tuple):
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise InputError(f"{where} must be a list of numbers, such as [256, 128], got {value!r}")
            for number in value:
                check_number(number, where, 1, 1, high)


def parameter_count(model: nn.Module) -> int:
    """Number of trainable parameters.

    Args:
        model: any network.

    Returns:
        How many numbers an optimiser may change.

    Example:
        >>> from confide import models
        >>> models.parameter_count(models.create("mlp", (4,), 3, hidden=()))  # 4 x 3 weights and 3 biases
        15
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def check_output_width(model: nn.Module, inputs: Tensor, num_classes: int) -> None:
    """A model's output must be n x num_classes, or one line says what came.

    Args:
        model: any network; its mode is put back.
        inputs: a small batch that it takes.
        num_classes: the width that its output must have.

    Raises:
        InputError: where it has another.

    Example:
        >>> import torch
        >>> from confide import models
        >>> models.check_output_width(torch.nn.Linear(4, 3), torch.zeros(2, 4), 3)
    """
    logits = _outputs(model, inputs)
    if logits.ndim != 2 or logits.shape[1] != num_classes:
        raise InputError(
            f"the model must give one logit per class ({num_classes}), got outputs of shape {tuple(logits.shape)}; "
            "set its number of classes"
        )


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    was_training = model.training
    with torch.no_grad():
        outputs: Tensor = model.eval()(inputs)
    model.train(was_training)
    return outputs


def feature_width(body: nn.Module, inputs: Tensor) -> int:
    """Width of a body's features, by asking it; its mode is put back."""
    features = _outputs(body, inputs)
    if features.ndim != 2:
        raise InputError(f"the body must give features n x d, got shape {tuple(features.shape)}; choose another model")
    return int(features.shape[1])
