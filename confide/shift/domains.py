"""Shifts to another domain: grey, a sketch, the texture of something else."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from confide.random import Draws
from confide.shift.base import SHIFTS, gaussian_filter, luminance
from confide.shift.weather import smooth_noise


@SHIFTS.add(
    "grey",
    paper="Geirhos et al., 2019, arXiv:1811.12231",
    kind="domain",
    colour=True,
    small=(0.2, 0.4, 0.6, 0.8, 1.0),
    large=(0.2, 0.4, 0.6, 0.8, 1.0),
)
def grey(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A black and white picture, x + s (grey of x - x); severity 5 has no colour left.

    When: cameras without colour may be used.
    When not: colour carries the class and is always there.
    """
    return images + parameters[0] * (luminance(images) - images)


@SHIFTS.add(
    "sketch",
    paper="Wang et al., 2019, arXiv:1905.13549",
    kind="domain",
    small=((0.2, 0.5), (0.4, 0.5), (0.6, 0.5), (0.8, 0.5), (1.0, 0.5)),
    large=((0.2, 1.5), (0.4, 1.5), (0.6, 1.5), (0.8, 1.5), (1.0, 1.5)),
    smallest=lambda parameters: 4,
)
def sketch(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Dark lines on white paper where the picture changes, mixed in by s; severity 5 is the drawing alone.

    A line is as dark as the slope of the smoothed grey picture, relative to the steep end (95 %) of its slopes.

    When: drawings may come in place of photographs.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    share, sigma = parameters
    tone = gaussian_filter(luminance(images), sigma)
    down, across = tone.diff(dim=-2), tone.diff(dim=-1)
    slope = (down[..., :, :-1] ** 2 + across[..., :-1, :] ** 2).sqrt()
    steep = slope.flatten(1).quantile(0.95, dim=1)[:, None, None, None].clamp_min(1e-3)
    lines = 1 - (slope / steep).clamp_max(1.0)
    # One row and one column fewer have a slope; the last are drawn once more.
    drawing = torch.nn.functional.pad(lines, (0, 1, 0, 1), mode="replicate")
    return images + share * (drawing - images)


# The texture of something else: amplitudes and patch statistics of a drawn texture, the shapes kept.

TEXTURE_WAVES = 3


@SHIFTS.add(
    "stylised",
    paper="Geirhos et al., 2019, arXiv:1811.12231; Xu et al., 2021, arXiv:2105.11120",
    kind="domain",
    small=((0.2, 4), (0.4, 4), (0.6, 4), (0.8, 4), (1.0, 4)),
    large=((0.2, 14), (0.4, 14), (0.6, 14), (0.8, 14), (1.0, 14)),
    smallest=lambda parameters: 2 * int(parameters[1]),
)
def stylised(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Phase of the image, amplitude |X|^(1 - s) |T|^s of a texture T, then mean and spread of its patches, by s.

    In the spirit of Stylized-ImageNet without its network: the textures are drawn (waves, clouds, two colours).

    When: does the network go by texture rather than shape?
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    share, patch = parameters[0], int(parameters[1])
    texture = textures(draws, *images.shape[1:])
    seen, other = torch.fft.rfft2(images.double()), torch.fft.rfft2(texture.double())
    size = seen.abs().clamp_min(1e-9)
    mixed = seen / size * size.pow(1 - share) * other.abs().clamp_min(1e-9).pow(share)
    swapped: Tensor = torch.fft.irfft2(mixed, s=images.shape[-2:]).float()
    mean, spread = _patch_statistics(swapped, patch)
    texture_mean, texture_spread = _patch_statistics(texture, patch)
    moved = (swapped - mean) / spread * texture_spread + texture_mean
    # Half of the patches' own statistics stay: without them no shape could be seen.
    return swapped + 0.5 * share * (moved - swapped)


def textures(draws: Draws, channels: int, height: int, width: int) -> Tensor:
    """Drawn textures `n c h w` in [0, 1]: a few waves bent by clouds, between two random colours."""
    side = max(height, width)
    clouds = smooth_noise(draws, "clouds", side, (3, 6, 12))[:, :height, :width]
    steer = torch.from_numpy(draws.numbers("waves", 3 * TEXTURE_WAVES)).float().to(draws.device)
    rows = torch.arange(height, device=draws.device)[:, None] / side
    columns = torch.arange(width, device=draws.device)[None, :] / side
    total = 0.5 * clouds
    for wave in range(TEXTURE_WAVES):
        angle, rate, phase = (steer[:, 3 * wave + k, None, None] for k in range(3))
        across = rows * torch.sin(math.pi * angle) + columns * torch.cos(math.pi * angle)
        total = total + 0.3 * torch.sin(2 * math.pi * ((3 + 7 * rate) * across + clouds + phase))
    weight = torch.sigmoid(4 * total)[:, None]
    ends = torch.from_numpy(draws.numbers("colours", 2 * channels)).float().to(draws.device)[:, :, None, None]
    return ends[:, :channels] * weight + ends[:, channels:] * (1 - weight)


def _patch_statistics(images: Tensor, patch: int) -> tuple[Tensor, Tensor]:
    """Mean and spread of the patches (patch x patch pixels), stretched smoothly over the image."""
    size = images.shape[-2:]
    cells = (max(size[0] // patch, 1), max(size[1] // patch, 1))
    mean = torch.nn.functional.adaptive_avg_pool2d(images, cells)
    square = torch.nn.functional.adaptive_avg_pool2d(images * images, cells)
    spread = (square - mean * mean).clamp_min(1e-6).sqrt()
    stretched = [
        torch.nn.functional.interpolate(m, size=size, mode="bilinear", align_corners=False) for m in (mean, spread)
    ]
    return stretched[0], stretched[1].clamp_min(0.02)
