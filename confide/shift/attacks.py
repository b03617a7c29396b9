"""Adversaries: `(model, images in [0, 1], labels, *, options) -> images`, bounded and seeded; `attack` applies one
by its word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError, check_ids, check_labels, check_range
from confide.random import Draws, sample_keys
from confide.records import default_ids
from confide.registry import MethodSpec, Registry
from confide.shift.base import check_images


@dataclass(frozen=True, kw_only=True)
class AttackSpec(MethodSpec):
    """What is said of an attack: `colour` needs three channels."""

    colour: bool = False


ATTACKS = Registry("attack", AttackSpec)
Model = Callable[[Tensor], Tensor]
"""Images `n c h w` in [0, 1] -> logits `n k`, differentiable; normalisation belongs into it."""


def names() -> tuple[str, ...]:
    """All words, sorted.

    Returns:
        Words that `attack` takes.

    Example:
        >>> confide.shift.attacks.names()
        ('fgsm', 'pgd', 'recolour')
    """
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
        model: images `n c h w` in [0, 1] to logits, differentiable; normalisation belongs into it.
        images: to change.
        labels: true classes.
        word: `fgsm`, `pgd` or `recolour`.
        ids: key the random start, so that an image gets the same one in any batch.
        seed: of the random start.
        batch_size: images at a time.
        options: of the attack, such as `epsilon`, the largest change of a value in [0, 1].

    Returns:
        The images that were attacked.

    Raises:
        InputError: there is no such attack, or these images cannot have it.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images = torch.full((1, 1, 2, 2), 0.5)
        >>> changed = confide.shift.attack(model, images, [0], "fgsm", epsilon=0.1)
        >>> (changed - images).abs().max()
        tensor(0.1000)
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
        attacked = method.function(model, values, truth[rows], draws=draws, **options).detach()
        if part.dtype == torch.uint8:
            # Towards the clean level, so that rounding never breaks the bound.
            clean = part.float()
            attacked = clean + torch.trunc((attacked * 255 - clean) * (1 + 1e-5))
        result[rows] = attacked.to(images.dtype)
    return result


def check_attack(images: Tensor, word: str) -> None:
    """Refuse an attack on colours where images have none.

    Args:
        images: `n c h w`.
        word: of the attack.

    Raises:
        InputError: the attack needs three channels.

    Example:
        >>> import torch
        >>> confide.shift.check_attack(torch.zeros(1, 3, 8, 8), "recolour")
    """
    if ATTACKS.get(word).spec.colour and images.shape[1] != 3:
        raise InputError(f"attack '{word}' changes colours, but the images have one channel; leave it out")


def loss_gradient(model: Model, images: Tensor, labels: Tensor, variable: Tensor) -> Tensor:
    """Gradient of the summed cross-entropy of model(images) with respect to a variable the images were made of."""
    loss = torch.nn.functional.cross_entropy(model(images).float(), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, variable)
    return gradient


@ATTACKS.add("fgsm", paper="Goodfellow et al., 2015, arXiv:1412.6572", corners=({"epsilon": 0.0},))
def fgsm(model: Model, images: Tensor, labels: Tensor, *, draws: Draws, epsilon: float = 8 / 255) -> Tensor:
    """Fast gradient sign, x + epsilon sign(gradient of the loss).

    When: a quick look at how fragile a network is.
    When not: robustness is claimed: one step finds little.

    Args:
        epsilon: largest change of a value; 0 leaves the image.
    """
    variable = images.clone().requires_grad_(True)
    gradient = loss_gradient(model, variable, labels, variable)
    return (images + epsilon * gradient.sign()).clamp(0.0, 1.0)


@ATTACKS.add(
    "pgd", paper="Madry et al., 2018, arXiv:1706.06083", corners=({"epsilon": 0.0}, {"steps": 1}, {"step_size": 0.5})
)
def pgd(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    draws: Draws,
    epsilon: float = 8 / 255,
    steps: int = 10,
    step_size: float = 0.25,
) -> Tensor:
    """Projected gradient, x <- within epsilon of the image(x + step sign(gradient)), from a random start.

    When: robustness within a small change of pixels is claimed.
    When not: natural changes are the fear: use the corruptions.

    Args:
        epsilon: largest change of a value; 0 leaves the image.
        steps: how many; the paper takes 7 to 20.
        step_size: of a step, as a share of epsilon; the paper takes 0.25.
    """
    start = draws.uniform("start", *images.shape[1:]).mul_(2.0).sub_(1.0)
    current = (images + epsilon * start).clamp(0.0, 1.0)
    for _ in range(steps):
        variable = current.detach().requires_grad_(True)
        gradient = loss_gradient(model, variable, labels, variable)
        moved = current + step_size * epsilon * gradient.sign()
        current = moved.clamp(images - epsilon, images + epsilon).clamp(0.0, 1.0)
    return current


# One smooth change of all colours at once, so that like colours stay alike.


@ATTACKS.add(
    "recolour",
    paper="Laidlaw and Feizi, 2019, arXiv:1906.00001",
    corners=({"epsilon": 0.0}, {"steps": 1}, {"cells": 2}, {"smoothness": 0.0}),
    colour=True,
)
def recolour(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    draws: Draws,
    epsilon: float = 0.06,
    steps: int = 20,
    cells: int = 8,
    smoothness: float = 0.05,
) -> Tensor:
    """Functional adversarial attack, x -> x + f(colour of x), f linear between the points of a grid of colours.

    Differs from the paper: the grid lies in RGB instead of CIELUV, and steps follow the sign of the gradient.

    When: changes of colour that people accept are feared.
    When not: pictures are grey.

    Args:
        epsilon: largest change of a channel; 0 leaves the image. Default: the choice of the paper.
        steps: of the search.
        cells: grid points along a side of the colour cube.
        smoothness: pull of neighbouring grid points towards each other, against a loss of 1.
    """
    n = len(images)
    # grid_sample reads places in [-1, 1] as (x, y, z); all pixels of an image are one row of places.
    places = (images * 2 - 1).flatten(2).transpose(1, 2)[:, None, None]
    table = draws.uniform("start", 3, cells, cells, cells).mul_(0.2).sub_(0.1).mul_(epsilon)
    for number in range(steps):
        variable = table.detach().requires_grad_(True)
        gradient = loss_gradient(model, _applied(images, variable, places), labels, variable)
        if smoothness:
            current = variable.detach().requires_grad_(True)
            (pull,) = torch.autograd.grad(_roughness(current), current)
            gradient = gradient - smoothness * pull * gradient.abs().amax(dim=(1, 2, 3, 4), keepdim=True) / max(
                epsilon, 1e-9
            )
        size = epsilon * (0.25 if number < steps // 2 else 0.1)
        table = (table + size * gradient.sign()).clamp(-epsilon, epsilon)
    return _applied(images, table, places).reshape(n, *images.shape[1:])


def _applied(images: Tensor, table: Tensor, places: Tensor) -> Tensor:
    changes = torch.nn.functional.grid_sample(table, places, mode="bilinear", padding_mode="border", align_corners=True)
    return (images + changes.reshape(images.shape)).clamp(0.0, 1.0)


def _roughness(table: Tensor) -> Tensor:
    """Sum of squared differences of neighbouring grid points."""
    total = table.new_zeros(())
    for axis in (2, 3, 4):
        total = total + table.diff(dim=axis).square().sum()
    return total
