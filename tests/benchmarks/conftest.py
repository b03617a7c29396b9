"""A small grid on the embedded data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lib.grid import Cell, Method, Setting
from benchmarks.lib.sources import Sources, keep_scores
from benchmarks.lib.workers import Place
from confide.features import extract

QUICK = {"epochs": 1, "batch_size": 64, "learning_rate": 0.05}


@pytest.fixture
def place(tmp_path) -> Place:
    """A folder with the difficulty of the embedded data's first samples."""
    made = Place(tmp_path / "grid", limit=90)
    dataset = Sources({}, made.prepared, made.limit).dataset("fashion-sample")
    rows = {split: extract("cached", dataset, split) for split in dataset.splits}
    keep_scores(made.prepared, "fashion-sample", rows, ("difficulty", "bands"))
    return made


def cells(*methods: Method, seeds: int = 1, model: str = "small_cnn") -> list[Cell]:
    """Cells of these methods on the embedded data."""
    return replace(Setting("fashion-sample", model, QUICK, seeds)).cells(methods, range(seeds))
