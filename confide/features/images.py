"""One input as an image: arrays, tensors, encoded bytes, files and PIL images, all to RGB or grey `c h w` uint8."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from confide.core.door import InputError


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
