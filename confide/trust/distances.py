"""Distances to the training samples in feature space: knn, rmd (relative Mahalanobis), trust_score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CLASS_DISTANCE_BYTES, WIDENED_ROWS
from confide.checks import InputError
from confide.numerics.gaussians import SHRINKAGES, fit_gaussians
from confide.numerics.neighbours import Rows, nearest_neighbours, pair_distances, smallest_of_rows
from confide.predictions import Predictions
from confide.progress import Progress
from confide.registry import Interval
from confide.trust.base import TRUST, ScorerState
from confide.types import FeatureRows, Indices, JsonObject, Options, PerSample

TRAINING_FEATURES: Options = {"trained": True, "wants": "features", "fit_on": "training"}

# Distance to the nearest training samples.


@dataclass(frozen=True, eq=False)
class NeighbourDistance:
    """The points of the index and which neighbour counts."""

    points: Tensor
    k: int

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        assert features is not None
        distances, _ = nearest_neighbours(features.cpu(), self.points, self.k)
        return -torch.from_numpy(distances[:, -1].copy())

    def state(self) -> ScorerState:
        return {"k": self.k}, {"points": self.points}


def restore_neighbours(numbers: JsonObject, tensors: dict[str, Tensor]) -> NeighbourDistance:
    """The scorer of a saved state."""
    return NeighbourDistance(tensors["points"], int(numbers["k"]))


@TRUST.add(
    "knn",
    paper="Sun et al., 2022, arXiv:2204.06507",
    corners=({"k": 1},),
    ranges={"k": Interval(1)},
    scale="score",
    threshold=None,
    restore=restore_neighbours,
    **TRAINING_FEATURES,
)
def knn(predictions: Predictions, features: FeatureRows, *, k: int = 10) -> NeighbourDistance:
    """Negative distance to the k-th nearest training sample of any class; fit it on the training features.

    When: data from elsewhere are to be found and training features are at hand.
    When not: errors on known data are to be found: on CIFAR-10 max-softmax is ahead.

    Args:
        predictions: of the training samples; only their number counts.
        features: rows `n d` of the same samples.
        k: which neighbour; larger is smoother. At most the number of training samples, and taken down to it.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("knn", val, rows)
        >>> bool((trust(val, rows + 1) < trust(val, rows)).all())  # far from all that was seen
        True
    """
    return NeighbourDistance(features.cpu(), min(k, len(features)))


# Relative Mahalanobis distance to the predicted class.


@dataclass(frozen=True, eq=False)
class RelativeMahalanobis:
    """The projection in which MD - MD_agnostic is exact, with the class centres there (float64)."""

    origin: Tensor
    matrix: Tensor
    centres: Tensor
    inverse_total: Tensor

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        assert features is not None
        predicted = predictions.facts.prediction.cpu()
        pairs = zip(torch.split(features, WIDENED_ROWS), torch.split(predicted, WIDENED_ROWS), strict=True)
        return torch.cat([self._block(rows.cpu(), classes) for rows, classes in pairs])

    def _block(self, rows: Tensor, predicted: Tensor) -> Tensor:
        projected = (rows.to(torch.float64) - self.origin) @ self.matrix
        own = (projected - self.centres[predicted]).square().sum(dim=1)
        return projected.square() @ self.inverse_total - own

    def state(self) -> ScorerState:
        return {}, dict(vars(self))


def restore_rmd(numbers: JsonObject, tensors: dict[str, Tensor]) -> RelativeMahalanobis:
    """The scorer of a saved state."""
    return RelativeMahalanobis(**tensors)


@TRUST.add(
    "rmd",
    paper="Ren et al., 2021, arXiv:2106.09022",
    corners=({"shrinkage": "ledoit_wolf"}, {"shrinkage": "oas"}),
    choices={"shrinkage": SHRINKAGES},
    scale="score",
    threshold=None,
    restore=restore_rmd,
    **TRAINING_FEATURES,
)
def rmd(predictions: Predictions, features: FeatureRows, *, shrinkage: str = "auto") -> RelativeMahalanobis:
    """Negative relative Mahalanobis distance, MD_agnostic(x) - MD_predicted(x); fit it on the training features.

    When: data from elsewhere are to be found and training features are at hand.
    When not: errors on known data are to be found by it alone: max-softmax is ahead; inside combined it helps.

    Args:
        predictions: of the training samples; their labels say which row is of which class.
        features: rows `n d` of the same samples.
        shrinkage: `auto` shrinks the covariances (Ledoit-Wolf) only where they have not full rank.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("rmd", val, rows)
        >>> values = trust(val, rows)
        >>> bool(values[val.facts.correct].mean() > values[~val.facts.correct].mean())
        True
    """
    labels = predictions.labels.cpu().numpy()
    return relative_mahalanobis(features.cpu(), labels, predictions.num_classes, shrinkage)


def relative_mahalanobis(
    rows: Tensor, labels: NDArray[np.int64], num_classes: int, shrinkage: str = "auto"
) -> RelativeMahalanobis:
    """The scorer of these rows' Gaussians."""
    projection = fit_gaussians(rows, labels, num_classes, shrinkage=shrinkage).relative()
    parts = (projection.origin, projection.matrix, projection.centres, projection.inverse_total)
    return RelativeMahalanobis(*(torch.as_tensor(part, dtype=torch.float64) for part in parts))


