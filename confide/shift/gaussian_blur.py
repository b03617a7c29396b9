"""A blur of long range."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import gaussian
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "gaussian_blur",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="extra",
    small=(0.4, 0.6, 0.7, 0.8, 1.0),
    large=(1.0, 2.0, 3.0, 4.0, 6.0),
    smallest=lambda parameters: int(4 * parameters[0] + 0.5) + 1,
)
def gaussian_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Gaussian smoothing of standard deviation c, cut off at 4 c."""
    return gaussian(images, parameters[0])
