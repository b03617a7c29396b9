"""Less contrast."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS


@SHIFTS.add(
    "contrast",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(0.75, 0.5, 0.4, 0.3, 0.15),
    large=(0.4, 0.3, 0.2, 0.1, 0.05),
)
def contrast(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Less contrast, (x - mean of the channel) c + mean of the channel."""
    # Summed in float64: the mean of an image must not depend on how a batch is cut.
    means = images.double().mean(dim=(2, 3), keepdim=True).float()
    return (images - means) * parameters[0] + means
