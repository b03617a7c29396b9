"""Inputs that look damaged: pictures without contrast, blurred, noisy, dark or bright; texts without words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from confide.core.progress import Progress

Float64 = NDArray[np.float64]
OUTLIER = 5.0
"""Robust deviations from the median of all pictures beyond which sharpness is not of this data."""


def quality_flags(inputs: Any, n: int) -> NDArray[np.str_]:
    """A word per input: "" where nothing is wrong, else constant, blurred, noisy, dark, bright or empty."""
    flags = np.full(n, "", dtype="<U8")
    contrast, sharpness, level = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    with Progress("quality", n) as progress:
        for row in range(n):
            item = inputs[row]
            if isinstance(item, str):
                flags[row] = "" if len("".join(ch for ch in item if ch.isalnum())) > 1 else "empty"
            elif (grey := _grey(item)) is not None:
                contrast[row], sharpness[row], level[row] = _statistics(grey)
            progress.step()
    known = np.isfinite(contrast)
    if known.any():
        flags[known] = _picture_flags(contrast[known], sharpness[known], level[known])
    return flags


def _grey(item: Any) -> NDArray[np.float32] | None:
    if isinstance(item, Image.Image):
        return np.asarray(item.convert("L"), dtype=np.float32)
    array = np.asarray(item)
    if array.ndim == 3 and array.dtype == np.uint8:
        axis = 0 if array.shape[0] in (1, 3) else 2
        return np.asarray(array.mean(axis=axis, dtype=np.float32))
    return array.astype(np.float32) if array.ndim == 2 and array.dtype == np.uint8 else None


def _statistics(grey: NDArray[np.float32]) -> tuple[float, float, float]:
    """Contrast, sharpness (how much of the contrast is between neighbouring pixels) and mean level."""
    contrast = float(grey.std())
    steps = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean() if min(grey.shape) > 1 else 0.0
    return contrast, float(steps) / (contrast + 1e-6), float(grey.mean())


def _picture_flags(contrast: Float64, sharpness: Float64, level: Float64) -> NDArray[np.str_]:
    flags = np.full(len(contrast), "", dtype="<U8")
    logs = np.log(sharpness + 1e-6)
    middle = np.median(logs)
    spread = 1.4826 * np.median(np.abs(logs - middle)) + 1e-3
    flags[logs > middle + OUTLIER * spread] = "noisy"
    flags[logs < middle - OUTLIER * spread] = "blurred"
    # Black or white nearly everywhere, compared with what this data shows: sketches on white are not damaged.
    low, high = np.quantile(level, (0.01, 0.99))
    faint = contrast < 0.1 * np.median(contrast)
    flags[faint & (level <= low)] = "dark"
    flags[faint & (level >= high)] = "bright"
    flags[contrast < 2.0] = "constant"
    return flags
