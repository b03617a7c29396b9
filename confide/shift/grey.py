"""The colours gone."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.colours import luminance
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "grey",
    paper="Geirhos et al., 2019, arXiv:1811.12231",
    kind="domain",
    colour=True,
    small=(0.2, 0.4, 0.6, 0.8, 1.0),
    large=(0.2, 0.4, 0.6, 0.8, 1.0),
)
def grey(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A black and white picture, x + s (grey of x - x); severity 5 has no colour left."""
    return images + parameters[0] * (luminance(images) - images)
