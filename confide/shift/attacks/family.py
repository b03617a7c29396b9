"""Adversaries: `(model, images in [0, 1], labels, *, options) -> images`, bounded and seeded; `attack` is the door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError, check_labels, check_range
from confide.core.random import sample_keys
from confide.core.random_torch import Draws
from confide.core.records import check_ids, default_ids
from confide.core.registry import Registry
from confide.shift.family import check_images

ATTACKS = Registry("attack")
Model = Callable[[Tensor], Tensor]
"""Images `n c h w` in [0, 1] -> logits `n k`, differentiable; normalisation belongs into it."""


def names() -> tuple[str, ...]:
    """All words."""
    return ATTACKS.names()


def attack(
    model: Model,
    images: Tensor,
    labels: Any,
    word: str,
    *,
    ids: Any = None,
    seed: int = 0,
    batch_size: int = 500,
    **options: Any,
) -> Tensor:
    """Images (uint8 or float in [0, 1]) changed within the bound so that the model errs; same type, made on the fly.

    Args:
        labels: true classes.
        ids: key the random start, so that an image gets the same one in any batch.
        options: of the attack, such as `epsilon`, the largest change of a value in [0, 1].
    """
    method = ATTACKS.get(word)
    method.check_options(options)
    check_images(images)
    check_attack(images, word)
    settings = {**method.options, **options}
    check_range(settings["epsilon"], "epsilon", 0, 1)
    if settings.get("steps", 1) < 1:
        raise InputError(f"steps must be at least 1, got {settings['steps']}")
    truth = check_labels(torch.as_tensor(labels), len(images), None).to(images.device)
    keys = sample_keys(default_ids(len(images)) if ids is None else check_ids(ids, len(images)))
    result = torch.empty_like(images)
    for start in range(0, len(images), batch_size):
        rows = slice(start, start + batch_size)
        part = images[rows]
        values = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        draws = Draws(seed, keys[rows], f"attack/{word}", images.device)
        made = method.function(model, values, truth[rows], draws=draws, **options).detach()
        if part.dtype == torch.uint8:
            # Towards the clean level, so that rounding never breaks the bound.
            clean = part.float()
            made = clean + torch.trunc((made * 255 - clean) * (1 + 1e-5))
        result[rows] = made.to(images.dtype)
    return result


def check_attack(images: Tensor, word: str) -> None:
    """An attack on colours needs them."""
    if ATTACKS.get(word).facts.get("colour") and images.shape[1] != 3:
        raise InputError(f"attack '{word}' changes colours, but the images have one channel; leave it out")


def loss_gradient(model: Model, images: Tensor, labels: Tensor, variable: Tensor) -> Tensor:
    """Gradient of the summed cross-entropy of model(images) with respect to a variable the images were made of."""
    loss = torch.nn.functional.cross_entropy(model(images).float(), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, variable)
    return gradient
