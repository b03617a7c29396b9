"""Shifts of digital pictures: brightness, contrast, saturation, elastic deformation, large pixels, JPEG."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError
from confide.random import Draws
from confide.shift.base import SHIFTS, box_matrix, check_images, corruption, filter_sides, gaussian_filter


@corruption("brightness", small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """More light, V + c in hue, saturation, value.

    When: daylight and exposure vary.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    value = images.amax(dim=1, keepdim=True)
    raised = (value + parameters[0]).clamp_max(1.0)
    # With hue and saturation kept, all channels grow by the same factor; black has none and turns grey.
    return torch.where(value > 0, images * (raised / value.clamp_min(1e-12)), raised)


@corruption("contrast", small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Less contrast, (x - mean of the channel) c + mean of the channel.

    When: haze, cheap cameras and flat light occur.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    # Summed in float64: the mean of an image must not depend on how a batch is cut.
    means = images.double().mean(dim=(2, 3), keepdim=True).float()
    return (images - means) * parameters[0] + means


@corruption(
    "saturate",
    kind="extra",
    colour=True,
    small=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    large=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)
def saturate(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Paler (severity 1, 2) or stronger colours, a S + b in hue, saturation, value.

    When: cameras process colours differently.
    When not: pictures are grey.
    """
    factor, shift = parameters
    value = images.amax(dim=1, keepdim=True)
    spread = value - images.amin(dim=1, keepdim=True)
    saturation = spread / value.clamp_min(1e-12)
    changed = (saturation * factor + shift).clamp(0.0, 1.0)
    coloured = value - (value - images) * (changed / saturation.clamp_min(1e-12))
    # Grey has no hue; by convention its hue is 0, which is red.
    red = torch.cat([value, value * (1 - changed), value * (1 - changed)], dim=1)
    return torch.where(spread > 0, coloured, red)


# An image printed on something soft.


def _in_units(side: int, *rows: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(side * value for value in row) for row in rows)


@SHIFTS.add(
    "elastic_transform",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261; Simard et al., 2003",
    kind="benchmark",
    small=_in_units(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    large=_in_units(244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    smallest=lambda parameters: 8,
)
def elastic_transform(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A random affine map, then displacements alpha Gaussian(uniform noise in ±1, sigma); bilinear, reflecting.

    The affine map carries three points about the middle to places up to ±a away in both directions.

    When: shapes are soft or scanned pages bend.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    alpha, sigma, reach = parameters
    height, width = images.shape[-2:]
    turned = _sample(images, *_affine_places(draws, height, width, reach), edge_twice=False)
    if alpha == 0:
        return turned
    noise = draws.uniform("field", 2, height, width).mul_(2.0).sub_(1.0)
    moves = gaussian_filter(noise, sigma, truncate=3.0, border="reflect").mul_(alpha)
    rows = torch.arange(height, device=images.device)[:, None] + moves[:, 0]
    columns = torch.arange(width, device=images.device) + moves[:, 1]
    return _sample(turned, rows, columns, edge_twice=True)


def _affine_places(draws: Draws, height: int, width: int, reach: float) -> tuple[Tensor, Tensor]:
    """Where each new pixel comes from: the affine map that carries the moved points back to the old ones."""
    middle, leg = np.array([height // 2, width // 2]), min(height, width) // 3
    old = np.stack([middle + leg, middle + np.array([leg, -leg]), middle - leg]).astype(np.float64)
    moved = old + (draws.numbers("affine", 6).reshape(-1, 3, 2) * 2 - 1) * reach
    with_one = np.concatenate([moved, np.ones((len(moved), 3, 1))], axis=2)
    maps = np.linalg.solve(with_one, np.broadcast_to(old, moved.shape))
    table = torch.from_numpy(maps).float().to(draws.device)
    rows = torch.arange(height, device=draws.device)[:, None]
    columns = torch.arange(width, device=draws.device)[None, :]
    down, across = (
        table[:, 0, k, None, None] * rows + table[:, 1, k, None, None] * columns + table[:, 2, k, None, None]
        for k in (0, 1)
    )
    return down, across


def _sample(images: Tensor, rows: Tensor, columns: Tensor, *, edge_twice: bool) -> Tensor:
    """Bilinear values at these places; outside, the image mirrored about its edge or its outermost pixels."""
    height, width = images.shape[-2:]
    if edge_twice:
        places = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=-1)
    else:
        places = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], dim=-1)
    return torch.nn.functional.grid_sample(
        images, places, mode="bilinear", padding_mode="reflection", align_corners=not edge_twice
    )


@corruption(
    "pixelate", small=(0.95, 0.9, 0.85, 0.75, 0.65), large=(0.6, 0.5, 0.4, 0.3, 0.25), smallest=lambda parameters: 8
)
def pixelate(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Large pixels, scaled to the share c by boxes and back.

    When: pictures are enlarged from thumbnails.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    down, across = (int(side * parameters[0]) for side in images.shape[-2:])
    height, width = images.shape[-2:]
    small = filter_sides(images, box_matrix(height, down), box_matrix(width, across))
    return filter_sides(small, box_matrix(down, height), box_matrix(across, width))


# JPEG at a low quality: what its rounding leaves, without writing a file.

# Annex K of the standard (ITU-T T.81): steps of the coefficients at quality 50, brightness and colour.
LUMINANCE_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE_STEPS = (
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
    """JPEG at quality c, 4:2:0: cosine transform of 8 x 8 blocks, rounded to the steps of the quality, and back.

    When: pictures are compressed on the way.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    return jpeg_roundtrip(images, int(parameters[0]))


def jpeg_roundtrip(images: Tensor, quality: int) -> Tensor:
    """Images in [0, 1] as a JPEG of this quality (1 to 100) gives them back, in steps of 1/255."""
    height, width = images.shape[-2:]
    levels = (images * 255).round()
    grey = images.shape[1] == 1
    block = 8 if grey else 16
    levels = torch.nn.functional.pad(levels, (0, -width % block, 0, -height % block), mode="replicate")
    if grey:
        return _round_blocks(levels, _quantisation_steps(False, quality))[..., :height, :width] / 255
    light, colour = _to_light_and_colour(levels)
    light = _round_blocks(light, _quantisation_steps(False, quality))
    # Halves are rounded down and up by turns along a row, as the reference coder does.
    halved = torch.nn.functional.avg_pool2d(colour, 2)
    turns = torch.arange(halved.shape[-1], device=images.device) % 2
    colour = _round_blocks(torch.floor(halved + 0.25 + 0.25 * turns), _quantisation_steps(True, quality))
    whole = _upsampled(_upsampled(colour, -2), -1)
    colour = torch.floor(whole + 0.5 - turns.repeat(2) / 16)
    return _to_red_green_blue(light, colour)[..., :height, :width] / 255


@lru_cache(maxsize=32)
def _quantisation_steps(colour: bool, quality: int) -> NDArray[np.float64]:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    table = np.array(CHROMINANCE_STEPS if colour else LUMINANCE_STEPS)
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
    coefficients = torch.sign(scaled) * torch.floor(scaled.abs() + (0.5 + 1e-6)) * sizes
    back = (cosines.T @ coefficients @ cosines).transpose(3, 4).reshape(planes.shape)
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


def _upsampled(planes: Tensor, axis: int) -> Tensor:
    """Twice as many values along an axis: three parts of the nearer, one of the next, as decoders do."""
    last = planes.shape[axis] - 1
    before = torch.cat([planes.narrow(axis, 0, 1), planes.narrow(axis, 0, last)], dim=axis)
    after = torch.cat([planes.narrow(axis, 1, last), planes.narrow(axis, last, 1)], dim=axis)
    pair = torch.stack([0.75 * planes + 0.25 * before, 0.75 * planes + 0.25 * after], dim=axis if axis == -1 else -2)
    shape = list(planes.shape)
    shape[axis] *= 2
    return pair.reshape(shape)


def jpeg_reencoded(images: Any, quality: int) -> Any:
    """Images (uint8, or floating in [0, 1], `n c h w`) as a JPEG of this quality gives them back.

    Args:
        images: a tensor or an array of one or three channels.
        quality: 1 (worst) to 100.

    Returns:
        Images of the same type.

    Raises:
        InputError: the quality is no whole number from 1 to 100.

    Example:
        >>> import numpy as np
        >>> images = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
        >>> confide.shift.jpeg_reencoded(images, 20)[0, 0, 0]
        array([ 2,  3,  4,  6,  8, 10, 11, 12], dtype=uint8)
    """
    if isinstance(quality, bool) or quality not in range(1, 101):
        raise InputError(f"quality must be a whole number from 1 to 100, got {quality!r}")
    tensor = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    check_images(tensor)
    coarse = tensor.dtype == torch.uint8
    values = jpeg_roundtrip(tensor.float() / 255 if coarse else tensor.float(), int(quality))
    result = (values * 255).round().to(torch.uint8) if coarse else values.to(tensor.dtype)
    return result if isinstance(images, Tensor) else result.numpy()
