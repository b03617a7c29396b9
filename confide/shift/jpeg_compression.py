"""JPEG at a low quality: what its rounding leaves, without writing a file."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS

# Annex K of the standard (ITU-T T.81): steps of the coefficients at quality 50, brightness and colour.
BRIGHTNESS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
COLOUR = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


@SHIFTS.add(
    "jpeg_compression",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261; ITU-T T.81",
    kind="benchmark",
    small=(80, 65, 58, 50, 40),
    large=(25, 18, 15, 10, 7),
)
def jpeg_compression(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """JPEG at quality c, 4:2:0: cosine transform of 8 x 8 blocks, rounded to the steps of the quality, and back."""
    return reencode(images, int(parameters[0]))


def reencode(images: Tensor, quality: int) -> Tensor:
    """Images in [0, 1] as a JPEG of this quality (1 to 100) gives them back, in steps of 1/255."""
    height, width = images.shape[-2:]
    levels = (images * 255).round()
    grey = images.shape[1] == 1
    block = 8 if grey else 16
    levels = torch.nn.functional.pad(levels, (0, -width % block, 0, -height % block), mode="replicate")
    if grey:
        return _round_blocks(levels, _steps(False, quality))[..., :height, :width] / 255
    light, colour = _to_light_and_colour(levels)
    light = _round_blocks(light, _steps(False, quality))
    # Halves are rounded down and up by turns along a row, as the reference coder does.
    halved = torch.nn.functional.avg_pool2d(colour, 2)
    turns = torch.arange(halved.shape[-1], device=images.device) % 2
    colour = _round_blocks(torch.floor(halved + 0.25 + 0.25 * turns), _steps(True, quality))
    whole = _stretch(_stretch(colour, -2), -1)
    colour = torch.floor(whole + 0.5 - turns.repeat(2) / 16)
    return _to_red_green_blue(light, colour)[..., :height, :width] / 255


@lru_cache(maxsize=32)
def _steps(colour: bool, quality: int) -> NDArray[np.float64]:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    table = np.array(COLOUR if colour else BRIGHTNESS)
    steps: NDArray[np.float64] = ((table * scale + 50) // 100).clip(1, 255).astype(np.float64)
    return steps


@lru_cache(maxsize=1)
def _cosines() -> NDArray[np.float64]:
    places = np.arange(8)
    rows = np.cos((2 * places[None, :] + 1) * places[:, None] * np.pi / 16) / 2
    rows[0] /= np.sqrt(2)
    return rows


def _round_blocks(planes: Tensor, steps: NDArray[np.float64]) -> Tensor:
    """Each 8 x 8 block transformed, rounded to multiples of the steps, transformed back, rounded to levels."""
    n, channels, height, width = planes.shape
    cosines = torch.from_numpy(_cosines()).to(planes.device)
    sizes = torch.from_numpy(steps).to(planes.device)
    # In float64, and with ties decided by a hair: a coefficient must not round by the order of a sum.
    blocks = planes.double().sub(128).reshape(n, channels, height // 8, 8, width // 8, 8).transpose(3, 4)
    scaled = (cosines @ blocks @ cosines.T) / sizes
    kept = torch.sign(scaled) * torch.floor(scaled.abs() + (0.5 + 1e-6)) * sizes
    back = (cosines.T @ kept @ cosines).transpose(3, 4).reshape(planes.shape)
    return torch.floor(back + (128.5 + 1e-6)).clamp(0, 255).to(planes.dtype)


def _to_light_and_colour(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Y and (Cb, Cr), rounded to levels."""
    red, green, blue = levels[:, :1], levels[:, 1:2], levels[:, 2:]
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    towards_blue = -0.168735892 * red - 0.331264108 * green + 0.5 * blue + 128
    towards_red = 0.5 * red - 0.418687589 * green - 0.081312411 * blue + 128
    return light.round(), torch.cat([towards_blue, towards_red], dim=1).round()


def _to_red_green_blue(light: Tensor, colour: Tensor) -> Tensor:
    blue, red = colour[:, :1] - 128, colour[:, 1:] - 128
    parts = [light + 1.402 * red, light - 0.344136286 * blue - 0.714136286 * red, light + 1.772 * blue]
    return torch.cat(parts, dim=1).round().clamp(0, 255)


def _stretch(planes: Tensor, axis: int) -> Tensor:
    """Twice as many values along an axis: three parts of the nearer, one of the next, as decoders do."""
    last = planes.shape[axis] - 1
    before = torch.cat([planes.narrow(axis, 0, 1), planes.narrow(axis, 0, last)], dim=axis)
    after = torch.cat([planes.narrow(axis, 1, last), planes.narrow(axis, last, 1)], dim=axis)
    pair = torch.stack([0.75 * planes + 0.25 * before, 0.75 * planes + 0.25 * after], dim=axis if axis == -1 else -2)
    shape = list(planes.shape)
    shape[axis] *= 2
    return pair.reshape(shape)
