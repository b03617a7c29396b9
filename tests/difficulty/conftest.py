"""Golden vectors and simulated class features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden():
    def load(name):
        with np.load(GOLDEN / f"{name}.npz") as archive:
            return {key: archive[key] for key in archive.files}

    return load


@pytest.fixture
def clusters():
    """Class Gaussians in `dim` dimensions with unequal scales; 5 % of the labels flipped."""

    def make(n=600, dim=8, classes=5, seed=0, dtype=np.float64, spread=2.0):
        draw = np.random.default_rng(seed)
        labels = np.concatenate([np.arange(classes), draw.integers(0, classes, n - classes)])
        mix = draw.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
        rows = draw.normal(size=(n, dim)) @ mix + spread * draw.normal(size=(classes, dim))[labels]
        flipped = draw.random(n) < 0.05
        given = np.where(flipped, (labels + 1) % classes, labels)
        return rows.astype(dtype), given.astype(np.int64), flipped

    return make
