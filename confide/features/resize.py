"""Pillow's resizing of 8-bit images as matrix products: the same levels, for a batch, on any device.

Pillow weighs the pixels under a kernel, along rows and then along columns, with weights of 22 bits and a rounding to
levels after each. In float64 such sums are exact, so the levels do not depend on the order or the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

Float64 = NDArray[np.float64]
BITS = 22
"""Bits of a weight behind the point."""


def _linear(x: Float64) -> Float64:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _cubic(x: Float64) -> Float64:
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: Float64) -> Float64:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


KERNELS: dict[int, tuple[Callable[[Float64], Float64], float]] = {
    int(Image.Resampling.BILINEAR): (_linear, 1.0),
    int(Image.Resampling.BICUBIC): (_cubic, 2.0),
    int(Image.Resampling.LANCZOS): (_lanczos, 3.0),
}
"""Kernel and reach by Pillow's number."""


def resized(levels: Tensor, height: int, width: int, resample: int) -> Tensor:
    """uint8 images `n c h w` in another size, float32 of whole levels 0 to 255."""
    across, down = (3, width), (2, height)
    first_across = _first_across(int(levels.shape[2]), int(levels.shape[3]), height, width, resample)
    return _passes(levels, (across, down) if first_across else (down, across), resample)


def _passes(levels: Tensor, order: tuple[tuple[int, int], ...], resample: int) -> Tensor:
    values = levels
    for axis, size in order:
        if values.shape[axis] != size:
            weights = torch.from_numpy(_weights(values.shape[axis], size, resample)).to(values.device)
            wide = values.to(torch.float64)
            summed = wide @ weights.T if axis == 3 else weights @ wide
            # Floor of (sum + 1/2): the shift of Pillow's whole numbers.
            values = summed.add_(1 << (BITS - 1)).mul_(2.0**-BITS).floor_().clamp_(0, 255)
    return values.to(torch.float32)


@lru_cache(maxsize=256)
def _first_across(source_height: int, source_width: int, height: int, width: int, resample: int) -> bool:
    """Which pass comes first is the installed Pillow's choice, by size and version: it is asked with one picture."""
    if height == source_height or width == source_width:
        return True
    picture = np.random.default_rng(0).integers(0, 256, (source_height, source_width, 3), dtype=np.uint8)
    theirs = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling(resample)))
    ours = _passes(torch.from_numpy(picture).permute(2, 0, 1)[None], ((3, width), (2, height)), resample)
    return np.array_equal(theirs, ours[0].permute(1, 2, 0).numpy())


@lru_cache(maxsize=256)
def _weights(source: int, target: int, resample: int) -> Float64:
    """target x source: the weights of the old pixels that make each new one, whole numbers of 2^-22."""
    kernel, reach = KERNELS[resample]
    scale = source / target
    stretch = max(scale, 1.0)
    support = reach * stretch
    centres = (np.arange(target) + 0.5) * scale
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)[:, None]
    last = np.minimum((centres + support + 0.5).astype(np.int64), source)[:, None]
    places = np.arange(source)[None, :]
    weights = kernel((places - centres[:, None] + 0.5) / stretch)
    weights = np.where((places >= first) & (places < last), weights, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    whole: Float64 = np.trunc(weights * 2.0**BITS + np.copysign(0.5, weights))
    return whole
