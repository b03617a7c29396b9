"""Loss of a trained model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.difficulty.family import DIFFICULTY
from confide.difficulty.log import Choice, Log


@DIFFICULTY.add(
    "loss", paper="cross-entropy of a trained model, as in Cui et al., 2023", source="log", corners=({"epochs": "all"},)
)
def loss(log: Log, *, epochs: Choice = "last", members: Choice = "all") -> NDArray[np.float64]:
    """Cross-entropy of the label, -log p_y, after the last epoch, averaged over members.

    Args:
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.
    """
    return log.mean_loss(epochs, members)
