"""Distance to the mean of the own class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.centres import distances_to, nearest_centre
from confide.core.door import InputError, check_choice
from confide.core.moments import class_means
from confide.difficulty.family import DIFFICULTY
from confide.difficulty.saving import Arrays, State, need_arrays, need_counts, need_shape


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Class means; difficulty is the distance to the own one."""

    means: NDArray[np.float64]
    counts: NDArray[np.int64]
    distance: str
    notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    def values_of(self, values: Any, labels: NDArray[np.int64] | str | None) -> NDArray[np.float64]:
        """Distance to the label's prototype; "min" and "predicted" are both the nearest one."""
        if int(values.shape[1]) != self.means.shape[1]:
            raise InputError(
                f"features must have the {self.means.shape[1]} columns of the fit, got {values.shape[1]}; "
                "use the same extractor"
            )
        if not isinstance(labels, np.ndarray):
            return nearest_centre(values, self.means[self.counts > 0], distance=self.distance)[0]
        absent = self.counts[labels] == 0
        if absent.any():
            raise InputError(f"every label must have samples in the fit, but class {labels[absent][0]} has none")
        return distances_to(values, self.means, labels, distance=self.distance)

    def state(self) -> State:
        return {"distance": self.distance}, {"means": self.means, "counts": self.counts}


def restore(numbers: Mapping[str, Any], arrays: Arrays, notes: tuple[str, ...]) -> Prototypes:
    """The model of a saved state, checked."""
    need_arrays(arrays, {"means": "float64", "counts": "int64"})
    classes, _ = need_shape(arrays, "means", (None, None))
    need_shape(arrays, "counts", (classes,))
    need_counts(arrays["counts"])
    check_choice(numbers["distance"], ("l2", "cosine"), "distance")
    return Prototypes(arrays["means"], arrays["counts"], numbers["distance"], notes)


@DIFFICULTY.add(
    "prototype",
    paper="Sorscher et al., 2022, arXiv:2206.14486 (supervised prototypes)",
    source="features",
    restore=restore,
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
