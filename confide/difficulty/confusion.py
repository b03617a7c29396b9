"""Confusion score of an ensemble's training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import check_range
from confide.difficulty.family import DIFFICULTY
from confide.difficulty.log import Choice, Log


@DIFFICULTY.add(
    "confusion",
    paper="Albiero et al., Confusing Large Models by Confusing Small Models; Simsek et al., 2022",
    source="log",
    corners=({"base": 2}, {"epochs": "last"}, {"members": (0,)}),
)
def confusion(log: Log, *, base: Any = "e", epochs: Choice = "all", members: Choice = "all") -> NDArray[np.float64]:
    """Confusion score, the mean over epochs of H(mean over members of p).

    The entropy is that of the member mean, not the mean of the members' entropies. The paper's threshold 5 is in bits.

    Args:
        base: of the logarithm, "e" or a number; 2 for the paper's bits.
        epochs: "all", "last" or epoch numbers; the paper finds 20 epochs enough.
        members: "all" or positions; the paper takes three.
    """
    return log.mean_entropy(epochs, members) / log_of_base(base)


def log_of_base(base: Any) -> float:
    """Natural logarithm of a base given as "e" or a number above 1."""
    number = math.e if base == "e" else float(base)
    check_range(number, "base", 1, low_open=True)
    return math.log(number)
