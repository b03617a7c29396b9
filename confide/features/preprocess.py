"""What an image goes through before a network: resize, centre crop, scale and normalise, as the hub's processors do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from confide.features.images import as_rgb
from confide.features.resize import KERNELS, resized

Numbers = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocess:
    """Resize (a short side, or height x width), centre crop, then (pixel * scale - mean) / std."""

    short_side: int | None
    exact: tuple[int, int] | None
    crop: tuple[int, int] | None
    resample: int
    scale: float
    mean: Numbers
    std: Numbers

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
        mean, std = (torch.tensor(v, device=levels.device)[:, None, None] for v in (self.mean, self.std))
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


def _centre(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Centre crop of the last two dimensions; an image smaller than the crop is padded with black."""
    height, width = size
    short = (max(height - pixels.shape[-2], 0), max(width - pixels.shape[-1], 0))
    if any(short):
        top, left = (-(-s // 2) for s in short)
        pixels = torch.nn.functional.pad(pixels, (left, short[1] - left, top, short[0] - top))
    top, left = (pixels.shape[-2] - height) // 2, (pixels.shape[-1] - width) // 2
    return pixels[..., top : top + height, left : left + width]


def from_processor(config: Mapping[str, Any]) -> Preprocess:
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
