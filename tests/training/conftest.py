"""A small, learnable image dataset, made here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide.records import Dataset, Split


def make_dataset(n: int = 240, *, size: int = 8, classes: int = 3, val: bool = True, seed: int = 0) -> Dataset:
    """Images whose class is a bright column in noise."""
    generator = np.random.default_rng(seed)

    def split(count: int, prefix: str) -> Split:
        labels = generator.integers(0, classes, count)
        images = generator.integers(0, 150, (count, 1, size, size))
        for i, label in enumerate(labels):
            images[i, :, :, label * 2] += 90
        ids = np.array([f"{prefix}{i}" for i in range(count)])
        return Split(images.astype(np.uint8), labels.astype(np.int64), ids)

    splits = {"train": split(n, "t"), "test": split(60, "e")}
    if val:
        splits["val"] = split(60, "v")
    return Dataset("bars", "image", splits, tuple("abc"[:classes]))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bars() -> Dataset:
    return make_dataset()
