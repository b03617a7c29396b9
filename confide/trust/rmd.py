"""Relative Mahalanobis distance to the predicted class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.gaussians import fit_gaussians
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST, State


@dataclass(frozen=True, eq=False)
class RelativeMahalanobis:
    """The projection in which MD - MD_agnostic is exact, with the class centres there (float64)."""

    origin: Tensor
    matrix: Tensor
    centres: Tensor
    inverse_total: Tensor

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        assert features is not None
        said = predictions.facts.prediction.cpu()
        return torch.cat(
            [
                self._block(rows.cpu(), said[start : start + len(rows)])
                for start, rows in ((i * 4096, block) for i, block in enumerate(torch.split(features, 4096)))
            ]
        )

    def _block(self, rows: Tensor, said: Tensor) -> Tensor:
        projected = (rows.to(torch.float64) - self.origin) @ self.matrix
        own = (projected - self.centres[said]).square().sum(dim=1)
        return projected.square() @ self.inverse_total - own

    def state(self) -> State:
        names = ("origin", "matrix", "centres", "inverse_total")
        return {}, {name: getattr(self, name) for name in names}


def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> RelativeMahalanobis:
    """The scorer of a saved state."""
    return RelativeMahalanobis(**tensors)


@TRUST.add(
    "rmd",
    paper="Ren et al., 2021, arXiv:2106.09022",
    corners=({"shrinkage": "ledoit_wolf"}, {"shrinkage": "oas"}),
    trained=True,
    wants="features",
    scale="score",
    threshold=None,
    restore=restore,
)
def rmd(predictions: Predictions, features: FeatureRows, *, shrinkage: str = "auto") -> RelativeMahalanobis:
    """Negative relative Mahalanobis distance, MD_agnostic(x) - MD_predicted(x); fit it on the training features.

    Args:
        shrinkage: `auto` shrinks the covariances (Ledoit-Wolf) only where they have not full rank.
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
