"""A camera that nears."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import along_sides, zoom_matrix
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "zoom_blur",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    smallest=lambda parameters: 8,
)
def zoom_blur(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A camera that nears, the mean of the image and its centre zooms by 1, 1 + step, ... below the top."""
    factors = zoom_factors(*parameters)
    height, width = images.shape[-2:]
    total = images.clone()
    for factor in factors:
        total += along_sides(images, zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total / (len(factors) + 1)


def zoom_factors(top: float, step: float) -> list[float]:
    """1, 1 + step, ..., all below the top; counted in thousandths, which have no rounding."""
    return [k / 1000 for k in range(1000, round(1000 * top), round(1000 * step))]
