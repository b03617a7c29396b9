"""One smooth change of all colours at once, so that like colours stay alike."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.attacks.family import ATTACKS, Model, loss_gradient


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
            held = variable.detach().requires_grad_(True)
            (pull,) = torch.autograd.grad(_roughness(held), held)
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
