"""Photographs to spoil: smooth shapes with edges and colours, drawn once."""

import numpy as np
import pytest


def photographs(n, side, seed=0):
    """uint8 `n 3 side side`: gradients, a disk and a bar of random place and colour, a little texture."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side] / side
    images = np.empty((n, 3, side, side))
    for image in images:
        slope = random.uniform(-0.5, 0.5, (3, 2, 1, 1))
        image[:] = random.uniform(0.3, 0.7, (3, 1, 1)) + slope[:, 0] * (x - 0.5) + slope[:, 1] * (y - 0.5)
        cy, cx, radius = random.uniform(0.3, 0.7, 3)
        image[:, (y - cy) ** 2 + (x - cx) ** 2 < (0.35 * radius) ** 2] = random.uniform(0, 1, (3, 1))
        image[:, np.abs(x - y + random.uniform(-0.5, 0.5)) < 0.06] = random.uniform(0, 1, (3, 1))
    images += random.normal(0, 0.02, images.shape)
    return (images.clip(0, 1) * 255).round().astype(np.uint8)


@pytest.fixture(scope="session")
def small():
    return photographs(48, 32)


@pytest.fixture(scope="session")
def large():
    return photographs(3, 224)
