"""Shifts of a camera: noise (Gaussian, shot, impulse, speckle) and blur (Gaussian, defocus, glass, motion, zoom)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.random import Draws
from confide.shift.base import corruption, filter_sides, gaussian_filter, line_blur, zoom_matrix


@corruption("gaussian_noise", small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Gaussian noise on every value, x + N(0, c).

    When: light is poor and sensors are small.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    return images + draws.normal("noise", *images.shape[1:]).mul_(parameters[0])


# Noise of few photons.

GREY_LEVELS = 255


@corruption("shot_noise", small=(500.0, 250.0, 100.0, 75.0, 50.0), large=(60.0, 25.0, 12.0, 5.0, 3.0))
def shot_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Counts of light, Poisson(x c) / c.

    A Poisson number of rate x c is the sum of one of the rate of the 8-bit level below x, drawn by a table, and one of
    the small rest, drawn term by term.

    When: light is so poor that its grains count.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    scale = parameters[0]
    level = (images * GREY_LEVELS + 1e-3).floor()
    counts = _poisson_by_table(level, draws.uniform("level", *images.shape[1:]), scale)
    rest = (images * GREY_LEVELS - level).clamp_min(0).mul_(scale / GREY_LEVELS)
    if bool((rest > 1e-3 * scale / GREY_LEVELS).any()):
        counts += _poisson_term_by_term(rest, draws.uniform("rest", *images.shape[1:]))
    return counts / scale


def _poisson_by_table(level: Tensor, drawn: Tensor, scale: float) -> Tensor:
    steps, first, width = _poisson_table(scale)
    # Level by level the distribution functions form one rising sequence, level + P(count <= k), in steps of 2^-24.
    row = level.int()
    place = ((row - 128) << 24) + (drawn * 2.0**24).int()
    step = torch.searchsorted(steps.to(level.device), place, right=True, out_int32=True)
    return first.to(level.device)[row] + (step - row * width)


@lru_cache(maxsize=16)
def _poisson_table(scale: float) -> tuple[Tensor, Tensor, int]:
    """(level + distribution function in a window, first count of the window of each level, width of a window)."""
    rates = np.arange(GREY_LEVELS + 1) * (scale / GREY_LEVELS)
    reach = 6.5 * np.sqrt(rates) + 12
    first = np.maximum(np.floor(rates - reach), 0)
    width = int(np.max(rates + reach - first)) + 1
    counts = first[:, None] + np.arange(width)
    log_terms = np.cumsum(np.log(np.maximum(np.arange(int(counts.max()) + 1), 1)))[counts.astype(int)]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.exp(np.where(counts > 0, counts * np.log(rates)[:, None], 0) - rates[:, None] - log_terms)
    steps = np.minimum(np.cumsum(terms, axis=1), 1.0)
    # The last step of a window is the start of the next level: no draw may run over.
    steps[:, -1] = 1.0
    flat = (
        np.ceil((steps + np.arange(-128, GREY_LEVELS - 127)[:, None]) * 2.0**24).clip(-(2.0**31), 2.0**31 - 1).ravel()
    )
    return torch.from_numpy(flat.astype(np.int32)), torch.from_numpy(first.astype(np.float32)), width


def _poisson_term_by_term(rate: Tensor, drawn: Tensor) -> Tensor:
    """Poisson numbers of small rates by inversion: how many steps of the distribution function lie under the draw."""
    term = torch.exp(-rate)
    below, counts = term.clone(), torch.zeros_like(rate)
    for k in range(1, 16):
        counts += drawn >= below
        term = term * rate / k
        below += term
    return counts


@corruption("impulse_noise", small=(0.01, 0.02, 0.03, 0.05, 0.07), large=(0.03, 0.06, 0.09, 0.17, 0.27))
def impulse_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Salt and pepper, a share c of the values (each channel on its own) set to 0 or 1, half each.

    When: transmission drops single pixels.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    share = parameters[0]
    drawn = draws.uniform("noise", *images.shape[1:])
    salted = torch.where(drawn < share, 1.0, images)
    return torch.where(drawn < 0.5 * share, 0.0, salted)


@corruption("speckle_noise", kind="extra", small=(0.06, 0.1, 0.12, 0.16, 0.2), large=(0.15, 0.2, 0.35, 0.45, 0.6))
def speckle_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Noise that grows with the value, x + x N(0, c).

    When: radar, ultrasound or laser pictures.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    return images + images * draws.normal("noise", *images.shape[1:]).mul_(parameters[0])


@corruption(
    "gaussian_blur",
    kind="extra",
    small=(0.4, 0.6, 0.7, 0.8, 1.0),
    large=(1.0, 2.0, 3.0, 4.0, 6.0),
    smallest=lambda parameters: int(4 * parameters[0] + 0.5) + 1,
)
def gaussian_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Gaussian smoothing of standard deviation c, cut off at 4 c.

    When: pictures are shrunk or smoothed on the way.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    return gaussian_filter(images, parameters[0])


# A lens out of focus.

CONVOLUTION_REACH = 4
"""Reach of a kernel up to which a convolution is faster than a Fourier transform."""


@lru_cache(maxsize=32)
def disk_kernel(radius: float, sigma: float) -> NDArray[np.float64]:
    """A disk of that radius, its edge smoothed by a Gaussian of 3 x 3 pixels (5 x 5 for a radius over 8)."""
    half = max(8, int(radius))
    line = np.arange(-half, half + 1)
    disk = (line[:, None] ** 2 + line[None, :] ** 2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    reach = 1 if radius <= 8 else 2
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    weights /= weights.sum()
    wide = np.pad(disk, reach)
    for axis in (0, 1):
        wide = sum(w * np.roll(wide, k - reach, axis=axis) for k, w in enumerate(weights))
    used = int(radius) + reach
    middle = half + reach
    return np.ascontiguousarray(wide[middle - used : middle + used + 1, middle - used : middle + used + 1])


@corruption(
    "defocus_blur",
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    large=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
    smallest=lambda parameters: len(disk_kernel(*parameters)) // 2 + 1,
)
def defocus_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A lens out of focus, convolution with a smoothed disk of radius r; the border reflects.

    When: focus may fail.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    kernel = torch.from_numpy(disk_kernel(*parameters)).to(images.device)
    n, channels, height, width = images.shape
    reach = len(kernel) // 2
    # In float64 on a GPU, where float32 products may be cut to 10 bits.
    kind = torch.float64 if images.device.type == "cuda" else images.dtype
    planes = images.reshape(n * channels, 1, height, width).to(kind)
    padded = torch.nn.functional.pad(planes, (reach, reach, reach, reach), mode="reflect")
    if reach <= CONVOLUTION_REACH:
        blurred = torch.nn.functional.conv2d(padded, kernel.to(kind)[None, None])
    else:
        size = padded.shape[-2:]
        spectrum = torch.fft.rfft2(padded) * torch.fft.rfft2(kernel.to(kind), s=size)
        blurred = torch.fft.irfft2(spectrum, s=size)[..., 2 * reach :, 2 * reach :]
    return blurred.to(images.dtype).reshape(images.shape)


# Seen through frosted glass.


@corruption(
    "glass_blur",
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    smallest=lambda parameters: 2 * int(parameters[1]) + 2,
)
def glass_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Frosted glass, Gaussian blur, n passes in which each pixel swaps with one nearby, blur again.

    A pass goes from the bottom right up; the offsets are uniform in [-d, d) in both directions.

    When: pictures are taken through structured glass.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    sigma, reach, passes = parameters[0], int(parameters[1]), int(parameters[2])
    soft = gaussian_filter(images, sigma)
    n, channels, height, width = images.shape
    places = torch.arange(height * width, device=images.device).expand(n, -1).contiguous()
    waves = [wave.to(images.device) for wave in wave_fronts(height, width, reach)]
    for number in range(passes):
        drawn = draws.uniform(f"offsets{number}", 2, height * width)
        offsets = (drawn * (2 * reach)).long().sub_(reach)
        moved = offsets[:, 0] * width + offsets[:, 1]
        for own in waves:
            other = own + moved[:, own]
            mine, theirs = places[:, own], places.gather(1, other)
            places[:, own] = theirs
            places.scatter_(1, other, mine)
    swapped = soft.reshape(n, channels, -1).gather(2, places[:, None].expand(-1, channels, -1))
    return gaussian_filter(swapped.reshape(images.shape), sigma)


def wave_fronts(height: int, width: int, reach: int) -> list[Tensor]:
    """Pixels grouped so that the swaps of a group touch each other nowhere, in an order the row by row pass allows.

    Two swaps can meet only within 2 d - 1 columns and rows; at time 2 d (rows from the bottom) + (columns from the
    right) every swap comes after those it can meet and that come first row by row, and never with one of them.
    """
    rows = torch.arange(height - reach, reach, -1)
    columns = torch.arange(width - reach, reach, -1)
    time = 2 * reach * (height - reach - rows)[:, None] + (width - reach - columns)[None, :]
    pixels = (rows[:, None] * width + columns[None, :]).ravel()
    order = time.ravel().argsort(stable=True)
    ends = time.ravel().bincount().cumsum(0)[:-1]
    return list(torch.tensor_split(pixels[order], ends))


@corruption(
    "motion_blur",
    small=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    large=((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    smallest=lambda parameters: 2 * int(parameters[0]),
)
def motion_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A camera that moves, a one-sided Gaussian line of radius r and width sigma at an angle uniform in ±45°.

    When: camera or subject moves.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    degrees = draws.numbers("angle", 1)[:, 0] * 90.0 - 45.0
    return line_blur(images, int(parameters[0]), parameters[1], degrees)


# A camera that nears.


@corruption(
    "zoom_blur",
    small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    smallest=lambda parameters: 8,
)
def zoom_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A camera that nears, the mean of the image and its centre zooms by 1, 1 + step, ... below the top.

    When: the camera nears while it exposes.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    factors = zoom_factors(*parameters)
    height, width = images.shape[-2:]
    total = images.clone()
    for factor in factors:
        total += filter_sides(images, zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total / (len(factors) + 1)


def zoom_factors(top: float, step: float) -> list[float]:
    """1, 1 + step, ..., all below the top; counted in thousandths, which have no rounding."""
    return [k / 1000 for k in range(1000, round(1000 * top), round(1000 * step))]
