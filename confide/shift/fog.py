"""Fog, thicker here and thinner there."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "fog",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    large=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
)
def fog(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Fog, (x + c plasma) max / (max + c), where max is the brightest value of the image."""
    strength, decay = parameters
    height, width = images.shape[-2:]
    layer = plasma(draws, max(height, width), decay)[:, None, :height, :width]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + strength * layer) * (brightest / (brightest + strength))


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Diamond-square fractals scaled to [0, 1], n maps of the power of two that holds the side.

    A new point is the mean of its four neighbours (round the edges) plus uniform noise, whose size starts at 100^2
    and is divided by decay^2 with every halving of the step.
    """
    size = 1 << max(side - 1, 1).bit_length()
    field = torch.zeros(len(draws.keys), size, size, device=draws.device)
    step, spread = size, 1e4
    while step >= 2:
        half, count = step // 2, size // step
        noise = draws.uniform(f"plasma{step}", 3, count, count).mul_(2 * spread).sub_(spread)
        corners = field[:, ::step, ::step]
        below = corners + corners.roll(-1, 1)
        centres = (below + below.roll(-1, 2)) / 4 + noise[:, 0]
        top = (centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)) / 4 + noise[:, 1]
        left = (centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)) / 4 + noise[:, 2]
        field[:, half::step, half::step] = centres
        field[:, ::step, half::step] = top
        field[:, half::step, ::step] = left
        step, spread = half, spread / decay**2
    field -= field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True)
