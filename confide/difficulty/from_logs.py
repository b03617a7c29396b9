"""Difficulty read from a training log: confusion of an ensemble, entropy, loss, how often the prediction was wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import check_range
from confide.difficulty.base import DIFFICULTY
from confide.difficulty.training_logs import Selection, TrainingLog

# Confusion score of an ensemble's training.


@DIFFICULTY.add(
    "confusion",
    paper="Albiero et al., Confusing Large Models by Confusing Small Models; Simsek et al., 2022",
    source="log",
    corners=({"base": 2}, {"epochs": "last"}, {"members": (0,)}),
)
def confusion(
    log: TrainingLog, *, base: Any = "e", epochs: Selection = "all", members: Selection = "all"
) -> NDArray[np.float64]:
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


@DIFFICULTY.add("entropy", paper="Shannon, 1948", source="log", corners=({"base": 2},))
def entropy(
    log: TrainingLog, *, base: Any = "e", epochs: Selection = "last", members: Selection = "all"
) -> NDArray[np.float64]:
    """Entropy of the prediction, -sum_k p_k log p_k, of the member mean after the last epoch.

    Args:
        base: of the logarithm, "e" or a number.
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.
    """
    return log.mean_entropy(epochs, members) / log_of_base(base)


@DIFFICULTY.add(
    "loss", paper="cross-entropy of a trained model, as in Cui et al., 2023", source="log", corners=({"epochs": "all"},)
)
def loss(log: TrainingLog, *, epochs: Selection = "last", members: Selection = "all") -> NDArray[np.float64]:
    """Cross-entropy of the label, -log p_y, after the last epoch, averaged over members.

    Args:
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.
    """
    return log.mean_loss(epochs, members)


@DIFFICULTY.add(
    "correctness",
    paper="Toneva et al., 2019, arXiv:1812.05159; Moon et al., 2020, arXiv:2007.01458",
    source="log",
    corners=({"epochs": "last"},),
)
def correctness(log: TrainingLog, *, epochs: Selection = "all", members: Selection = "all") -> NDArray[np.float64]:
    """One minus the share of epochs (and members) in which the label was predicted, 1 - mean 1[argmax p = y].

    Args:
        epochs: "all", "last" or epoch numbers.
        members: "all" or positions.
    """
    return np.asarray(1 - log.correct_frequency(epochs, members), dtype=np.float64)
