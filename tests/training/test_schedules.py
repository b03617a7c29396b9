"""Learning rates as a function of the step."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from confide.checks import InputError, OptionError
from confide.training import PRESETS, Settings, preset
from confide.training.settings import cycled_momenta, learning_rates, suited_settings


def test_step_drops_at_its_milestones() -> None:
    settings = preset("paper-adafocal")
    rates = learning_rates(settings, 10).reshape(350, 10)
    assert rates[0] == pytest.approx(0.1)
    assert rates[149] == pytest.approx(0.1)
    assert rates[150] == pytest.approx(0.01)
    assert rates[250:] == pytest.approx(0.001)


def test_cosine_ends_at_its_floor() -> None:
    rates = learning_rates(Settings(schedule="cosine", epochs=2, schedule_options={"floor": 0.1}), 50)
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(0.01)
    assert (np.diff(rates) < 0).all()


def test_warmup_as_a_share_and_as_a_number() -> None:
    for warmup in (0.1, 10):
        rates = learning_rates(Settings(schedule="constant", epochs=2, schedule_options={"warmup": warmup}), 50)
        assert rates[:3] == pytest.approx([0.01, 0.02, 0.03])
        assert rates[10:] == pytest.approx(0.1)


def test_one_cycle_is_that_of_torch() -> None:
    settings = preset("paper-oracle")
    total = 1000
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1e-5, momentum=0.05)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-5, total_steps=total, pct_start=100 / total)
    rates, momentum = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(total):
            rates.append(optimizer.param_groups[0]["lr"])
            momentum.append(optimizer.param_groups[0]["momentum"])
            theirs.step() if len(rates) < total else None
    cycled = cycled_momenta(settings, total)
    assert cycled is not None
    # torch peaks one step earlier; the curves agree but for that shift.
    assert np.abs(learning_rates(settings, total) - np.array(rates)).max() < 2e-7
    assert np.abs(cycled - np.array(momentum)).max() < 2e-3
    assert rates[0] == pytest.approx(4e-7)
    assert learning_rates(settings, total)[-1] == pytest.approx(4e-11)


def test_presets_are_whole_and_unknown_ones_are_not() -> None:
    for name in PRESETS:
        learning_rates(preset(name), 5)
    with pytest.raises(InputError, match="did you mean 'paper-cifar'"):
        preset("paper-cifr")
    with pytest.raises(OptionError, match="has no option 'floor'"):
        Settings(schedule="step", schedule_options={"floor": 1})
    with pytest.raises(InputError, match="warmup"):
        Settings(schedule_options={"warmup": -1})


def test_a_short_training_warms_up_for_a_third() -> None:
    assert preset("paper-cifar").choose_after == 40
    assert preset("paper-tiny").choose_after == 20
    assert preset("paper-cifar", epochs=30).choose_after == 10
    assert preset("paper-cifar", epochs=30, choose_after=25).choose_after == 25


def test_a_warm_up_of_one_is_one_step_and_below_one_a_share() -> None:
    from confide.training.settings import warmup_steps

    assert warmup_steps(1, 10) == 1
    assert warmup_steps(0.99, 10) == pytest.approx(9.9)
    assert warmup_steps(100, 10) == 9  # the last step is the schedule's own
    rates = learning_rates(Settings(schedule="cosine", epochs=1, schedule_options={"warmup": 1}), 10)
    assert (np.diff(rates[1:]) < 0).all()


def test_texts_and_rows_get_a_network_that_reads_them():
    plain = Settings(epochs=2)
    assert suited_settings(plain, "image") is plain
    assert suited_settings(plain, "rows").model == "mlp"
    text = suited_settings(plain, "text")
    assert (text.model, text.optimizer, text.epochs) == ("text_cnn", "adamw", 2)
    assert suited_settings(Settings(learning_rate=0.5), "text").optimizer == "sgd"
    assert suited_settings(Settings(model="mlp"), "text").model == "mlp"
