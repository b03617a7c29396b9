"""Difficulty by distance in feature space: (relative) Mahalanobis, class prototypes, k-means centres."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.block_sizes import WIDENED_ROWS
from confide.checks import SEEDS, InputError, check_choice
from confide.difficulty.base import DIFFICULTY, FitState, need_arrays, need_counts, need_shape
from confide.numerics.blocks import block_rows, blocks, cache_rows, check_block, working_block
from confide.numerics.gaussians import (
    Gaussians,
    Projection,
    check_shrinkage,
    class_fit,
    class_means,
    fourth_moment,
    gaussians_from,
    moments_of,
    own_distances,
)
from confide.numerics.neighbours import UnitRows, closest_points, distances_to, nearest_centre, unit
from confide.registry import Interval
from confide.types import ClassIndices, Columns, Floats, JsonObject, Options


def check_columns(values: Any, dim: int) -> None:
    """Rows of the extractor that was fitted on."""
    if int(values.shape[1]) != dim:
        raise InputError(
            f"features must have the {dim} columns of the fit, got {values.shape[1]}; use the same extractor"
        )


def check_present(labels: ClassIndices, counts: ClassIndices) -> None:
    """Every label must be of a class that the fit saw."""
    absent = counts[labels] == 0
    if absent.any():
        bad = int(absent.nonzero()[0][0])
        raise InputError(
            f"every label must have samples in the fit, but class {labels[bad]} (sample {bad}) has none; "
            "fit on data with that class or drop the sample"
        )


# Gaussians of the classes: `rmd` and `md`.

PARTS = ("origin", "matrix", "centres", "inverse_total")
GAUSSIAN_WORDS = ("rmd", "md")
"""Methods whose fitted model is a `GaussianDifficulty`."""


@dataclass(frozen=True)
class DistanceParts:
    """The distances that make up one sample's RMD or MD: to its own class, to all data, and to the nearest class."""

    own: float
    all_data: float
    nearest_class: int
    nearest: float
    is_relative: bool


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

    def values_of(self, values: Any, labels: ClassIndices | str | None) -> Floats:
        """Distances to the labels' classes, or to the likeliest class, or the minimum over the classes."""
        check_columns(values, self.gaussians.means.shape[1])
        if isinstance(labels, np.ndarray):
            check_present(labels, self.gaussians.counts)
            return own_distances(self.gaussians, values, labels, relative=self.is_relative, projection=self.projection)
        fit = class_fit(self.gaussians, values)
        distance = fit.likeliest_distance if labels == "predicted" else fit.nearest_distance
        return distance - fit.agnostic if self.is_relative else distance

    def parts(self, row: Floats, label: int) -> DistanceParts:
        """What the difficulty of one sample `d` with this label is made of."""
        values = row[None, :]
        fit = class_fit(self.gaussians, values)
        own = own_distances(self.gaussians, values, np.array([label]), relative=False)
        return DistanceParts(
            float(own[0]), float(fit.agnostic[0]), int(fit.nearest[0]), float(fit.nearest_distance[0]), self.is_relative
        )

    def state(self) -> FitState:
        """Projections rather than covariances: fewer numbers, nothing to factor again, and so the same last digit."""
        whole = self.gaussians.whitening()
        arrays: Columns = {"counts": self.gaussians.counts, "means": self.gaussians.means}
        arrays |= {f"whole.{part}": getattr(whole, part) for part in PARTS}
        if self.is_relative and self.projection is not whole:
            arrays |= {f"relative.{part}": getattr(self.projection, part) for part in PARTS}
        return {"intensity": list(self.gaussians.intensity)}, arrays


@dataclass(frozen=True, eq=False)
class StoredGaussians:
    """Class Gaussians from a file: what scoring needs of them, ready made."""

    counts: ClassIndices
    means: Floats
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


