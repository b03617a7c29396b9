"""Mahalanobis distance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.difficulty.family import DIFFICULTY
from confide.difficulty.gaussian import GaussianDifficulty, fit_difficulty, restore


@DIFFICULTY.add(
    "md",
    paper="Lee et al., 2018, arXiv:1807.03888",
    source="features",
    restore=partial(restore, relative=False),
    corners=({"shrinkage": "ledoit_wolf"}, {"shrinkage": "oas"}, {"shrinkage": 1.0}),
)
def md(
    values: Any, labels: NDArray[np.int64], *, shrinkage: Any = "auto", augmented: Sequence[Any] = ()
) -> GaussianDifficulty:
    """Mahalanobis distance to the own class, (x - mu_y)' Sigma^-1 (x - mu_y).

    Args:
        shrinkage: "auto" shrinks the covariances by Ledoit-Wolf only where they have not full rank, and says so;
            "none" refuses then; "ledoit_wolf" and "oas" always; a number in [0, 1] is the intensity.
        augmented: features of the same samples under random augmentations; the Gaussians are fitted on these (the
            paper takes five runs), the score is that of the plain features.
    """
    return fit_difficulty(values, labels, shrinkage, augmented, relative=False)
