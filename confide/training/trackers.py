"""Trackers: the log's row of every epoch to TensorBoard or MLflow, where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confide.core.door import MissingExtra, check_choice
from confide.training.settings import Settings

TRACKERS = ("tensorboard", "mlflow")
Row = dict[str, float]


def tracker(word: str, folder: Path, settings: Settings) -> Callable[[Row], None]:
    """A function for `fit(on_epoch=...)` that passes rows on."""
    check_choice(word, TRACKERS, "tracker")
    return _tensorboard(folder) if word == "tensorboard" else _mlflow(folder, settings)


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
    mlflow.set_tracking_uri((folder / "mlflow").resolve().as_uri())
    run = mlflow.start_run(run_name=folder.name)
    mlflow.log_params({k: str(v) for k, v in settings.as_dict().items()})

    def write(row: Row) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        mlflow.log_metrics(values, step=int(row["epoch"]), run_id=run.info.run_id)

    return write
