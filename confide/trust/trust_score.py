"""TrustScore: how much nearer the predicted class lies than any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.door import InputError, check_choice, check_range
from confide.core.neighbours import Rows, nearest, pair_distances
from confide.core.predictions import Predictions
from confide.core.progress import Progress
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.class_neighbours import kth_of_classes
from confide.trust.family import TRUST, State

SMALLEST_DISTANCE = 1e-12
BLOCK_BYTES = 1 << 24
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
        said = predictions.facts.prediction.cpu().numpy()
        squares = np.einsum("nd,nd->n", self.points, self.points)
        height = int(np.clip(BLOCK_BYTES // (self.points.itemsize * int(np.diff(self.bounds).max())), 64, 4096))
        score = np.empty(len(rows), dtype=self.points.dtype)
        with Progress("trust score", len(rows)) as progress:
            for start in range(0, len(rows), height):
                part = slice(start, start + height)
                score[part] = self._block(rows[part], said[part], squares)
                progress.step(height)
        return torch.from_numpy(score)

    def _block(self, rows: Rows, said: NDArray[Any], squares: Rows) -> Rows:
        """d_other / (d_predicted + 1e-12) of one block; a class without points is infinitely far."""
        far, place = kth_of_classes(rows, self.points, squares, self.centre, self.bounds, self.neighbour)
        n = np.arange(len(rows))
        own_missing = np.isinf(far[n, said])
        own = pair_distances(rows - self.centre[said], self.points, place[n, said][:, None])[:, 0]
        own[own_missing] = np.inf
        # The predicted class is excluded by name: comparing distances would misjudge exact ties.
        far[n, said] = np.inf
        nearest_other = far.argmin(axis=1)
        other = pair_distances(rows - self.centre[nearest_other], self.points, place[n, nearest_other][:, None])[:, 0]
        result: Rows = other / (own + SMALLEST_DISTANCE)
        return result

    def state(self) -> State:
        arrays = {"points": self.points, "centre": self.centre, "bounds": self.bounds}
        return {"neighbour": self.neighbour}, {name: torch.from_numpy(array) for name, array in arrays.items()}


def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> TrustScore:
    """The scorer of a saved state."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if arrays["centre"].ndim == 1:  # files of earlier versions have one centre for all classes
        arrays["centre"] = np.tile(arrays["centre"], (len(arrays["bounds"]) - 1, 1))
    return TrustScore(**arrays, neighbour=int(numbers["neighbour"]))


@TRUST.add(
    "trust_score",
    paper="Jiang et al., 2018, arXiv:1805.11783",
    corners=({"neighbour": 2}, {"filtering": "density", "alpha": 0.1}, {"filtering": "uncertainty", "alpha": 0.1}),
    trained=True,
    wants="features",
    scale="ratio",
    threshold=1.0,
    restore=restore,
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

    Args:
        neighbour: distance to a class is that to its nearest point (1, the paper) or second nearest (2, the released
            code, which also skips a sample that is itself in the index).
        filtering: `density` drops per class the points whose k-th neighbour is farthest, `uncertainty` those whose
            neighbours vote least for their label, `uncertainty_released` repeats rows as the released code does.
        k: neighbours asked by a filter. Default: the released code's.
        alpha: share of points a filter drops. Default: the released code's.
    """
    check_range(neighbour, "neighbour", 1)
    check_range(alpha, "alpha", 0, 1, high_open=True)
    check_choice(filtering, FILTERS, "filtering")
    labels = predictions.labels.cpu().numpy()
    points = features.cpu().numpy()
    if filtering == "none" or (alpha == 0.0 and filtering != "uncertainty_released"):
        return class_index(points, labels, predictions.num_classes, neighbour)
    kept = _kept_rows(points, labels, predictions.num_classes, filtering, k, alpha)
    return class_index(points[kept], labels[kept], predictions.num_classes, neighbour)


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


def _kept_rows(
    points: Rows, labels: NDArray[np.int64], num_classes: int, filtering: str, k: int, alpha: float
) -> NDArray[np.int64]:
    if filtering == "density":
        rows = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        return np.concatenate([one[_dense(points[one], k, alpha)] for one in rows])
    # The sample itself is among its neighbours, as in the released code.
    votes = labels[nearest(points, points, min(k, len(points)))[1]]
    if filtering == "uncertainty":
        share = (votes == labels[:, None]).mean(axis=1)
        return np.flatnonzero(share >= np.percentile(share, 100 * alpha))
    shares = np.stack([(votes == c).mean(axis=1) for c in range(num_classes)], axis=1)
    return np.where(shares >= np.percentile(shares, 100 * alpha))[0]


def _dense(points: Rows, k: int, alpha: float) -> NDArray[np.bool_]:
    """Points whose distance to their k-th neighbour, themselves counted, is at most the (1 - alpha) percentile."""
    radius = nearest(points, points, min(k, len(points)))[0][:, -1]
    return np.asarray(radius <= np.percentile(radius, 100 * (1 - alpha)), dtype=bool)
