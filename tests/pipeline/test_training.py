"""Which scores a recipe makes before a training, and when it makes them again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from confide import Scores
from confide.checks import InputError
from confide.pipeline import training
from confide.store import RunPaths
from confide.training import Settings
from confide.training.jobs import TrainingJob, TrainingOutcome

SCORES = Scores(np.arange(4), np.arange(4.0), "rmd")


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A recipe whose parts are counted instead of computed."""
    counted: list[str] = []

    def fit_difficulty(*_: Any) -> Any:
        counted.append("fit")
        return SimpleNamespace(save=lambda path: counted.append(f"fit to {path.name}"))

    monkeypatch.setattr(training, "_recipe_features", lambda *_: "pixels")
    monkeypatch.setattr(training, "_recipe_rows", lambda *_: {"train": None})
    monkeypatch.setattr(training, "_what_scores_are_made_of", lambda *_: {"data": "same"})
    monkeypatch.setattr(training, "fit_difficulty", fit_difficulty)
    monkeypatch.setattr(training, "score_groups", lambda kind, *_: SCORES)
    monkeypatch.setattr(training, "score_predicted_class", lambda *_: SCORES)

    def scores_of(*, by: tuple[bool, ...], kind: str = "", val: bool = True, scores: Scores | None = None) -> Any:
        monkeypatch.setattr(training.training, "group_scores_kind", lambda _: kind)
        counted.clear()
        recipe = SimpleNamespace(calibrators=[SimpleNamespace(by_difficulty=b) for b in by], difficulty="rmd")
        dataset = SimpleNamespace(splits={"train": 1, "val": 1} if val else {"train": 1})
        job = SimpleNamespace(out=tmp_path / "run", settings=None)
        read = training._recipe_scores(job, recipe, dataset, scores)
        scored = RunPaths(tmp_path / "run").scores(training.PREDICTED_CLASS).parent
        files = sorted(path.name for path in scored.glob("*.parquet")) if scored.exists() else []
        return read is not None, list(counted), files

    return scores_of


def test_only_the_first_calibrator_and_only_with_val_asks_for_the_difficulty_of_predictions(recipe: Any) -> None:
    assert recipe(by=(False, True)) == (False, [], [])
    assert recipe(by=(True,), val=False) == (False, [], [])
    assert recipe(by=()) == (False, [], [])
    read, counted, files = recipe(by=(True, False))
    assert (read, counted[0], len(counted)) == (False, "fit", 2)
    assert files == [f"{training.PREDICTED_CLASS}.parquet"]
    assert recipe(by=(True, False)) == (False, [], files)  # it is there, of the same data


def test_scores_of_groups_are_made_for_a_loss_that_reads_them_unless_they_were_given(recipe: Any) -> None:
    read, counted, files = recipe(by=(False,), kind="train")
    assert (read, counted) == (True, ["fit"])
    assert files == ["train.parquet"]
    assert recipe(by=(False,), kind="train")[:2] == (True, [])
    assert recipe(by=(False,), kind="train", scores=SCORES)[:2] == (True, [])
    both = recipe(by=(True,), kind="train")
    assert both[0]
    assert both[1][0] == "fit"
    assert len(both[2]) == 2


def test_a_single_training_on_a_cluster_has_its_folders_name_and_keeps_its_state_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(training, "run_training", lambda job: TrainingOutcome(job.out, job.settings, (), 2.5, 0.5))

    def workers_of(job: Any, workers: int | None, storage: Path) -> Any:
        asked.append((job.name, workers, storage))
        return job.function(job.payload)

    monkeypatch.setattr(training, "train_workers", workers_of)
    monkeypatch.chdir(tmp_path)
    job = TrainingJob("rows.npz", Settings(loss="focal"), Path("mine"))
    (outcome,) = training.run_trainings([job], engine="ray", workers=3)
    assert asked == [("mine", 3, tmp_path / "mine" / "ray")]
    assert outcome == TrainingOutcome(tmp_path / "mine", job.settings, (), 2.5, 0.5)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="start them without torchrun"):
        training.run_trainings([job], engine="ray")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert len(training.run_trainings([job], engine="ray")) == 1
