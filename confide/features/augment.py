"""The random crop and flip of an augmentation run, fixed by (seed, sample)."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.core.door import InputError
from confide.features.images import as_image_array, as_pil


def augmented(item: Any, seed: int, row: int) -> Any:
    """A random crop of 64 to 100 % of the area at the image's own size, and a flip every other time."""
    if isinstance(item, str):
        raise InputError("augmentation runs are for images, got text; leave augment out")
    image = as_pil(item)
    draw = np.random.default_rng((seed, row))
    scale = np.sqrt(draw.uniform(0.64, 1.0))
    width, height = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    left, top = draw.integers(0, image.width - width + 1), draw.integers(0, image.height - height + 1)
    cropped = image.resize(image.size, box=(int(left), int(top), int(left) + width, int(top) + height))
    if draw.random() < 0.5:
        cropped = cropped.transpose(0)  # PIL's FLIP_LEFT_RIGHT
    return as_image_array(cropped)
