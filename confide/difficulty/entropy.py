"""Predictive entropy of a trained model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.difficulty.confusion import log_of_base
from confide.difficulty.family import DIFFICULTY
from confide.difficulty.log import Choice, Log


@DIFFICULTY.add("entropy", paper="Shannon, 1948", source="log", corners=({"base": 2},))
def entropy(log: Log, *, base: Any = "e", epochs: Choice = "last", members: Choice = "all") -> NDArray[np.float64]:
    """Entropy of the prediction, -sum_k p_k log p_k, of the member mean after the last epoch.

    Args:
        base: of the logarithm, "e" or a number.
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.
    """
    return log.mean_entropy(epochs, members) / log_of_base(base)
