"""What leaves a training after every epoch: the log's row to TensorBoard or MLflow, and each sample's probability and
prediction to files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import MissingExtra, check_choice
from confide.files import disk, formats
from confide.training.settings import Settings

# Trackers: the log's row of every epoch to TensorBoard or MLflow, where they are installed.

TRACKERS = ("tensorboard", "mlflow")
Row = dict[str, float]


def tracker(word: str, folder: Path, settings: Settings) -> Callable[[Row], None]:
    """A function for `fit(on_epoch=...)` that passes rows on."""
    check_choice(word, TRACKERS, "tracker")
    return _tensorboard(folder) if word == "tensorboard" else _mlflow(folder, settings)


def tracker_for_members(on_epoch: Callable[[Row], None]) -> Callable[[int, Row], None]:
    """The tracker for `fit_members(on_epoch=...)`: one run, each member's quantities under its own name."""

    def on_member_epoch(member: int, row: Row) -> None:
        on_epoch({"epoch": row["epoch"], **{f"member-{member}/{k}": v for k, v in row.items() if k != "epoch"}})

    return on_member_epoch


def _tensorboard(folder: Path) -> Callable[[Row], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("tensorboard", "track", "tracker 'tensorboard'") from None
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(row: Row) -> None:
        for name, value in row.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(row["epoch"]))
        writer.flush()

    return write


def _mlflow(folder: Path, settings: Settings) -> Callable[[Row], None]:
    try:
        import mlflow
    except ImportError:
        raise MissingExtra("mlflow", "track", "tracker 'mlflow'") from None
    if "MLFLOW_TRACKING_URI" not in os.environ:
        # A plain folder of files is refused by MLflow since version 3.
        disk.make_folder(folder)
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
    known = folder / "mlflow_run.json"
    # A training that goes on is the same run, not another one.
    run = mlflow.start_run(run_id=formats.read_json(known)["run_id"] if known.exists() else None, run_name=folder.name)
    formats.write_json(known, {"run_id": run.info.run_id})
    mlflow.log_params({k: str(v) for k, v in settings.as_dict().items()})

    def write(row: Row) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        mlflow.log_metrics(values, step=int(row["epoch"]), run_id=run.info.run_id)

    return write


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
        formats.write_table(self.file(epoch), columns, {"confide": formats.HISTORY.tag, "split": self.split})

    def file(self, epoch: int) -> Path:
        """Where an epoch is kept."""
        return self.folder / f"epoch-{epoch:06d}.parquet"

    def finish(self, epochs: int) -> list[Path]:
        """The files of a training of so many epochs; those of a longer one before it are removed."""
        files = [self.file(epoch) for epoch in range(epochs)]
        for path in set(self.folder.glob("epoch-*.parquet")) - set(files):
            disk.remove(path)
        return [path for path in files if path.exists()]
