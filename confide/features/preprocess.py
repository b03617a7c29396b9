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
        size = self._size(image)
        if size is not None and size != image.size:
            image = image.resize(size, resample=Image.Resampling(self.resample))
        pixels = np.asarray(image)
        if self.crop is not None:
            pixels = _centre(pixels, self.crop)
        rows = torch.from_numpy(pixels.astype(np.float32)) * self.scale
        rows = (rows - torch.tensor(self.mean)) / torch.tensor(self.std)
        return rows.permute(2, 0, 1).contiguous()

    def _size(self, image: Image.Image) -> tuple[int, int] | None:
        """Width and height after resizing; the long side is cut to a whole number, as the processors do."""
        if self.exact is not None:
            return self.exact[1], self.exact[0]
        if self.short_side is None:
            return None
        short, long = sorted(image.size)
        longer = int(self.short_side * long / short)
        return (self.short_side, longer) if image.width <= image.height else (longer, self.short_side)


def _centre(pixels: np.ndarray[Any, Any], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Centre crop; an image smaller than the crop is padded with black."""
    height, width = size
    short = (max(height - pixels.shape[0], 0), max(width - pixels.shape[1], 0))
    if any(short):
        pad = [(-(-s // 2), s // 2) for s in short]
        pixels = np.pad(pixels, (*pad, (0, 0)))
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


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
