"""JPEG re-encoding at any quality: what an upload to the web does to an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.core.door import InputError
from confide.shift.family import check_images
from confide.shift.jpeg_compression import reencode


def jpeg_reencoded(images: Any, quality: int) -> Any:
    """Images (uint8, or floating in [0, 1], `n c h w`) as a JPEG of this quality gives them back.

    Args:
        quality: 1 (worst) to 100.
    """
    if isinstance(quality, bool) or quality not in range(1, 101):
        raise InputError(f"quality must be a whole number from 1 to 100, got {quality!r}")
    tensor = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    check_images(tensor)
    coarse = tensor.dtype == torch.uint8
    made = reencode(tensor.float() / 255 if coarse else tensor.float(), int(quality))
    result = (made * 255).round().to(torch.uint8) if coarse else made.to(tensor.dtype)
    return result if isinstance(images, Tensor) else result.numpy()
