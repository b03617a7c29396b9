"""Distance to the mean of the own class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.centres import distances_to, nearest_centre
from confide.core.door import InputError, check_choice
from confide.core.moments import class_means
from confide.difficulty.family import DIFFICULTY


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Class means; difficulty is the distance to the own one."""

    means: NDArray[np.float64]
    counts: NDArray[np.int64]
    distance: str
    notes: tuple[str, ...] = ()

    def values_of(self, values: Any, labels: NDArray[np.int64] | str | None) -> NDArray[np.float64]:
        """Distance to the label's prototype; "min" and "predicted" are both the nearest one."""
        if not isinstance(labels, np.ndarray):
            return nearest_centre(values, self.means[self.counts > 0], distance=self.distance)[0]
        absent = self.counts[labels] == 0
        if absent.any():
            raise InputError(f"every label must have samples in the fit, but class {labels[absent][0]} has none")
        return distances_to(values, self.means, labels, distance=self.distance)


@DIFFICULTY.add(
    "prototype",
    paper="Sorscher et al., 2022, arXiv:2206.14486 (supervised prototypes)",
    source="features",
    corners=({"distance": "cosine"},),
)
def prototype(values: Any, labels: NDArray[np.int64], *, distance: str = "l2") -> Prototypes:
    """Supervised prototype, ||x - mu_y||.

    Args:
        distance: "l2", or "cosine" for 1 - cos.
    """
    check_choice(distance, ("l2", "cosine"), "distance")
    means, counts = class_means(values, labels, int(labels.max()) + 1)
    return Prototypes(means, counts, distance)
