"""Ensembles: seeds, members together, stacked members equal to single ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.checks import InputError
from confide.difficulty.training_logs import Recorder
from confide.models import preparation
from confide.models.device import Device
from confide.records import Dataset
from confide.training import Settings, ensemble, ensemble as stacked, fit, fit_members, predict, predict_members
from confide.training.trackers import tracker_for_members

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 48, "model_options": {"width": 4, "hidden": 8}, "device": "cpu"}


def test_members_differ_in_their_seed_alone(bars: Dataset, tmp_path: Path) -> None:
    members = fit_members(bars, Settings(**QUICK, seed=5), members=2, folder=tmp_path)
    again = fit(bars, Settings(**QUICK, seed=6))
    assert [m.settings.seed for m in members] == [5, 6]
    assert torch.equal(members[1].model.head.weight, again.model.head.weight)  # type: ignore[arg-type]
    together = predict_members(tmp_path, bars)
    alone = [torch.softmax(predict(m, bars).logits.double(), dim=1) for m in members]
    assert_close(together.logits.double().exp(), (alone[0] + alone[1]) / 2, rtol=1e-5, atol=1e-7)
    assert together.from_probabilities
    assert (together.columns["ensemble_mutual_information"] >= 0).all()


@pytest.mark.parametrize("loss", ["cross_entropy", "adafocal"])
def test_stacked_members_equal_single_ones(bars: Dataset, loss: str) -> None:
    settings = Settings(**QUICK, loss=loss, augment="crop_flip")
    single, stacked = (fit_members(bars, settings, members=2, stack=stack) for stack in (False, True))
    for one, other in zip(single, stacked, strict=True):
        for name, weights in one.model.state_dict().items():
            assert_close(other.model.state_dict()[name], weights, rtol=1e-3, atol=1e-4, msg=name)
        assert_close(torch.tensor(other.log["val_nll"]), torch.tensor(one.log["val_nll"]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stack", [False, True])
def test_a_recorder_gets_every_member_and_epoch(bars: Dataset, tmp_path: Path, stack: bool) -> None:
    recorder = Recorder(bars.test.ids, bars.test.labels, folder=tmp_path / "probs", members=2)
    members = fit_members(bars, Settings(**QUICK, record="test"), members=2, recorder=recorder, stack=stack)
    shards = sorted((tmp_path / "probs").rglob("epoch-*.npy"))
    assert len(shards) == 4
    last = torch.softmax(predict(members[1], bars).logits, dim=1).numpy()
    assert np.abs(np.load(shards[-1]).astype(np.float32) - last).max() < 2e-3


def test_what_cannot_be_stacked_says_why(bars: Dataset) -> None:
    with pytest.raises(InputError, match="clip_norm"):
        fit_members(bars, Settings(**QUICK, clip_norm=1.0), stack=True)
    with pytest.raises(InputError, match="members must lie in"):
        fit_members(bars, Settings(**QUICK), members=0)


def test_only_small_models_on_a_gpu_are_stacked(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not stacked.small_on_gpu(bars, Settings(**QUICK))
    monkeypatch.setattr(Device, "on_gpu", True)
    assert stacked.small_on_gpu(bars, Settings(**QUICK))
    assert not stacked.small_on_gpu(bars, Settings(model="resnet18", device="cpu"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not stacked.small_on_gpu(bars, Settings(**QUICK))


def test_a_stack_respects_what_is_in_its_folders(bars: Dataset, tmp_path: Path) -> None:
    settings = Settings(**QUICK)
    first = fit_members(bars, settings, members=2, folder=tmp_path, stack=True)
    assert "of a stack of 2" in first[0].notes[-1]
    (tmp_path / "member-1" / "model.safetensors").unlink()
    again = fit_members(bars, settings, members=2, folder=tmp_path, stack=True)
    assert torch.equal(first[1].model.head.weight, again[1].model.head.weight)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"holds a training with epochs = 2, now 3"):
        fit_members(bars, settings.changed(epochs=3), members=2, folder=tmp_path, stack=True)
    single = fit_members(bars, settings, members=2, folder=tmp_path / "single")
    kept = fit_members(bars, settings, members=2, folder=tmp_path / "single", stack=True)
    assert kept[1].notes == single[1].notes == ()


def test_what_does_not_fit_together_is_trained_one_after_another(
    bars: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(ensemble, "small_on_gpu", lambda *_: True)
    for name, broken in (("_step", full), ("_budget", lambda _: 0)):
        with monkeypatch.context() as patch:
            patch.setattr(stacked if name == "_step" else preparation, name, broken)
            members = fit_members(bars, Settings(**QUICK), members=2)
            assert [m.settings.seed for m in members] == [0, 1]
            assert not any("stack" in note for m in members for note in m.notes)
            with pytest.raises(InputError, match="together they do not fit into memory"):
                fit_members(bars, Settings(**QUICK), members=2, stack=True)


def test_a_member_of_a_stack_that_diverges_names_step_and_ids(bars: Dataset) -> None:
    settings = Settings(**QUICK, learning_rate=1e30, schedule="constant")
    with pytest.raises(InputError, match=r"the loss became NaN or infinite at epoch 1, step \d, batch with ids t"):
        fit_members(bars, settings, members=2, stack=True)


@pytest.mark.parametrize("stack", [False, True])
def test_every_members_epochs_are_told(bars: Dataset, stack: bool) -> None:
    told: list[tuple[int, float]] = []
    members = fit_members(
        bars, Settings(**QUICK), members=2, stack=stack, on_epoch=lambda k, row: told.append((k, row["val_nll"]))
    )
    assert sorted(told) == sorted((k, float(v)) for k, one in enumerate(members) for v in one.log["val_nll"])
    rows: list[dict[str, float]] = []
    tracker_for_members(rows.append)(1, {"epoch": 3.0, "val_nll": 0.5})
    assert rows == [{"epoch": 3.0, "member-1/val_nll": 0.5}]


def test_an_ensemble_of_one_is_that_model(bars: Dataset) -> None:
    only = fit(bars, Settings(**QUICK))
    alone, together = predict(only, bars, "test"), predict_members([only], bars, "test")
    torch.testing.assert_close(together.probabilities(), alone.probabilities())
    assert together.ids.tolist() == alone.ids.tolist()
    assert together.labels.tolist() == alone.labels.tolist()
    assert together.class_names == alone.class_names
    assert together.columns["ensemble_disagreement"].max() == 0
    assert together.columns["ensemble_mutual_information"].max() < 1e-9
