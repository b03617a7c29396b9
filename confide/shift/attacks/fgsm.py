"""One step along the sign of the gradient."""

from __future__ import annotations

from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.attacks.family import ATTACKS, Model, loss_gradient


@ATTACKS.add("fgsm", paper="Goodfellow et al., 2015, arXiv:1412.6572", corners=({"epsilon": 0.0},))
def fgsm(model: Model, images: Tensor, labels: Tensor, *, draws: Draws, epsilon: float = 8 / 255) -> Tensor:
    """Fast gradient sign, x + epsilon sign(gradient of the loss).

    Args:
        epsilon: largest change of a value; 0 leaves the image.
    """
    variable = images.clone().requires_grad_(True)
    gradient = loss_gradient(model, variable, labels, variable)
    return (images + epsilon * gradient.sign()).clamp(0.0, 1.0)
