"""The fitted Gaussians that `rmd` and `md` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.distances import class_fit, own_distances
from confide.core.door import InputError
from confide.core.gaussians import Gaussians, Projection, gaussians_from
from confide.core.moments import fourth_moment, moments_of
from confide.difficulty.saving import Arrays, State, need_arrays, need_counts, need_shape

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]
PARTS = ("origin", "matrix", "centres", "inverse_total")


@dataclass(frozen=True, eq=False)
class GaussianDifficulty:
    """Distance to a class's Gaussian, relative to that of all data or not."""

    gaussians: Gaussians | StoredGaussians
    is_relative: bool

    @property
    def notes(self) -> tuple[str, ...]:
        return self.gaussians.notes

    @property
    def num_classes(self) -> int:
        return self.gaussians.num_classes

    @cached_property
    def projection(self) -> Projection:
        """Computed once for all scoring calls."""
        return self.gaussians.relative() if self.is_relative else self.gaussians.whitening()

    def values_of(self, values: Any, labels: Labels | str | None) -> Float64:
        """Distances to the labels' classes, or to the likeliest class, or the minimum over the classes."""
        dim = self.gaussians.means.shape[1]
        if int(values.shape[1]) != dim:
            raise InputError(
                f"features must have the {dim} columns of the fit, got {values.shape[1]}; use the same extractor"
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

    def state(self) -> State:
        """Projections rather than covariances: fewer numbers, nothing to factor again, and so the same last digit."""
        whole = self.gaussians.whitening()
        arrays: Arrays = {"counts": self.gaussians.counts, "means": self.gaussians.means}
        arrays |= {f"whole.{part}": getattr(whole, part) for part in PARTS}
        if self.is_relative and self.projection is not whole:
            arrays |= {f"relative.{part}": getattr(self.projection, part) for part in PARTS}
        return {"intensity": list(self.gaussians.intensity)}, arrays


@dataclass(frozen=True, eq=False)
class StoredGaussians:
    """Class Gaussians from a file: what scoring needs of them, ready made."""

    counts: Labels
    means: Float64
    intensity: tuple[float, float]
    whole: Projection
    part: Projection | None  # where MD - MD_agnostic has one of its own, mostly of fewer directions
    notes: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    def relative(self) -> Projection:
        return self.whole if self.part is None else self.part

    def whitening(self) -> Projection:
        return self.whole


def restore(
    numbers: Mapping[str, Any], arrays: Arrays, notes: tuple[str, ...], *, relative: bool
) -> GaussianDifficulty:
    """The model of a saved state, checked."""
    has_part = relative and "relative.matrix" in arrays
    kinds = ("whole", "relative") if has_part else ("whole",)
    need_arrays(arrays, {"counts": "int64", "means": "float64"} | {f"{k}.{p}": "float64" for k in kinds for p in PARTS})
    classes, dim = need_shape(arrays, "means", (None, None))
    need_shape(arrays, "counts", (classes,))
    need_counts(arrays["counts"])
    within, total = (float(value) for value in numbers["intensity"])
    whole, *part = (_projection(arrays, kind, classes, dim) for kind in kinds)
    own = part[0] if part else None
    stored = StoredGaussians(arrays["counts"], arrays["means"], (within, total), whole, own, notes)
    return GaussianDifficulty(stored, relative)


def _projection(arrays: Arrays, kind: str, classes: int, dim: int) -> Projection:
    _, width = need_shape(arrays, f"{kind}.matrix", (dim, None))
    need_shape(arrays, f"{kind}.origin", (dim,))
    need_shape(arrays, f"{kind}.centres", (classes, width))
    need_shape(arrays, f"{kind}.inverse_total", (width,))
    return Projection(*(arrays[f"{kind}.{part}"] for part in PARTS))


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
