"""Many small steps along the sign of the gradient, each put back into the bound."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.attacks.family import ATTACKS, Model, loss_gradient


@ATTACKS.add(
    "pgd", paper="Madry et al., 2018, arXiv:1706.06083", corners=({"epsilon": 0.0}, {"steps": 1}, {"step_size": 0.5})
)
def pgd(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    draws: Draws,
    epsilon: float = 8 / 255,
    steps: int = 10,
    step_size: float = 0.25,
) -> Tensor:
    """Projected gradient, x <- within epsilon of the image(x + step sign(gradient)), from a random start.

    Args:
        epsilon: largest change of a value; 0 leaves the image.
        steps: how many; the paper takes 7 to 20.
        step_size: of a step, as a share of epsilon; the paper takes 0.25.
    """
    start = draws.uniform("start", *images.shape[1:]).mul_(2.0).sub_(1.0)
    current = (images + epsilon * start).clamp(0.0, 1.0)
    for _ in range(steps):
        variable = current.detach().requires_grad_(True)
        gradient = loss_gradient(model, variable, labels, variable)
        moved = current + step_size * epsilon * gradient.sign()
        current = moved.clamp(images - epsilon, images + epsilon).clamp(0.0, 1.0)
    return current
