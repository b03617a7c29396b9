"""Noise of a sensor in low light."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "gaussian_noise",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(0.04, 0.06, 0.08, 0.09, 0.10),
    large=(0.08, 0.12, 0.18, 0.26, 0.38),
)
def gaussian_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Gaussian noise on every value, x + N(0, c)."""
    return images + draws.normal("noise", *images.shape[1:]).mul_(parameters[0])
