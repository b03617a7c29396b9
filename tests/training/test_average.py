"""The running mean of the weights, and predictions averaged over an image and its mirror image."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from confide.checks import InputError
from confide.records import Dataset, Split
from confide.training import Settings, fit, predict
from confide.training.ensemble import reason_against_stacking
from confide.training.state import WeightAverage

QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 32, "model_options": {"width": 4}, "device": "cpu"}


def test_the_first_steps_are_a_plain_mean_and_later_ones_fade() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = WeightAverage(model, reach=4.0)
    share, seen, wanted = 1 - math.exp(-1 / 4), [], None
    for step in range(1, 9):
        model(torch.randn(5, 2))
        with torch.no_grad():
            model[0].weight.fill_(float(step * step))
        average.update(model)
        seen.append(float(step * step))
        wanted = float(np.mean(seen)) if 1 / step > share else wanted + share * (seen[-1] - wanted)  # type: ignore[operator]
        assert_close(average.model[0].weight, torch.full((2, 2), wanted))
    assert not average.model.training
    assert not any(p.requires_grad for p in average.model.parameters())


def test_statistics_are_those_of_the_averaged_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    average = WeightAverage(model, reach=2.0)
    with torch.no_grad():
        for sign in (1.0, -1.0):
            model[0].weight.fill_(sign)
            average.update(model)
    batches = [torch.randn(50, 3), torch.randn(50, 3) + 1]
    model.register_buffer("other", torch.tensor(3.0))
    average.model.register_buffer("other", torch.tensor(0.0))
    average.recompute_statistics(model, batches)
    assert average.model.other == 3
    norm, outputs = average.model[1], [average.model[0](batch) for batch in batches]
    assert_close(norm.running_mean, torch.stack([out.mean(dim=0) for out in outputs]).mean(dim=0))
    assert_close(norm.running_var, torch.stack([out.var(dim=0) for out in outputs]).mean(dim=0))
    assert norm.momentum == 0.1
    assert not any(one.training for one in average.model.modules())


def test_a_training_measures_the_statistics_of_its_mean(bars: Dataset) -> None:
    options = {**QUICK, "model": "preresnet56", "model_options": {}, "epochs": 1, "batch_size": 120, "average": 1.0}
    trained = fit(bars, Settings(**options))
    first = next(one for one in trained.model.modules() if isinstance(one, nn.BatchNorm2d))
    seen: list[torch.Tensor] = []
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    predict(trained, replace(bars.train), batch_size=120)
    assert_close(first.running_mean, torch.stack([x.mean(dim=(0, 2, 3)) for x in seen]).mean(dim=0))


def test_the_mean_is_what_is_validated_and_kept(bars: Dataset) -> None:
    plain, averaged = fit(bars, Settings(**QUICK)), fit(bars, Settings(**QUICK, average=1.0))
    assert (plain.log["train_loss"] == averaged.log["train_loss"]).all()
    assert (plain.log["val_nll"] != averaged.log["val_nll"]).all()
    said = predict(averaged, bars, "val")
    assert float(said.facts.need("nll").mean()) == pytest.approx(averaged.log["val_nll"][-1], rel=1e-5)
    best = fit(bars, Settings(**QUICK, average=1.0, choose="nll"))
    assert float(predict(best, bars, "val").facts.need("nll").mean()) == pytest.approx(
        averaged.log["val_nll"].min(), rel=1e-5
    )


def test_mirrored_predictions_do_not_know_left_from_right(bars: Dataset) -> None:
    trained = fit(bars, Settings(**QUICK, mirror=True))
    test = bars.test
    flipped = Split(np.ascontiguousarray(test.inputs[..., ::-1]), test.labels, test.ids)
    said, other = predict(trained, test), predict(trained, flipped)
    assert_close(said.logits, other.logits, rtol=1e-5, atol=1e-5)
    once = copy.copy(trained)
    object.__setattr__(once, "settings", trained.settings.changed(mirror=False))
    mean = (predict(once, test).logits + predict(once, flipped).logits) / 2
    assert_close(said.logits, mean, rtol=1e-5, atol=1e-5)
    val = predict(trained, bars, "val")
    assert float(val.facts.need("nll").mean()) == pytest.approx(trained.log["val_nll"][-1], rel=1e-5)


def test_passes_of_dropout_are_mirrored_too(bars: Dataset) -> None:
    options = {**QUICK, "model_options": {**QUICK.get("model_options", {}), "dropout": 1e-9}}
    trained = fit(bars, Settings(**options, mirror=True))
    assert_close(predict(trained, bars, passes=2).logits, predict(trained, bars).logits, rtol=1e-4, atol=1e-4)


def test_rows_have_no_mirror_image_and_what_cannot_be_stacked_is_said(bars: Dataset) -> None:
    rows = Split(np.zeros((20, 3), dtype=np.float32), np.arange(20) % 2, np.arange(20))
    table = Dataset("table", "rows", {"train": rows, "val": replace(rows, ids=np.arange(20) + 20)}, ("a", "b"))
    plain, mirrored = (fit(table, Settings(model="mlp", epochs=1, mirror=one, device="cpu")) for one in (False, True))
    assert (plain.log["val_nll"] == mirrored.log["val_nll"]).all()
    with pytest.raises(InputError, match="average must"):
        Settings(average=-1.0)
    for more in ({"average": 1.0}, {"mirror": True}):
        assert "single trainings" in str(reason_against_stacking(bars, Settings(**QUICK, **more)))
