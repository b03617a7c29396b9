"""Frequency of wrong predictions during training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.difficulty.family import DIFFICULTY
from confide.difficulty.log import Choice, Log


@DIFFICULTY.add(
    "correctness",
    paper="Toneva et al., 2019, arXiv:1812.05159; Moon et al., 2020, arXiv:2007.01458",
    source="log",
    corners=({"epochs": "last"},),
)
def correctness(log: Log, *, epochs: Choice = "all", members: Choice = "all") -> NDArray[np.float64]:
    """One minus the share of epochs (and members) in which the label was predicted, 1 - mean 1[argmax p = y].

    Args:
        epochs: "all", "last" or epoch numbers.
        members: "all" or positions.
    """
    return np.asarray(1 - log.correct_frequency(epochs, members), dtype=np.float64)
