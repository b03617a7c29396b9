"""Difficulty read from a training log: confusion of an ensemble, entropy, loss, how often the prediction was wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import check_number
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

    When: several networks were trained and their outputs logged by epoch.
    When not: one network is all there is: its entropy is as good against people.

    Args:
        log: of a `Recorder`, or what `difficulty.score` makes of probabilities `[member,] epoch n c`.
        base: of the logarithm, "e" or a number; 2 for the paper's bits.
        epochs: "all", "last" or epoch numbers; the paper finds 20 epochs enough.
        members: "all" or positions; the paper takes three.

    Returns:
        One number per sample, high = hard.

    Example:
        >>> import numpy as np
        >>> probs = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.4, 0.6]]])  # two epochs, two samples
        >>> confide.difficulty.score("confusion", probs, labels=[0, 0]).values.round(3).tolist()
        [0.413, 0.683]
    """
    return log.mean_entropy(epochs, members) / log_of_base(base)


def log_of_base(base: Any) -> float:
    """Natural logarithm of a base given as "e" or a number above 1."""
    return math.log(math.e if base == "e" else check_number(base, "base", 1.0, 1.0, math.inf, True, True))


@DIFFICULTY.add("entropy", paper="Shannon, 1948", source="log", corners=({"base": 2},))
def entropy(
    log: TrainingLog, *, base: Any = "e", epochs: Selection = "last", members: Selection = "all"
) -> NDArray[np.float64]:
    """Entropy of the prediction, -sum_k p_k log p_k, of the member mean after the last epoch.

    When: a trained network is there and samples have no labels: as near to what people find hard as any single score
    measured.
    When not: labels are suspected: it does not look at them.

    Args:
        log: of a `Recorder`, or what `difficulty.score` makes of probabilities `[member,] epoch n c`.
        base: of the logarithm, "e" or a number.
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.

    Returns:
        One number per sample, high = hard.

    Example:
        >>> import numpy as np
        >>> probs = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.4, 0.6]]])  # two epochs, two samples
        >>> confide.difficulty.score("entropy", probs, labels=[0, 0]).values.round(3).tolist()
        [0.5, 0.673]
    """
    return log.mean_entropy(epochs, members) / log_of_base(base)


@DIFFICULTY.add(
    "loss", paper="cross-entropy of a trained model, as in Cui et al., 2023", source="log", corners=({"epochs": "all"},)
)
def loss(log: TrainingLog, *, epochs: Selection = "last", members: Selection = "all") -> NDArray[np.float64]:
    """Cross-entropy of the label, -log p_y, after the last epoch, averaged over members.

    When: labels exist and a trained network that has not seen the samples.
    When not: the network was trained on the samples: it has learnt them by heart.

    Args:
        log: of a `Recorder`, or what `difficulty.score` makes of probabilities `[member,] epoch n c`.
        epochs: "last", "all" or epoch numbers (then averaged).
        members: "all" or positions.

    Returns:
        One number per sample, high = hard.

    Example:
        >>> import numpy as np
        >>> probs = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.4, 0.6]]])  # two epochs, two samples
        >>> confide.difficulty.score("loss", probs, labels=[0, 0]).values.round(3).tolist()
        [0.223, 0.916]
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

    When: training logs of the samples are there: forgotten and never learnt ones.
    When not: samples were not trained on.

    Args:
        log: of a `Recorder`, or what `difficulty.score` makes of probabilities `[member,] epoch n c`.
        epochs: "all", "last" or epoch numbers.
        members: "all" or positions.

    Returns:
        One number per sample, high = hard.

    Example:
        >>> import numpy as np
        >>> probs = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.4, 0.6]]])  # two epochs, two samples
        >>> confide.difficulty.score("correctness", probs, labels=[0, 0]).values.round(3).tolist()
        [0.0, 0.5]
    """
    return np.asarray(1 - log.correct_frequency(epochs, members), dtype=np.float64)