def kth_of_classes(
    block: Rows, points: Rows, squares: Rows, centres: Rows, bounds: NDArray[np.int64], k: int
) -> tuple[Rows, Indices]:
    """Squared distance and row number of every class's k-th nearest point; points are less the centre of their class.

    Both are `n classes`; a class with fewer points gives its farthest, one without any is infinitely far. From the
    centre of its own class a row is not far, so that the products keep the digits that tell its neighbours apart.
    """
    classes, n = len(bounds) - 1, np.arange(len(block))
    far = np.full((len(block), classes), np.inf, dtype=block.dtype)
    place = np.zeros((len(block), classes), dtype=np.int64)
    for c in np.flatnonzero(np.diff(bounds)):
        low, high = bounds[c], bounds[c + 1]
        rows = block - centres[c]
        table = rows @ points[low:high].T
        table *= -2
        table += squares[low:high]
        columns = smallest_of_rows(table, min(k, high - low))
        values = np.take_along_axis(table, columns, axis=1)
        last = values.argmax(axis=1)
        far[:, c] = values[n, last] + np.einsum("nd,nd->n", rows, rows)
        place[:, c] = low + columns[n, last]
    return far, place


# TrustScore: how much nearer the predicted class lies than any other.

SMALLEST_DISTANCE = 1e-12
FILTERS = ("none", "density", "uncertainty", "uncertainty_released")


