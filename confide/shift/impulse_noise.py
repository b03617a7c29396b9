"""Dead and hot pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "impulse_noise",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(0.01, 0.02, 0.03, 0.05, 0.07),
    large=(0.03, 0.06, 0.09, 0.17, 0.27),
)
def impulse_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Salt and pepper, a share c of the values (each channel on its own) set to 0 or 1, half each."""
    share = parameters[0]
    drawn = draws.uniform("noise", *images.shape[1:])
    salted = torch.where(drawn < share, 1.0, images)
    return torch.where(drawn < 0.5 * share, 0.0, salted)
