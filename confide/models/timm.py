"""Every model of timm, by name: `timm:<name>`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from confide.core.door import InputError, MissingExtra
from confide.models.family import MODELS, Classifier


@MODELS.add("timm", paper="Wightman, 2019, PyTorch Image Models", named=True)
def timm(
    shape: tuple[int, ...], num_classes: int, *, name: str, pretrained: bool = True, dropout: float = 0.0
) -> Classifier:
    """A model of timm with a new linear head on its pooled features.

    Args:
        pretrained: start from timm's weights for that name.
        dropout: share of features dropped before the head.
    """
    try:
        import timm as library
    except ImportError:
        raise MissingExtra("timm", "timm", f"model 'timm:{name}'") from None
    if not library.is_model(name.split(".")[0]):
        near = library.list_models(f"*{name.split('_')[0]}*")[:5]
        hint = f"it has {', '.join(near)}" if near else "timm.list_models() lists them"
        raise InputError(f"timm has no model '{name}'; {hint}")
    body = _body(library, name, shape, pretrained)
    return Classifier(body, nn.Linear(feature_width(body, shape), num_classes), dropout)


def _body(library: Any, name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    options: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0, "in_chans": shape[0]}
    try:
        try:
            body: nn.Module = library.create_model(name, **options, img_size=shape[1])
        except TypeError:
            # Networks that take any size have no such argument.
            body = library.create_model(name, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if not pretrained:
            raise
        raise InputError(
            f"the weights of 'timm:{name}' could not be had ({str(error).splitlines()[0]}); put them into the hub's "
            "cache, or train from nothing with model_options.pretrained=false"
        ) from None
    return body


def feature_width(body: nn.Module, shape: tuple[int, ...]) -> int:
    """Width of a body's features, by asking it."""
    body.eval()
    with torch.no_grad():
        features = body(torch.zeros((1, *shape)))
    body.train()
    if features.ndim != 2:
        raise InputError(f"the body must give features n x d, got shape {tuple(features.shape)}; choose another model")
    return int(features.shape[1])