@dataclass(frozen=True, eq=False)
class TrustScore:
    """The kept points less the centre of their class, sorted by class: c has rows `bounds[c]` to `bounds[c + 1]`."""

    points: Rows
    centre: Rows  # one row per class
    bounds: NDArray[np.int64]
    neighbour: int

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        assert features is not None
        rows = features.cpu().numpy().astype(self.points.dtype, copy=False)
        predicted = predictions.facts.prediction.cpu().numpy()
        squares = np.einsum("nd,nd->n", self.points, self.points)
        height = int(
            np.clip(CLASS_DISTANCE_BYTES // (self.points.itemsize * int(np.diff(self.bounds).max())), 64, 4096)
        )
        score = np.empty(len(rows), dtype=self.points.dtype)
        with Progress("trust score", len(rows)) as progress:
            for start in range(0, len(rows), height):
                part = slice(start, start + height)
                score[part] = self._block(rows[part], predicted[part], squares)
                progress.step(height)
        return torch.from_numpy(score)

    def _block(self, rows: Rows, predicted: NDArray[Any], squares: Rows) -> Rows:
        """d_other / (d_predicted + 1e-12) of one block; a class without points is infinitely far."""
        far, place = kth_of_classes(rows, self.points, squares, self.centre, self.bounds, self.neighbour)
        n = np.arange(len(rows))
        own_missing = np.isinf(far[n, predicted])
        own = pair_distances(rows - self.centre[predicted], self.points, place[n, predicted][:, None])[:, 0]
        own[own_missing] = np.inf
        # The predicted class is excluded by name: comparing distances would misjudge exact ties.
        far[n, predicted] = np.inf
        nearest_other = far.argmin(axis=1)
        other = pair_distances(rows - self.centre[nearest_other], self.points, place[n, nearest_other][:, None])[:, 0]
        return np.asarray(other / (own + SMALLEST_DISTANCE))

    def state(self) -> ScorerState:
        arrays = {"points": self.points, "centre": self.centre, "bounds": self.bounds}
        return {"neighbour": self.neighbour}, {name: torch.from_numpy(array) for name, array in arrays.items()}


def restore_trust_score(numbers: JsonObject, tensors: dict[str, Tensor]) -> TrustScore:
    """The scorer of a saved state."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if arrays["centre"].ndim == 1:  # files of earlier versions have one centre for all classes
        arrays["centre"] = np.tile(arrays["centre"], (len(arrays["bounds"]) - 1, 1))
    return TrustScore(**arrays, neighbour=int(numbers["neighbour"]))


@TRUST.add(
    "trust_score",
    paper="Jiang et al., 2018, arXiv:1805.11783",
    corners=({"neighbour": 2}, {"filtering": "density", "alpha": 0.1}, {"filtering": "uncertainty", "alpha": 0.1}),
    ranges={"neighbour": Interval(1), "k": Interval(1), "alpha": Interval(0.0, 1.0, high_open=True)},
    choices={"filtering": FILTERS},
    scale="ratio",
    threshold=1.0,
    restore=restore_trust_score,
    **TRAINING_FEATURES,
)
def trust_score(
    predictions: Predictions,
    features: FeatureRows,
    *,
    neighbour: int = 1,
    filtering: str = "none",
    k: int = 10,
    alpha: float = 0.0,
) -> TrustScore:
    """TrustScore, d(nearest class other than the predicted) / d(predicted class); fit it on the training features.

    When: training features separate the classes and each prediction needs a reason to show.
    When not: training samples are too many to search, or features are poor.

    Args:
        predictions: of the training samples; their labels say which row is of which class.
        features: rows `n d` of the same samples.
        neighbour: distance to a class is that to its nearest point (1, the paper) or second nearest (2, the released
            code, which also skips a sample that is itself in the index).
        filtering: `density` drops per class the points whose k-th neighbour is farthest, `uncertainty` those whose
            neighbours vote least for their label, `uncertainty_released` repeats rows as the released code does.
        k: neighbours asked by a filter. Default: the released code's.
        alpha: share of points a filter drops. Default: the released code's.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("trust_score", val, rows)
        >>> values = trust(val, rows)
        >>> bool(values[val.facts.correct].mean() > values[~val.facts.correct].mean())
        True
    """
    labels = predictions.labels.cpu().numpy()
    points = features.cpu().numpy()
    if filtering == "none" or (alpha == 0.0 and filtering != "uncertainty_released"):
        return class_index(points, labels, predictions.num_classes, neighbour)
    dense = _dense_rows(points, labels, predictions.num_classes, filtering, k, alpha)
    return class_index(points[dense], labels[dense], predictions.num_classes, neighbour)


def class_index(points: Rows, labels: NDArray[np.int64], num_classes: int, neighbour: int = 1) -> TrustScore:
    """The index of these points, sorted by class."""
    if len(np.unique(labels)) < 2:
        raise InputError("trust_score needs samples of two classes or more, got one; fit it on the training split")
    counts = np.bincount(labels, minlength=num_classes)
    ordered = points[np.argsort(labels, kind="stable")]
    bounds = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
    centre = np.zeros((num_classes, points.shape[1]), dtype=ordered.dtype)
    for c in np.flatnonzero(counts):
        own = ordered[bounds[c] : bounds[c + 1]]
        centre[c] = own.mean(axis=0, dtype=np.float64)
        # Small numbers lose fewer digits in the products; taken off once, in place.
        own -= centre[c]
    return TrustScore(ordered, centre, bounds, neighbour)


def _dense_rows(
    points: Rows, labels: NDArray[np.int64], num_classes: int, filtering: str, k: int, alpha: float
) -> NDArray[np.int64]:
    if filtering == "density":
        of_classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        return np.concatenate([rows[_dense(points[rows], k, alpha)] for rows in of_classes])
    # The sample itself is among its neighbours, as in the released code.
    votes = labels[nearest_neighbours(points, points, min(k, len(points)))[1]]
    if filtering == "uncertainty":
        share = (votes == labels[:, None]).mean(axis=1)
        return np.flatnonzero(share >= np.percentile(share, 100 * alpha))
    shares = np.stack([(votes == c).mean(axis=1) for c in range(num_classes)], axis=1)
    return np.where(shares >= np.percentile(shares, 100 * alpha))[0]


def _dense(points: Rows, k: int, alpha: float) -> NDArray[np.bool_]:
    """Points whose distance to their k-th neighbour, themselves counted, is at most the (1 - alpha) percentile."""
    radius = nearest_neighbours(points, points, min(k, len(points)))[0][:, -1]
    return np.asarray(radius <= np.percentile(radius, 100 * (1 - alpha)), dtype=bool)
