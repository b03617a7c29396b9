"""Tiny data made by the tests themselves."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def images():
    """Sixty 1 x 6 x 5 images of three classes, 20 each; the label is in the first pixel."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    pixels = rng.integers(0, 256, (60, 1, 6, 5), dtype=np.uint8)
    pixels[:, 0, 0, 0] = labels
    return pixels, labels


@pytest.fixture
def fashion_file(tmp_path):
    """A file with the layout of the embedded sample, 40 / 20 / 20 images of two classes."""
    rng = np.random.default_rng(1)
    arrays = {"class_names": np.array(["shirt", "bag"]), "metadata": np.array('{"seed": "7"}')}
    for split, n in (("train", 40), ("val", 20), ("test", 20)):
        arrays[f"images_{split}"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        arrays[f"labels_{split}"] = (np.arange(n) % 2).astype(np.uint8)
        arrays[f"features_{split}"] = rng.normal(size=(n, 64)).astype(np.float16)
        arrays[f"ids_{split}"] = np.array([f"{'test' if split == 'test' else 'train'}-{i:05d}" for i in range(n)])
    path = tmp_path / "fashion_sample.npz"
    np.savez_compressed(path, **arrays)
    return path
