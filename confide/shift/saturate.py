"""Colours too pale or too strong."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "saturate",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="extra",
    colour=True,
    small=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    large=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)
def saturate(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Paler (severity 1, 2) or stronger colours, a S + b in hue, saturation, value."""
    factor, shift = parameters
    value = images.amax(dim=1, keepdim=True)
    spread = value - images.amin(dim=1, keepdim=True)
    saturation = spread / value.clamp_min(1e-12)
    changed = (saturation * factor + shift).clamp(0.0, 1.0)
    coloured = value - (value - images) * (changed / saturation.clamp_min(1e-12))
    # Grey has no hue; by convention its hue is 0, which is red.
    red = torch.cat([value, value * (1 - changed), value * (1 - changed)], dim=1)
    return torch.where(spread > 0, coloured, red)