def restore_gaussians(
    numbers: JsonObject, arrays: Columns, notes: tuple[str, ...], *, relative: bool
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


def _projection(arrays: Columns, kind: str, classes: int, dim: int) -> Projection:
    _, width = need_shape(arrays, f"{kind}.matrix", (dim, None))
    need_shape(arrays, f"{kind}.origin", (dim,))
    need_shape(arrays, f"{kind}.centres", (classes, width))
    need_shape(arrays, f"{kind}.inverse_total", (width,))
    return Projection(*(arrays[f"{kind}.{part}"] for part in PARTS))


def fit_gaussian_difficulty(
    values: Any, labels: ClassIndices, shrinkage: Any, augmented: Sequence[Any], *, relative: bool
) -> GaussianDifficulty:
    """Gaussians of the rows, or of augmented runs of the same samples in their place."""
    sources = [_augmented_rows(run, values) for run in augmented] or [values]
    num_classes = int(labels.max()) + 1
    moments = moments_of(sources[0], labels, num_classes)
    for source in sources[1:]:
        moments = moments.merge(moments_of(source, labels, num_classes, moments.pilots))

    def fourth(centres: Floats, by_class: bool) -> float:
        return float(np.mean([fourth_moment(s, labels if by_class else None, centres) for s in sources]))

    return GaussianDifficulty(gaussians_from(moments, fourth, shrinkage=shrinkage), relative)


def _augmented_rows(run: Any, values: Any) -> Any:
    rows = getattr(run, "values", run)
    if tuple(rows.shape) != tuple(values.shape):
        raise InputError(
            f"an augmented run must have the shape of the features, {tuple(values.shape)}, got {tuple(rows.shape)}; "
            "extract the same samples in the same order"
        )
    return rows


def _gaussian_method(
    word: str, formula: str, use: str, *, paper: str, relative: bool
) -> Callable[..., GaussianDifficulty]:
    """Register `rmd` or `md`: they differ in what is subtracted, and in nothing else."""

    def method(
        values: Any, labels: NDArray[np.int64], *, shrinkage: Any = "auto", augmented: Sequence[Any] = ()
    ) -> GaussianDifficulty:
        """{formula}.

        {use}

        Args:
            values: feature rows `n d`; `difficulty.fit` checks them and puts the result into a `FittedDifficulty`.
            labels: their classes.
            shrinkage: "auto" shrinks the covariances by Ledoit-Wolf only where they have not full rank, and says so;
                "none" refuses then; "ledoit_wolf" and "oas" always; a number in [0, 1] is the intensity.
            augmented: features of the same samples under random augmentations; the Gaussians are fitted on these (the
                paper takes five runs), the score is that of the plain features.

        Returns:
            The fitted model: `values_of(values, labels)` is one number per row, high = hard.

        Example:
            >>> import numpy as np
            >>> labels = np.arange(60) % 2
            >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
            >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
            >>> fitted = confide.difficulty.fit("{word}", rows, labels)
            >>> int(fitted.score(rows, labels).values.argmax())
            7
        """
        return fit_gaussian_difficulty(values, labels, shrinkage, augmented, relative=relative)

    text = inspect.cleandoc(method.__doc__ or "")
    method.__doc__ = text.format(word=word, formula=formula, use=inspect.cleandoc(use))
    method.__name__ = method.__qualname__ = word
    corners: tuple[Options, ...] = ({"shrinkage": "ledoit_wolf"}, {"shrinkage": "oas"}, {"shrinkage": 1.0})
    restore = partial(restore_gaussians, relative=relative)
    return DIFFICULTY.add(
        word,
        paper=paper,
        corners=corners,
        source="features",
        restore=restore,
        check=lambda options: check_shrinkage(options["shrinkage"]),
        from_code=("augmented",),
    )(method)


rmd = _gaussian_method(
    "rmd",
    "Relative Mahalanobis distance, (x - mu_y)' Sigma^-1 (x - mu_y) - (x - mu)' Sigma_all^-1 (x - mu)",
    """When: features of a pre-trained network and labels are there: wrong labels, hard benchmarks, weights of a loss.
        When not: there are no labels: take combined.

        Differs from the paper: both distances are positive, so that hard samples are large (see the errata).""",
    paper="Cui et al., 2023; Ren et al., 2021, arXiv:2106.09022",
    relative=True,
)
md = _gaussian_method(
    "md",
    "Mahalanobis distance to the own class, (x - mu_y)' Sigma^-1 (x - mu_y)",
    """When: classes are compact in the features.
        When not: features vary in directions that have nothing to do with class: take rmd.""",
    paper="Lee et al., 2018, arXiv:1807.03888",
    relative=False,
)


# Distance to the mean of the own class.

DISTANCES = ("l2", "cosine")


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
        check_columns(values, self.means.shape[1])
        if not isinstance(labels, np.ndarray):
            return nearest_centre(values, self.means[self.counts > 0], distance=self.distance)[0]
        check_present(labels, self.counts)
        return distances_to(values, self.means, labels, distance=self.distance)

    def state(self) -> FitState:
        return {"distance": self.distance}, {"means": self.means, "counts": self.counts}


def restore_prototypes(numbers: JsonObject, arrays: Columns, notes: tuple[str, ...]) -> Prototypes:
    """The model of a saved state, checked."""
    need_arrays(arrays, {"means": "float64", "counts": "int64"})
    classes, _ = need_shape(arrays, "means", (None, None))
    need_shape(arrays, "counts", (classes,))
    need_counts(arrays["counts"])
    check_choice(numbers["distance"], DISTANCES, "distance")
    return Prototypes(arrays["means"], arrays["counts"], numbers["distance"], notes)


@DIFFICULTY.add(
    "prototype",
    paper="Sorscher et al., 2022, arXiv:2206.14486 (supervised prototypes)",
    source="features",
    restore=restore_prototypes,
    corners=({"distance": "cosine"},),
    choices={"distance": DISTANCES},
)
def prototype(values: Any, labels: NDArray[np.int64], *, distance: str = "l2") -> Prototypes:
    """Supervised prototype, ||x - mu_y||.

    When: features are few or samples too few for a covariance.
    When not: columns have different scales.

    Args:
        values: feature rows `n d`; `difficulty.fit` checks them and puts the result into a `FittedDifficulty`.
        labels: their classes.
        distance: "l2", or "cosine" for 1 - cos.

    Returns:
        The fitted model: `values_of(values, labels)` is one number per row, high = hard.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> fitted = confide.difficulty.fit("prototype", rows, labels)
        >>> int(fitted.score(rows, labels).values.argmax())
        7
    """
    means, counts = class_means(values, labels, int(labels.max()) + 1)
    return Prototypes(means, counts, distance)


# Distance to the nearest k-means centre.


@dataclass(frozen=True, eq=False)
class Centres:
    """Fitted k-means centres; difficulty is the distance to the nearest, labels unused."""

    centres: Floats
    inertia: float
    distance: str
    notes: tuple[str, ...] = ()

    def values_of(self, values: Any, labels: NDArray[np.int64] | str | None) -> Floats:
        """Distance to the nearest centre."""
        check_columns(values, self.centres.shape[1])
        return nearest_centre(values, self.centres, distance=self.distance)[0]

    def state(self) -> FitState:
        return {"inertia": self.inertia, "distance": self.distance}, {"centres": self.centres}


def restore_centres(numbers: JsonObject, arrays: Columns, notes: tuple[str, ...]) -> Centres:
    """The model of a saved state, checked."""
    need_arrays(arrays, {"centres": "float64"})
    need_shape(arrays, "centres", (None, None))
    check_choice(numbers["distance"], DISTANCES, "distance")
    return Centres(arrays["centres"], float(numbers["inertia"]), numbers["distance"], notes)


@DIFFICULTY.add(
    "kmeans",
    paper="Sorscher et al., 2022, arXiv:2206.14486",
    source="features",
    labels=False,
    restore=restore_centres,
    corners=({"k": 1}, {"distance": "cosine"}, {"iterations": 1}),
    ranges={"k": Interval(1), "iterations": Interval(1), "seed": (0, SEEDS)},
    choices={"distance": DISTANCES},
)
def kmeans(
    values: Any,
    labels: NDArray[np.int64] | None = None,
    *,
    k: int | None = None,
    distance: str = "l2",
    iterations: int = 20,
    seed: int = 0,
) -> Centres:
    """Self-supervised prototypes, min_j ||x - c_j|| over k-means centres c_j.

    When: there are neither labels nor a trained network.
    When not: labels exist: distances to one's own class tell more.

    Args:
        values: feature rows `n d`; `difficulty.fit` checks them and puts the result into a `FittedDifficulty`.
        labels: not needed; their number of classes is the default of `k`.
        k: number of centres; None takes the number of classes, or 10 without labels.
        distance: "l2", or "cosine" for 1 - cos, clustered on rows of length one.
        iterations: at most so many; it stops when no sample changes its centre.
        seed: of the first centres (k-means++ on a sample).

    Returns:
        The fitted model: `values_of(values, labels)` is one number per row, high = hard.

    Raises:
        InputError: more centres than samples.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [2, 2, 5]  # far from both clusters
        >>> fitted = confide.difficulty.fit("kmeans", rows, labels)
        >>> int(fitted.score(rows, labels).values.argmax())
        7
    """
    k = (int(labels.max()) + 1 if labels is not None else 10) if k is None else k
    n = int(values.shape[0])
    if k > n:
        raise InputError(f"k must be at most the {n} samples there are, got {k}; ask for fewer centres")
    rows = UnitRows(values) if distance == "cosine" else values
    state = _KMeansState.of(_first_centres(rows, k, np.random.default_rng(seed)), n)
    for _ in range(iterations):
        if not state.step(rows):
            break
    final = np.ascontiguousarray(state.centres.to(torch.float64).cpu().numpy())
    inertia = float((distances_to(rows, final, state.assigned) ** 2).sum())
    return Centres(final, inertia, distance)


def _first_centres(values: Any, k: int, draw: np.random.Generator) -> torch.Tensor:
    """k-means++ on a sample of the rows: far rows are likelier to be the next centre.

    Of many centres a fiftieth is drawn at once, so that they share a pass over the rows.
    """
    n = int(values.shape[0])
    sample = np.sort(draw.choice(n, size=min(n, max(2048, 8 * k)), replace=False))
    rows = torch.nan_to_num(working_block(values[sample]), posinf=0.0, neginf=0.0)
    centred = rows - rows.mean(dim=0)
    squares = torch.linalg.vecdot(centred, centred)
    chosen = [int(draw.integers(len(rows)))]
    near = torch.full_like(squares, torch.inf)
    drawn = 1
    while len(chosen) < k:
        last = centred[chosen[-drawn:]]
        apart = squares[:, None] - 2 * (centred @ last.T) + torch.linalg.vecdot(last, last)
        near = torch.minimum(near, apart.amin(dim=1).clamp_min(0))
        running = near.to(torch.float64).cumsum(dim=0).cpu().numpy()
        drawn = min(max(1, k // 50), k - len(chosen))
        places = np.searchsorted(running, draw.random(drawn) * running[-1], side="right")
        chosen += np.minimum(places, len(rows) - 1).tolist()
    return rows[chosen].clone()


@dataclass(eq=False)
class _KMeansState:
    """Centres, and what they are the means of: only rows that change their centre are added up again."""

    centres: torch.Tensor
    sums: torch.Tensor  # float64, so that taking away what was added leaves nothing behind
    counts: torch.Tensor
    assigned: NDArray[np.int64]  # -1 before the first step

    @classmethod
    def of(cls, centres: torch.Tensor, n: int) -> _KMeansState:
        counts = torch.zeros(len(centres), dtype=torch.int64, device=centres.device)
        return cls(centres, torch.zeros_like(centres, dtype=torch.float64), counts, np.full(n, -1))

    def step(self, values: Any) -> bool:
        """One Lloyd step: assignment by a matrix product per block, means of the assigned rows. Did any row move?"""
        k, dim = self.centres.shape
        late, moved = _MovedRows(), 0
        for start, block in blocks(values, cache_rows(values, max(dim, k))):
            nearest = closest_points(block, self.centres)
            before = self.assigned[start : start + len(block)]
            changed = np.flatnonzero(nearest != before)
            moved += len(changed)
            if 8 * len(changed) >= len(block):
                rows = block if len(changed) == len(block) else _rows_at(block, changed)
                self._move(rows, before[changed], nearest[changed])
            else:
                late.add(changed + start, before[changed], nearest[changed])
            before[changed] = nearest[changed]
            if late.count > WIDENED_ROWS:
                self._move(*late.take(values))
        if late.count:
            self._move(*late.take(values))
        if not bool(torch.isfinite(self.sums).all()):
            for start, block in blocks(values, block_rows(values, dim)):
                check_block(block, start, len(self.assigned))
        if moved:
            self._renew(values)
        return moved > 0

    def _move(self, rows: torch.Tensor, old: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        """Take rows from their old centres, where they had one, and give them to the new."""
        part = rows.new_zeros(self.centres.shape)
        for sign, places in ((1, new), (-1, old)):
            if places[0] >= 0:
                where = torch.as_tensor(places, device=rows.device)
                part.index_add_(0, where, rows, alpha=sign)
                self.counts += sign * torch.bincount(where, minlength=len(self.counts))
        self.sums += part

    def _renew(self, values: Any) -> None:
        means = (self.sums / self.counts.clamp_min(1)[:, None]).to(self.centres)
        empty = (self.counts == 0).nonzero().squeeze(1)
        if len(empty):
            means[empty] = _worst_rows(values, means[self.counts > 0], len(empty)).to(means)
        self.centres = unit(means) if isinstance(values, UnitRows) else means


class _MovedRows:
    """Rows that moved in blocks where few did: handled together, since each small operation has its price."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[Any], ...]] = []
        self.count = 0

    def add(self, *part: NDArray[Any]) -> None:
        """Places of the rows, their old and their new centres."""
        if len(part[0]):
            self.parts.append(part)
            self.count += len(part[0])

    def take(self, values: Any) -> tuple[torch.Tensor, NDArray[np.int64], NDArray[np.int64]]:
        """The rows with their old and new centres; forgets them."""
        places, old, new = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        self.parts, self.count = [], 0
        return _rows_at(values, places), old, new


def _rows_at(values: Any, places: NDArray[Any]) -> torch.Tensor:
    """Chosen rows of an array, a tensor or shards."""
    index = torch.as_tensor(places, device=values.device) if isinstance(values, torch.Tensor) else places
    return working_block(values[index])


def _worst_rows(values: Any, centres: torch.Tensor, count: int) -> torch.Tensor:
    """The rows farthest from every centre: where a centre that lost all its rows starts again."""
    distance, _ = nearest_centre(values, centres.cpu().numpy())
    worst = np.argsort(-distance, kind="stable")[:count]
    return _rows_at(values, worst)
