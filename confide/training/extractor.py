"""Tells the features room how a trained checkpoint gives penultimate rows: the word `model:<checkpoint>`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import features
from confide.core.records import Split
from confide.features.model import RowsOf
from confide.training.predict import penultimate
from confide.training.trained import Trained


def read_checkpoint(path: Path) -> RowsOf:
    """Penultimate rows of a split by the model of a checkpoint, prepared as in its training."""
    trained = Trained.load(path)

    def rows_of(part: Split) -> NDArray[Any]:
        return np.asarray(penultimate(trained, part).values)

    return rows_of


features.reads_checkpoints(read_checkpoint)
