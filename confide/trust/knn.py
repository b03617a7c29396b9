"""Distance to the nearest training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from confide.core.door import check_range
from confide.core.neighbours import nearest
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST, State


@dataclass(frozen=True, eq=False)
class NeighbourDistance:
    """The points of the index and which neighbour counts."""

    points: Tensor
    k: int

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        assert features is not None
        distances, _ = nearest(features.cpu(), self.points, self.k)
        return -torch.from_numpy(distances[:, -1].copy())

    def state(self) -> State:
        return {"k": self.k}, {"points": self.points}


def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> NeighbourDistance:
    """The scorer of a saved state."""
    return NeighbourDistance(tensors["points"], int(numbers["k"]))


@TRUST.add(
    "knn",
    paper="Sun et al., 2022, arXiv:2204.06507",
    corners=({"k": 1},),
    trained=True,
    wants="features",
    scale="score",
    threshold=None,
    restore=restore,
)
def knn(predictions: Predictions, features: FeatureRows, *, k: int = 10) -> NeighbourDistance:
    """Negative distance to the k-th nearest training sample of any class; fit it on the training features.

    Args:
        k: which neighbour; larger is smoother. At most the number of training samples, and taken down to it.
    """
    check_range(k, "k", 1)
    return NeighbourDistance(features.cpu(), min(k, len(features)))
