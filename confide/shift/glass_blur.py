"""Seen through frosted glass."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import gaussian
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "glass_blur",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    smallest=lambda parameters: 2 * int(parameters[1]) + 2,
)
def glass_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Frosted glass, Gaussian blur, n passes in which each pixel swaps with one nearby, blur again.

    A pass goes from the bottom right up; the offsets are uniform in [-d, d) in both directions.
    """
    sigma, reach, passes = parameters[0], int(parameters[1]), int(parameters[2])
    soft = gaussian(images, sigma)
    n, channels, height, width = images.shape
    places = torch.arange(height * width, device=images.device).expand(n, -1).contiguous()
    waves = [wave.to(images.device) for wave in wave_fronts(height, width, reach)]
    for number in range(passes):
        drawn = draws.uniform(f"offsets{number}", 2, height * width)
        offsets = (drawn * (2 * reach)).long().sub_(reach)
        moved = offsets[:, 0] * width + offsets[:, 1]
        for own in waves:
            other = own + moved[:, own]
            mine, theirs = places[:, own], places.gather(1, other)
            places[:, own] = theirs
            places.scatter_(1, other, mine)
    swapped = soft.reshape(n, channels, -1).gather(2, places[:, None].expand(-1, channels, -1))
    return gaussian(swapped.reshape(images.shape), sigma)


def wave_fronts(height: int, width: int, reach: int) -> list[Tensor]:
    """Pixels grouped so that the swaps of a group touch each other nowhere, in an order the row by row pass allows.

    Two swaps can meet only within 2 d - 1 columns and rows; at time 2 d (rows from the bottom) + (columns from the
    right) every swap comes after those it can meet and that come first row by row, and never with one of them.
    """
    rows = torch.arange(height - reach, reach, -1)
    columns = torch.arange(width - reach, reach, -1)
    time = 2 * reach * (height - reach - rows)[:, None] + (width - reach - columns)[None, :]
    pixels = (rows[:, None] * width + columns[None, :]).ravel()
    order = time.ravel().argsort(stable=True)
    ends = time.ravel().bincount().cumsum(0)[:-1]
    return list(torch.tensor_split(pixels[order], ends))
