"""One input as an image, and what it goes through before a network: resize (to the level what Pillow gives, also on
a GPU), crop,
normalise, or the random crop and flip of an augmentation run.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from confide.checks import InputError
from confide.types import Floats, JsonObject

# ---- One input as an image: arrays, tensors, bytes, files and PIL images, to RGB or grey `c h w` uint8 ----


def as_image_array(item: Any) -> NDArray[np.uint8]:
    """Image as `c h w` uint8."""
    if isinstance(item, (bytes, bytearray, str, Path, Image.Image)):
        array = np.asarray(as_pil(item))
        return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
    array = np.asarray(item)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        raise InputError(f"an image must have two or three dimensions, got shape {array.shape}")
    if array.shape[0] not in (1, 3) and array.shape[2] in (1, 3):
        array = array.transpose(2, 0, 1)
    if array.dtype != np.uint8:
        if array.dtype.kind != "f" or (array.size and (array.min() < 0 or array.max() > 1)):
            raise InputError(f"an image must be uint8, or float in [0, 1], got {array.dtype} up to {array.max()}")
        array = np.rint(array * 255).astype(np.uint8)
    return array


def as_pil(item: Any) -> Image.Image:
    """Image as PIL, RGB or grey; what does not decode gets one line."""
    if isinstance(item, Image.Image):
        image = item
    elif isinstance(item, (bytes, bytearray, str, Path)):
        try:
            image = Image.open(io.BytesIO(item) if isinstance(item, (bytes, bytearray)) else item)
            image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            where = item if isinstance(item, (str, Path)) else f"{len(item)} bytes"
            raise InputError(f"an image must decode, but {where} does not: {error}") from None
    else:
        array = as_image_array(item)
        return Image.fromarray(array[0]) if len(array) == 1 else Image.fromarray(array.transpose(1, 2, 0))
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def as_rgb(item: Any) -> Image.Image:
    """Image as PIL with three channels."""
    return as_pil(item).convert("RGB")


# ---- Pillow's resizing of 8-bit images as matrix products: the same levels, for a batch, on any device ----
#
# Pillow weighs the pixels under a kernel, along rows and then along columns, with weights of 22 bits and a rounding to
# levels after each. In float64 such sums are exact, so the levels do not depend on the order or the device.

BITS = 22
"""Bits of a weight behind the point."""


def _linear(x: Floats) -> Floats:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _cubic(x: Floats) -> Floats:
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: Floats) -> Floats:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


KERNELS: dict[int, tuple[Callable[[Floats], Floats], float]] = {
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
            weights = _weights_on(values.device, values.shape[axis], size, resample)
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
def _weights(source: int, target: int, resample: int) -> Floats:
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
    whole: Floats = np.trunc(weights * 2.0**BITS + np.copysign(0.5, weights))
    return whole


@lru_cache(maxsize=256)
def _weights_on(device: torch.device, source: int, target: int, resample: int) -> Tensor:
    """Kept on the device: a copy from the host would keep a training step out of a CUDA graph."""
    return torch.from_numpy(_weights(source, target, resample)).to(device)


# ---- What an image goes through before a network: resize, centre crop, scale and normalise ----


@dataclass(frozen=True)
class Preprocess:
    """Resize (a short side, or height x width), centre crop, then (pixel * scale - mean) / std."""

    short_side: int | None
    exact: tuple[int, int] | None
    crop: tuple[int, int] | None
    resample: int
    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, item: Any) -> Tensor:
        image = as_rgb(item)
        size = self._size(*image.size)
        if size is not None and size != image.size:
            image = image.resize(size, resample=Image.Resampling(self.resample))
        return self._finished(torch.from_numpy(np.array(image)).permute(2, 0, 1)).contiguous()

    def takes_batches(self) -> bool:
        """Whether `batch` can stand in for one call per image."""
        return self.resample in KERNELS

    def batch(self, levels: Tensor) -> Tensor:
        """The same for uint8 images `n c h w` of one size at once, where they are: to the level what one call gives."""
        height, width = levels.shape[2:]
        size = self._size(width, height)
        values = levels if size is None else resized(levels, size[1], size[0], self.resample)
        return self._finished(values)

    def _finished(self, levels: Tensor) -> Tensor:
        """Cropped, scaled and normalised; one channel becomes three against the three means."""
        pixels = levels if self.crop is None else _centre(levels, self.crop)
        mean, std = (_by_channel(values, levels.device) for values in (self.mean, self.std))
        return (pixels.to(torch.float32) * self.scale - mean) / std

    def _size(self, old_width: int, old_height: int) -> tuple[int, int] | None:
        """Width and height after resizing; the long side is cut to a whole number, as the processors do."""
        if self.exact is not None:
            return self.exact[1], self.exact[0]
        if self.short_side is None:
            return None
        short, long = sorted((old_width, old_height))
        longer = int(self.short_side * long / short)
        return (self.short_side, longer) if old_width <= old_height else (longer, self.short_side)


@lru_cache(maxsize=256)
def _by_channel(values: tuple[float, float, float], device: torch.device) -> Tensor:
    """A number a channel, kept on the device."""
    return torch.tensor(values, device=device)[:, None, None]


def _centre(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Centre crop of the last two dimensions; an image smaller than the crop is padded with black."""
    height, width = size
    short = (max(height - pixels.shape[-2], 0), max(width - pixels.shape[-1], 0))
    if any(short):
        top, left = (-(-s // 2) for s in short)
        pixels = torch.nn.functional.pad(pixels, (left, short[1] - left, top, short[0] - top))
    top, left = (pixels.shape[-2] - height) // 2, (pixels.shape[-1] - width) // 2
    return pixels[..., top : top + height, left : left + width]


def from_processor(config: JsonObject) -> Preprocess:
    """The preprocessing that a hub's preprocessor_config.json describes."""
    cropped = bool(config.get("do_center_crop", "crop_size" in config)) and bool(config.get("crop_size"))
    short, exact = None, None
    if config.get("do_resize", True):
        size = config.get("size", 224)
        if isinstance(size, int):
            # Old files hold one number: the short side where a crop follows, both sides where none does.
            short, exact = (size, None) if cropped else (None, (size, size))
        elif "shortest_edge" in size:
            short = int(size["shortest_edge"])
        else:
            exact = (int(size["height"]), int(size["width"]))
    crop = config.get("crop_size") if cropped else None
    crop = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"]) if crop else None
    normal = config.get("do_normalize", True)
    return Preprocess(
        short,
        exact,
        crop,
        int(config.get("resample", Image.Resampling.BILINEAR)),
        float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0,
        tuple(config.get("image_mean", (0.5, 0.5, 0.5))) if normal else (0.0, 0.0, 0.0),
        tuple(config.get("image_std", (0.5, 0.5, 0.5))) if normal else (1.0, 1.0, 1.0),
    )


def augmented(item: Any, seed: int, row: int) -> Any:
    """A random crop of 64 to 100 % of the area at the image's own size, and a flip every other time."""
    if isinstance(item, str):
        raise InputError("augmentation runs are for images, got text; leave augment out")
    image = as_pil(item)
    # Keyed by the row, not by the id: published difficulty scores of augmented images rest on these draws.
    draw = np.random.default_rng((seed, row))
    scale = np.sqrt(draw.uniform(0.64, 1.0))
    width, height = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    left, top = draw.integers(0, image.width - width + 1), draw.integers(0, image.height - height + 1)
    cropped = image.resize(image.size, box=(int(left), int(top), int(left) + width, int(top) + height))
    if draw.random() < 0.5:
        cropped = cropped.transpose(0)  # PIL's FLIP_LEFT_RIGHT
    return as_image_array(cropped)
