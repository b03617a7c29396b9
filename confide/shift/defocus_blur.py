"""A lens out of focus."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS

SMALL = 4
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


@SHIFTS.add(
    "defocus_blur",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    large=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
    smallest=lambda parameters: len(disk_kernel(*parameters)) // 2 + 1,
)
def defocus_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A lens out of focus, convolution with a smoothed disk of radius r; the border reflects."""
    kernel = torch.from_numpy(disk_kernel(*parameters)).to(images.device)
    n, channels, height, width = images.shape
    reach = len(kernel) // 2
    # In float64 on a GPU, where float32 products may be cut to 10 bits.
    kind = torch.float64 if images.device.type == "cuda" else images.dtype
    planes = images.reshape(n * channels, 1, height, width).to(kind)
    padded = torch.nn.functional.pad(planes, (reach, reach, reach, reach), mode="reflect")
    if reach <= SMALL:
        blurred = torch.nn.functional.conv2d(padded, kernel.to(kind)[None, None])
    else:
        size = padded.shape[-2:]
        spectrum = torch.fft.rfft2(padded) * torch.fft.rfft2(kernel.to(kind), s=size)
        blurred = torch.fft.irfft2(spectrum, s=size)[..., 2 * reach :, 2 * reach :]
    return blurred.to(images.dtype).reshape(images.shape)
