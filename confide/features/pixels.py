"""The inputs themselves as features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.features.family import EXTRACTORS, Extractor
from confide.features.images import as_image_array


@EXTRACTORS.add("pixels", paper="baseline: no model", kind="image")
def pixels(name: str = "", *, size: int | None = None) -> Extractor:
    """Pixel values / 255 as one row per image; rows of numbers pass as they are.

    Args:
        size: average-pool every image to size x size first; None keeps all pixels.
    """

    def prepare(item: Any) -> Tensor:
        array = np.asarray(item)
        if array.ndim <= 1 and array.dtype.kind in "fiub":
            return torch.from_numpy(array.astype(np.float32)).reshape(-1)
        image = torch.from_numpy(as_image_array(item).astype(np.float32)) / 255
        if size is not None:
            image = torch.nn.functional.adaptive_avg_pool2d(image, size)
        return image.reshape(-1)

    return Extractor("pixels" if size is None else f"pixels{size}", "image", prepare, lambda batch: batch)
