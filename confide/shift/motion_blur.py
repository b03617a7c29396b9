"""A camera that moves."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS
from confide.shift.streaks import line_blur


@SHIFTS.add(
    "motion_blur",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    large=((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    smallest=lambda parameters: 2 * int(parameters[0]),
)
def motion_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A camera that moves, a one-sided Gaussian line of radius r and width sigma at an angle uniform in ±45°."""
    degrees = draws.numbers("angle", 1)[:, 0] * 90.0 - 45.0
    return line_blur(images, int(parameters[0]), parameters[1], degrees)
