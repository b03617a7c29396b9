"""Noise of coherent light."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "speckle_noise",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="extra",
    small=(0.06, 0.1, 0.12, 0.16, 0.2),
    large=(0.15, 0.2, 0.35, 0.45, 0.6),
)
def speckle_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Noise that grows with the value, x + x N(0, c)."""
    return images + images * draws.normal("noise", *images.shape[1:]).mul_(parameters[0])
