"""The inputs themselves as features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.features.family import EXTRACTORS, Extractor
from confide.features.images import as_image_array

MOST_PIXELS, POOLED = 3072, 16


@EXTRACTORS.add("pixels", paper="baseline: no model", kind="image")
def pixels(name: str = "", *, size: int | None = None) -> Extractor:
    """Pixel values / 255 as one row per image; rows of numbers pass as they are.

    Args:
        size: average-pool every image to size x size first; 0 keeps all pixels, None all up to 3,072 numbers and pools
            larger images to 16 x 16, because the time of a covariance grows with the cube of their number.
    """

    def prepare(item: Any) -> Tensor:
        array = np.asarray(item)
        if array.ndim <= 1 and array.dtype.kind in "fiub":
            return torch.from_numpy(array.astype(np.float32)).reshape(-1)
        image = torch.from_numpy(as_image_array(item).astype(np.float32)) / 255
        pooled = POOLED if size is None and image.numel() > MOST_PIXELS else size
        if pooled:
            image = torch.nn.functional.adaptive_avg_pool2d(image, pooled)
        return image.reshape(-1)

    return Extractor("pixels" if not size else f"pixels{size}", "image", prepare, lambda batch: batch)
