"""Ensembles: seeds, members together, stacked members equal to single ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.core.door import InputError
from confide.core.records import Dataset
from confide.difficulty.recorder import Recorder
from confide.training import Settings, fit, fit_members, predict, predict_members

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
