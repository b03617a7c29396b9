"""The fitted Gaussians that `rmd` and `md` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.distances import class_fit, own_distances
from confide.core.door import InputError
from confide.core.gaussians import Gaussians, Projection, gaussians_from
from confide.core.moments import fourth_moment, moments_of

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GaussianDifficulty:
    """Distance to a class's Gaussian, relative to that of all data or not."""

    gaussians: Gaussians
    is_relative: bool

    @property
    def notes(self) -> tuple[str, ...]:
        return self.gaussians.notes

    @cached_property
    def projection(self) -> Projection:
        """Computed once for all scoring calls."""
        return self.gaussians.relative() if self.is_relative else self.gaussians.whitening()

    def values_of(self, values: Any, labels: Labels | str | None) -> Float64:
        """Distances to the labels' classes, or to the likeliest class, or the minimum over the classes."""
        if int(values.shape[1]) != self.gaussians.moments.dim:
            raise InputError(
                f"features must have the {self.gaussians.moments.dim} columns of the fit, got {values.shape[1]}; "
                "use the same extractor"
            )
        if isinstance(labels, np.ndarray):
            self._check_present(labels)
            return own_distances(self.gaussians, values, labels, relative=self.is_relative, projection=self.projection)
        found = class_fit(self.gaussians, values)
        distance = found.likeliest_distance if labels == "predicted" else found.nearest_distance
        return distance - found.agnostic if self.is_relative else distance

    def _check_present(self, labels: Labels) -> None:
        absent = self.gaussians.counts[labels] == 0
        if absent.any():
            bad = int(absent.nonzero()[0][0])
            raise InputError(
                f"every label must have samples in the fit, but class {labels[bad]} (sample {bad}) has none; "
                "fit on data with that class or drop the sample"
            )


def fit_difficulty(
    values: Any, labels: Labels, shrinkage: Any, augmented: Sequence[Any], *, relative: bool
) -> GaussianDifficulty:
    """Gaussians of the rows, or of augmented runs of the same samples in their place."""
    sources = [_run(run, values) for run in augmented] or [values]
    num_classes = int(labels.max()) + 1
    moments = moments_of(sources[0], labels, num_classes)
    for source in sources[1:]:
        moments = moments.merge(moments_of(source, labels, num_classes, moments.pilots))

    def fourth(centres: Float64, by_class: bool) -> float:
        return float(np.mean([fourth_moment(s, labels if by_class else None, centres) for s in sources]))

    return GaussianDifficulty(gaussians_from(moments, fourth, shrinkage=shrinkage), relative)


def _run(run: Any, values: Any) -> Any:
    rows = getattr(run, "values", run)
    if tuple(rows.shape) != tuple(values.shape):
        raise InputError(
            f"an augmented run must have the shape of the features, {tuple(values.shape)}, got {tuple(rows.shape)}; "
            "extract the same samples in the same order"
        )
    return rows
