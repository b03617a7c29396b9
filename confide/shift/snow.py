"""Falling snow."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import along_sides, zoom_matrix
from confide.shift.colours import luminance
from confide.shift.family import SHIFTS
from confide.shift.streaks import line_blur


@SHIFTS.add(
    "snow",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    ),
    large=(
        (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
    ),
    smallest=lambda parameters: 2 * int(parameters[4]),
)
def snow(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Falling snow, w x + (1 - w) max(x, 1.5 grey + 0.5), plus a layer of streaks and the same turned by 180°.

    The layer: N(mean, deviation), zoomed, values under t set to 0, moved along an angle of -135° to -45°.
    """
    mean, deviation, zoom, threshold, radius, sigma, share = parameters
    height, width = images.shape[-2:]
    layer = draws.normal("layer", 1, height, width).mul_(deviation).add_(mean)
    layer = along_sides(layer, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    layer = torch.where(layer < threshold, 0.0, layer).clamp_(0.0, 1.0)
    degrees = draws.numbers("angle", 1)[:, 0] * 90.0 - 135.0
    layer = line_blur(layer, int(radius), sigma, degrees)
    whitened = torch.maximum(images, luminance(images) * 1.5 + 0.5)
    return share * images + (1 - share) * whitened + layer + layer.flip(-2, -1)
