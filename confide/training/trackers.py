"""Trackers: the log's row of every epoch to TensorBoard or MLflow, where they are installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from confide.core import files
from confide.core.door import MissingExtra, check_choice
from confide.training.settings import Settings

TRACKERS = ("tensorboard", "mlflow")
Row = dict[str, float]


def tracker(word: str, folder: Path, settings: Settings) -> Callable[[Row], None]:
    """A function for `fit(on_epoch=...)` that passes rows on."""
    check_choice(word, TRACKERS, "tracker")
    return _tensorboard(folder) if word == "tensorboard" else _mlflow(folder, settings)


def for_members(told: Callable[[Row], None]) -> Callable[[int, Row], None]:
    """The tracker for `fit_members(on_epoch=...)`: one run, each member's quantities under its own name."""

    def tell(member: int, row: Row) -> None:
        told({"epoch": row["epoch"], **{f"member-{member}/{k}": v for k, v in row.items() if k != "epoch"}})

    return tell


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
        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
    known = folder / "mlflow_run.json"
    # A training that goes on is the same run, not another one.
    run = mlflow.start_run(run_id=files.read_json(known)["run_id"] if known.exists() else None, run_name=folder.name)
    files.write_json(known, {"run_id": run.info.run_id})
    mlflow.log_params({k: str(v) for k, v in settings.as_dict().items()})

    def write(row: Row) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        mlflow.log_metrics(values, step=int(row["epoch"]), run_id=run.info.run_id)

    return write
