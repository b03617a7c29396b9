"""A line blur of an own angle per image: a one-sided Gaussian along a direction, in whole pixels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def line_blur(images: Tensor, radius: int, sigma: float, degrees: NDArray[np.float64]) -> Tensor:
    """Sum over i = 0 .. 2 radius of w_i image(moved by i pixels along the angle), w_i ~ exp(-i^2 / 2 sigma^2).

    Pixels beyond the border are those of the border.
    """
    n, channels, height, width = images.shape
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    turn = np.deg2rad(degrees)[:, None]
    down, right = (-np.ceil(taps * part(turn) - 0.5).astype(np.int64) for part in (np.sin, np.cos))
    flat = images.reshape(n, channels, height * width)
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    result = flat * float(weights[0])
    for tap in taps[1:]:
        if weights[tap] < 1e-7:
            break
        dy, dx = (torch.from_numpy(moves[:, tap]).to(images.device)[:, None] for moves in (down, right))
        from_rows = (rows - dy).clamp_(0, height - 1) * width
        place = (from_rows[:, :, None] + (columns - dx).clamp_(0, width - 1)[:, None, :]).reshape(n, 1, -1)
        result += flat.gather(2, place.expand(n, channels, -1)).mul_(float(weights[tap]))
    return result.reshape(images.shape)
