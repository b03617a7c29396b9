"""Exact resume: stopped anywhere, torn or damaged, the run ends as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from confide.checks import InputError
from confide.files import formats
from confide.models.trained import TrainingIdentity
from confide.records import Dataset, Scores, Split
from confide.training import Settings, Trained, checkpoint, fit

HARD: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 50,
    "model_options": {"width": 4, "hidden": 8, "dropout": 0.3},
    "augment": "crop_flip",
    "label_noise": 0.1,
    "choose": "nll",
    "device": "cpu",
}


def assert_same(first: Trained, second: Trained) -> None:
    for name, weights in first.model.state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name]), name
    for name, values in first.loss_state.items():
        assert torch.equal(values, second.loss_state[name]), name
    assert set(first.log) == set(second.log)
    for name, column in first.log.items():
        assert (column == second.log[name]).all(), name
    assert first.chosen_epoch == second.chosen_epoch


def stop_after(monkeypatch: pytest.MonkeyPatch, checkpoints: int) -> None:
    """Let the writing of the checkpoint after so many fail as a full disk would."""
    real, left = checkpoint.save_checkpoint, [checkpoints]

    def failing(*args: Any) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(checkpoint, "save_checkpoint", failing)


@pytest.mark.parametrize("loss", ["cross_entropy", "adafocal", "crl", "selective_au", "adaptive_difficulty"])
@pytest.mark.parametrize("checkpoints", [1, 7])
def test_a_stopped_run_ends_as_an_unbroken_one(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, checkpoints: int
) -> None:
    options = {
        "selective_au": {"accumulate": True},
        "adaptive_difficulty": {"base": "adafocal", "start": 0.05, "update_every": 3},
    }.get(loss, {})
    settings = Settings(**HARD, loss=loss, loss_options=options)
    ids = np.concatenate([bars.train.ids, bars.val.ids])
    scores = Scores(ids, np.sin(np.arange(len(ids))), "rmd")
    unbroken = fit(bars, settings, scores=scores, folder=tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        stop_after(patch, checkpoints)
        with pytest.raises(OSError, match="No space"):
            fit(bars, settings, scores=scores, folder=tmp_path / "stopped", checkpoint_seconds=0)
    resumed = fit(bars, settings, scores=scores, folder=tmp_path / "stopped", checkpoint_seconds=0)
    assert any(note.startswith("resumed at") for note in resumed.process_notes)
    assert_same(unbroken, resumed)
    for name in ("log.parquet", "model.safetensors"):
        same = [(tmp_path / folder / name).read_bytes() for folder in ("unbroken", "stopped")]
        assert same[0] == same[1], f"{name} holds other bytes"


def test_the_mean_of_the_weights_resumes_exactly(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(**HARD, average=0.7, mirror=True)
    unbroken = fit(bars, settings)
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(OSError, match="No space"):
            fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    assert_same(unbroken, fit(bars, settings, folder=tmp_path))


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_other_optimisers_resume_exactly(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    settings = Settings(**HARD, optimizer=optimizer, learning_rate=1e-3, schedule="cosine")
    unbroken = fit(bars, settings)
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(OSError, match="No space"):
            fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    assert_same(unbroken, fit(bars, settings, folder=tmp_path))


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty"])
def test_a_damaged_checkpoint_is_passed_over(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    settings = Settings(**HARD)
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(OSError, match="No space"):
            fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    older, newest = checkpoint.checkpoint_paths(tmp_path)
    data = bytearray(newest.read_bytes())
    data[-5] ^= 0x10
    newest.write_bytes({"torn": bytes(data[: len(data) // 2]), "flipped": bytes(data), "empty": b""}[damage])
    resumed = fit(bars, settings, folder=tmp_path)
    assert older.name in resumed.process_notes[0]
    assert "damaged" in resumed.process_notes[0]
    assert_same(fit(bars, settings), resumed)


def test_new_checkpoints_take_the_place_of_damaged_ones(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(**HARD)

    def stopped(checkpoints: int) -> list[str]:
        with monkeypatch.context() as patch:
            stop_after(patch, checkpoints)
            with pytest.raises(OSError, match="No space"):
                fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
        return [path.name[5:14] for path in checkpoint.checkpoint_paths(tmp_path)]

    stopped(8)
    for path in checkpoint.checkpoint_paths(tmp_path):
        path.write_bytes(path.read_bytes()[:100])
    # Those of later steps must not outlive the new ones, or every new start would begin at step 0.
    assert stopped(3) == ["000000002", "000000003"]
    assert stopped(2) == ["000000004", "000000005"]
    assert_same(fit(bars, settings), fit(bars, settings, folder=tmp_path))


@pytest.mark.parametrize("file", ["model.safetensors", "log.parquet"])
def test_a_damaged_end_is_made_again_from_the_last_checkpoint(bars: Dataset, tmp_path: Path, file: str) -> None:
    settings = Settings(**HARD)
    first = fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:-40])
    again = fit(bars, settings, folder=tmp_path)
    assert again.process_notes[0] == "the finished model was damaged and is made again"
    assert_same(first, again)
    assert_same(first, Trained.load(tmp_path))


def test_a_model_of_somebody_else_is_not_written_over(bars: Dataset, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"of another program")
    with pytest.raises(InputError, match=r"whole safetensors file"):
        fit(bars, Settings(**HARD), folder=tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == b"of another program"


def test_what_the_disk_refuses_is_the_same_error_for_tensors_as_for_other_files(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r"File too large"):
            formats.write_checkpoint(tmp_path / "weights.safetensors", {"weights": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_only_the_last_two_checkpoints_are_kept(bars: Dataset, tmp_path: Path) -> None:
    fit(bars, Settings(**HARD), folder=tmp_path, checkpoint_seconds=0)
    assert len(checkpoint.checkpoint_paths(tmp_path)) == 2
    assert not list(tmp_path.rglob("*.part"))


def test_other_settings_do_not_go_on(bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(OSError, match="No space"):
            fit(bars, Settings(**HARD), folder=tmp_path, checkpoint_seconds=0)
    with pytest.raises(InputError, match=r"holds a training with label_noise = 0.1, now 0.2"):
        fit(bars, Settings(**{**HARD, "label_noise": 0.2}), folder=tmp_path)


def test_other_data_and_scores_do_not_go_on(bars: Dataset, tmp_path: Path) -> None:
    settings = Settings(**{**HARD, "epochs": 1}, loss="difficulty_entropy")
    scores = Scores(bars.train.ids, np.arange(len(bars.train)), "rmd")
    fit(bars, settings, scores=scores, folder=tmp_path)

    def changed(split: str) -> Dataset:
        own = bars.splits[split]
        other = Split(255 - np.asarray(own.inputs[:]), own.labels, own.ids)
        return replace(bars, splits={**bars.splits, split: other})

    for what, dataset, now in (
        ("training data", changed("train"), scores),
        ("validation data", changed("val"), scores),
        ("difficulty scores", bars, replace(scores, values=scores.values[::-1])),
        ("dataset", replace(bars, name="other"), scores),
    ):
        with pytest.raises(InputError, match=f"holds a training with {what} = "):
            fit(dataset, settings, scores=now, folder=tmp_path)


def test_an_identity_comes_back_from_its_file_as_it_was(bars: Dataset) -> None:
    identity = fit(bars, Settings(**{**HARD, "epochs": 1})).identity
    assert identity.training_samples == len(bars.train)
    again = TrainingIdentity.from_dict(json.loads(json.dumps(identity.as_dict())))
    assert json.dumps(again.as_dict()) == json.dumps(identity.as_dict())  # in the same order too


def test_a_checkpoint_of_another_architecture_is_refused(bars: Dataset, tmp_path: Path) -> None:
    fit(bars, Settings(**{**HARD, "epochs": 1}), folder=tmp_path)
    tensors, notes = formats.read_checkpoint(tmp_path / "model.safetensors")
    tensors["model.head.weight"] = torch.zeros(7, 8)
    formats.write_checkpoint(tmp_path / "model.safetensors", tensors, notes)
    with pytest.raises(InputError, match=r"same architecture.*head.weight"):
        Trained.load(tmp_path)


DRIVER = """
    import os, random, signal, sys, time
    import torch
    torch.set_num_threads(1)
    sys.path.insert(0, {here!r})
    from conftest import make_dataset
    from confide.progress import Progress
    from confide.training import Settings, fit
    Progress.quiet = True
    data, settings = make_dataset(), Settings(**{settings!r}, loss="adafocal")
    def child(folder):
        pid = os.fork()
        if pid == 0:
            fit(data, settings, folder=folder, checkpoint_seconds=0)
            os._exit(0)
        return pid
    os.waitpid(child({unbroken!r}), 0)
    began = time.monotonic()
    os.waitpid(child({unbroken!r} + "-timed"), 0)
    whole = time.monotonic() - began
    generator, kills = random.Random(5), 0
    for attempt in range(400):
        pid = child({broken!r})
        if kills < 20:
            time.sleep(generator.uniform(0, 0.35) * whole)
        done, status = os.waitpid(pid, os.WNOHANG if kills < 20 else 0)
        if done == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            kills += 1
        elif kills >= 20:
            break
        else:
            # It finished early: start over in the same folder, so that all kills strike a running training.
            import shutil
            shutil.rmtree({broken!r})
    print(kills)
"""


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    unbroken, broken = str(tmp_path / "unbroken"), str(tmp_path / "broken")
    here = str(Path(__file__).parent)
    code = textwrap.dedent(DRIVER).format(here=here, settings={**HARD, "epochs": 4}, unbroken=unbroken, broken=broken)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20
    assert_same(Trained.load(unbroken), Trained.load(broken))
    assert (Path(unbroken) / "log.parquet").read_bytes() == (Path(broken) / "log.parquet").read_bytes()
    assert np.isfinite(Trained.load(broken).log["train_loss"]).all()
