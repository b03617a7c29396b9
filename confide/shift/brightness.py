"""More light."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "brightness",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(0.05, 0.1, 0.15, 0.2, 0.3),
    large=(0.1, 0.2, 0.3, 0.4, 0.5),
)
def brightness(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """More light, V + c in hue, saturation, value."""
    value = images.amax(dim=1, keepdim=True)
    raised = (value + parameters[0]).clamp_max(1.0)
    # With hue and saturation kept, all channels grow by the same factor; black has none and turns grey.
    return torch.where(value > 0, images * (raised / value.clamp_min(1e-12)), raised)
