"""Rows of the log go to TensorBoard and MLflow where they are installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confide.checks import InputError, MissingExtra
from confide.training import Settings
from confide.training.trackers import tracker

try:
    from torch.utils import tensorboard
except ImportError:
    tensorboard = None  # type: ignore[assignment]


def test_a_missing_package_and_an_unknown_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"confide\[track\]"):
        tracker("mlflow", tmp_path, Settings())
    with pytest.raises(InputError, match="tracker must be one of"):
        tracker("diary", tmp_path, Settings())


def test_mlflow_gets_settings_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    started: list[str | None] = []

    def start_run(run_id: str | None, run_name: str) -> SimpleNamespace:
        started.append(run_id)
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    stand_in = SimpleNamespace(
        set_tracking_uri=lambda uri: told.append(uri),
        start_run=start_run,
        log_params=lambda values: told.append(values),
        log_metrics=lambda values, step, run_id: told.append((values, step, run_id)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker("mlflow", tmp_path, Settings(epochs=7))({"epoch": 2, "val_nll": 0.5})
    assert told[0] == f"sqlite:///{tmp_path.resolve() / 'mlflow.db'}"
    assert told[1]["epochs"] == "7"
    assert told[2] == ({"val_nll": 0.5}, 2, "r1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    told.clear()
    tracker("mlflow", tmp_path, Settings(epochs=7))
    assert started == [None, "r1"], "a training that goes on is the same run"
    assert told[0]["epochs"] == "7", "a server of the user's own is left alone"


@pytest.mark.skipif(tensorboard is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_rows(tmp_path: Path) -> None:
    tracker("tensorboard", tmp_path, Settings())({"epoch": 0, "val_nll": 0.5})
    assert list((tmp_path / "tensorboard").glob("events.*"))
