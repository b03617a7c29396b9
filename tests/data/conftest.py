"""Tiny data made by the tests themselves."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image


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


@pytest.fixture
def save_image():
    """Writes one flat image; `size` is (width, height)."""

    def save(path, shade, size=(8, 6), mode="RGB"):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, shade if mode == "L" else (shade, 255 - shade, 7)).save(path)
        return path

    return save


@pytest.fixture
def encoded_image():
    """The bytes of one flat image."""

    def encode(shade):
        buffer = io.BytesIO()
        Image.new("RGB", (8, 6), (shade, 255 - shade, 7)).save(buffer, "PNG")
        return buffer.getvalue()

    return encode


@pytest.fixture
def image_folder(tmp_path, save_image):
    """Ten images each of two classes; the shade of red is the number of the image, plus 100 for dogs."""
    for k, name in enumerate(("cat", "dog")):
        for i in range(10):
            save_image(tmp_path / "pets" / name / f"{i:03d}.png", 100 * k + i)
    return tmp_path / "pets"


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path_factory, monkeypatch):
    """No test reads or writes the data folder of the person who runs it."""
    monkeypatch.setenv("CONFIDE_DATA", str(tmp_path_factory.mktemp("data-folder")))
