"""A pencil drawing of the edges."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import gaussian
from confide.shift.colours import luminance
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "sketch",
    paper="Wang et al., 2019, arXiv:1905.13549",
    kind="domain",
    small=((0.2, 0.5), (0.4, 0.5), (0.6, 0.5), (0.8, 0.5), (1.0, 0.5)),
    large=((0.2, 1.5), (0.4, 1.5), (0.6, 1.5), (0.8, 1.5), (1.0, 1.5)),
    smallest=lambda parameters: 4,
)
def sketch(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Dark lines on white paper where the picture changes, mixed in by s; severity 5 is the drawing alone.

    A line is as dark as the slope of the smoothed grey picture, relative to the steep end (95 %) of its slopes.
    """
    share, sigma = parameters
    tone = gaussian(luminance(images), sigma)
    down, across = tone.diff(dim=-2), tone.diff(dim=-1)
    slope = (down[..., :, :-1] ** 2 + across[..., :-1, :] ** 2).sqrt()
    steep = slope.flatten(1).quantile(0.95, dim=1)[:, None, None, None].clamp_min(1e-3)
    lines = 1 - (slope / steep).clamp_max(1.0)
    # One row and one column fewer have a slope; the last are drawn once more.
    drawing = torch.nn.functional.pad(lines, (0, 1, 0, 1), mode="replicate")
    return images + share * (drawing - images)
