"""Linear maps along the sides of an image as matrices: Gaussian smoothing, centre zoom, box resizing.

A map of h rows is a matrix h x h whatever the width of its kernel, so the borders and kernels wider than the image
need no padding, and a batch is one matrix product.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def along_sides(images: Tensor, rows: Matrix, columns: Matrix) -> Tensor:
    """rows @ image @ columns^T for every channel."""
    # On a GPU float32 products may be cut to 10 bits by a setting of the user; in float64 they never are.
    kind = torch.float64 if images.device.type == "cuda" else images.dtype
    left, right = (torch.from_numpy(m).to(images.device, kind) for m in (rows, columns))
    return (left @ (images.to(kind) @ right.T)).to(images.dtype)


def gaussian(images: Tensor, sigma: float, *, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Gaussian smoothing, cut off at `truncate` sigma; beyond the border `nearest` or `reflect` (edge twice)."""
    if sigma <= 0:
        return images
    height, width = images.shape[-2:]
    return along_sides(
        images, gaussian_matrix(height, sigma, truncate, border), gaussian_matrix(width, sigma, truncate, border)
    )


@lru_cache(maxsize=64)
def gaussian_matrix(side: int, sigma: float, truncate: float, border: str) -> Matrix:
    """Row i holds the weights of the pixels that make smoothed pixel i."""
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    source = np.arange(side)[:, None] + offsets[None, :]
    if border == "nearest":
        source = source.clip(0, side - 1)
    else:
        folded = source % (2 * side)
        source = np.minimum(folded, 2 * side - 1 - folded)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (np.arange(side)[:, None], source), np.broadcast_to(weights, source.shape))
    return matrix


@lru_cache(maxsize=256)
def zoom_matrix(side: int, factor: float) -> Matrix:
    """The middle 1/factor of a side stretched linearly, ends on ends, and cut to the side again."""
    crop = math.ceil(side / factor)
    begin = (side - crop) // 2
    stretched = round(crop * factor)
    trim = (stretched - side) // 2
    place = (np.arange(side) + trim) * ((crop - 1) / max(stretched - 1, 1))
    low = np.floor(place).astype(int).clip(0, crop - 1)
    share = place - low
    matrix = np.zeros((side, side))
    matrix[np.arange(side), begin + low] += 1 - share
    matrix[np.arange(side), begin + np.minimum(low + 1, crop - 1)] += share
    return matrix


@lru_cache(maxsize=64)
def box_matrix(source: int, target: int) -> Matrix:
    """Resizing by the mean of the pixels whose centres fall into the box of a new pixel (at least the nearest)."""
    scale = source / target
    reach = max(scale, 1.0)
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(int(centre - 0.5 * reach + 0.5), 0), min(int(centre + 0.5 * reach + 0.5), source)
        distance = (np.arange(first, last) + 0.5 - centre) / reach
        matrix[row, first:last] = (distance > -0.5) & (distance <= 0.5)
        matrix[row] /= matrix[row].sum()
    return matrix
