"""The embedded sample of Fashion-MNIST: images with cached features, in the package."""

from __future__ import annotations

from pathlib import Path

from confide.core.door import InputError
from confide.data.family import DATASETS
from confide.data.npz import npz
from confide.data.parts import Found

FILE = Path(__file__).with_name("fashion_sample.npz")


@DATASETS.add("fashion-sample", paper="Xiao et al., 2017, arXiv:1708.07747 (MIT licence)", takes="word")
def fashion_sample(data_folder: Path) -> Found:
    """8,000 / 2,000 / 4,000 images of Fashion-MNIST, 10 classes, with 64-dimensional features; in the package."""
    if not FILE.exists():
        raise InputError(
            f"the embedded data must lie at {FILE}, but the file is missing; install the package again, or rebuild it "
            "with tools/build_fashion_sample.py"
        )
    found = npz(FILE)
    return Found(found.parts, found.class_names, "fashion-sample", found.facts)
