"""Frost on a window: a procedural layer, since the published one is made of other people's photographs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS

NEEDLES = 6
TINT = (0.82, 0.93, 1.0)


@SHIFTS.add(
    "frost",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Frost on a window, a x + b (layer of crystals).

    Differs from the benchmark: its layer is a random crop of five photographs, ours is drawn for every image, so
    results are comparable among themselves and not with published frost figures.
    """
    keep, cover = parameters
    layer = crystals(draws, *images.shape[-2:])
    if images.shape[1] == 3:
        layer = layer * torch.tensor(TINT, device=images.device)[:, None, None]
    return keep * images + cover * layer


def crystals(draws: Draws, height: int, width: int) -> Tensor:
    """Needles over clouds, `n 1 h w` in [0, 1]: crests of waves in a few directions, bent by smooth noise."""
    side = max(height, width)
    clouds = smooth_noise(draws, "clouds", side, (2, 4, 8, 16))[:, :height, :width]
    bend = smooth_noise(draws, "bend", side, (2, 4, 8))[:, :height, :width]
    steer = torch.from_numpy(draws.numbers("needles", 3 * NEEDLES)).float().to(draws.device)
    rows = torch.arange(height, device=draws.device)[:, None] / side
    columns = torch.arange(width, device=draws.device)[None, :] / side
    ridges = torch.zeros_like(clouds)
    for needle in range(NEEDLES):
        angle, rate, phase = (steer[:, 3 * needle + k, None, None] for k in range(3))
        across = rows * torch.sin(math.pi * angle) + columns * torch.cos(math.pi * angle)
        wave = torch.sin(2 * math.pi * ((2 + 6 * rate) * (across + 0.35 * bend) + phase))
        # The crest of a wave is a thin bright needle.
        ridges = torch.maximum(ridges, (1 - wave.abs()).pow(4))
    return (0.25 + 0.45 * clouds + 0.5 * ridges * clouds.sqrt()).clamp(0.0, 1.0)[:, None]


def smooth_noise(draws: Draws, name: str, side: int, cells: tuple[int, ...]) -> Tensor:
    """Noise of several scales in [0, 1], `n side side`: random grids stretched smoothly, halved in size each time."""
    total = torch.zeros(len(draws.keys), side, side, device=draws.device)
    for octave, count in enumerate(cells):
        grid = draws.uniform(f"{name}{count}", 1, count + 1, count + 1)
        layer = torch.nn.functional.interpolate(grid, size=(side, side), mode="bilinear", align_corners=True)
        total += layer[:, 0] / 2**octave
    total -= total.amin(dim=(1, 2), keepdim=True)
    return total / total.amax(dim=(1, 2), keepdim=True).clamp_min(1e-6)
