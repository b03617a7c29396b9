"""Scaled down and up again."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import along_sides, box_matrix
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "pixelate",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(0.95, 0.9, 0.85, 0.75, 0.65),
    large=(0.6, 0.5, 0.4, 0.3, 0.25),
    smallest=lambda parameters: 8,
)
def pixelate(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Large pixels, scaled to the share c by boxes and back."""
    down, across = (int(side * parameters[0]) for side in images.shape[-2:])
    height, width = images.shape[-2:]
    small = along_sides(images, box_matrix(height, down), box_matrix(width, across))
    return along_sides(small, box_matrix(down, height), box_matrix(across, width))
