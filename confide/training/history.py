"""SampleHistory: what a training thought of each sample after every epoch, the explorer's line over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core import files


class SampleHistory:
    """A recorder that keeps the probability of the label and the predicted class, one parquet file an epoch.

    Eight bytes a sample and epoch at most, whatever the number of classes; a stopped training loses no finished epoch.
    """

    def __init__(self, folder: str | Path, labels: NDArray[np.int64], split: str) -> None:
        self.folder, self.labels, self.split = Path(folder), labels, split

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> None:
        """Take the logits `n c` of the whole split after training epoch `epoch`."""
        del ids, member  # rows stand in the order of the split, as in its predictions
        logits = np.asarray(outputs, dtype=np.float32)
        shifted = logits - logits.max(axis=1, keepdims=True)
        own = shifted[np.arange(len(logits)), self.labels]
        probability = np.exp(own - np.log(np.exp(shifted).sum(axis=1)))
        columns: dict[str, NDArray[Any]] = {
            "probability": probability.astype(np.float32),
            "prediction": logits.argmax(axis=1).astype(np.int32),
        }
        files.write_table(self.file(epoch), columns, {"confide": "history/1", "split": self.split})

    def file(self, epoch: int) -> Path:
        """Where an epoch is kept."""
        return self.folder / f"epoch-{epoch:06d}.parquet"

    def finish(self, epochs: int) -> list[Path]:
        """The files of a training of so many epochs; those of a longer one before it are removed."""
        kept = [self.file(epoch) for epoch in range(epochs)]
        for path in set(self.folder.glob("epoch-*.parquet")) - set(kept):
            path.unlink()
        return [path for path in kept if path.exists()]
