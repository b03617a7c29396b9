"""On a GPU: captured steps equal eager ones, runs resume bit for bit, members stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.records import Dataset, Scores
from confide.training import Settings, Trained, checkpoint, fit, fit_members, predict

pytestmark = [
    pytest.mark.gpu,
    # Max pooling is said to be nondeterministic, but windows that do not overlap have one way to add.
    pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation"),
]

BASE: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 32,
    "model_options": {"width": 8, "hidden": 16, "dropout": 0.2},
    "augment": "crop_flip",
    "learning_rate": 0.02,
    "device": "cuda",
}


@pytest.mark.parametrize("loss", ["cross_entropy", "adafocal", "selective_au", "crl", "mmce", "adaptive_difficulty"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_captured_step_trains_as_an_eager_one(bars: Dataset, loss: str, optimizer: str) -> None:
    options = {**BASE, "model_options": {"width": 8, "hidden": 16}, "precision": "float32", "deterministic": True}
    if optimizer == "adamw":
        options["learning_rate"] = 1e-3
    more: dict[str, Any] = {}
    if loss == "adaptive_difficulty":
        more = {"loss_options": {"start": 0.05}, "average": 1.0, "mirror": True}
    ids = np.concatenate([bars.train.ids, bars.val.ids])
    scores = Scores(ids, np.sin(np.arange(len(ids))), "rmd")
    captured, eager = (
        fit(bars, Settings(**options, **more, loss=loss, optimizer=optimizer, graph=graph), scores=scores)
        for graph in (True, False)
    )
    assert not captured.notes, captured.notes
    assert eager.notes == ("steps run eagerly: graph=False",)
    losses = [torch.tensor(run.log["train_loss"]) for run in (captured, eager)]
    assert_close(losses[0], losses[1], rtol=2e-3, atol=1e-4)
    for name, state in captured.loss_state.items():
        assert_close(state, eager.loss_state[name], rtol=1e-2, atol=1e-2)


def test_a_compiled_network_trains_as_an_uncompiled_one(bars: Dataset) -> None:
    options = {**BASE, "model_options": {"width": 8, "hidden": 16}, "precision": "float32"}
    compiled, plain = (fit(bars, Settings(**options, compile=compile)) for compile in (True, False))
    assert not compiled.notes, compiled.notes
    assert_close(torch.tensor(compiled.log["train_loss"]), torch.tensor(plain.log["train_loss"]), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float32"])
def test_it_learns_in_every_precision(bars: Dataset, precision: str) -> None:
    # Where the bright column stands is the class, so nothing may be mirrored.
    trained = fit(bars, Settings(**{**BASE, "epochs": 12, "augment": "none"}, precision=precision))
    assert float(predict(trained, bars).facts.correct.float().mean()) > 0.85
    assert any("float16" in note for note in trained.notes) == (precision == "float16")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_stopped_run_ends_bit_for_bit_the_same(
    bars: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    settings = Settings(**BASE, loss="adafocal", deterministic=True, precision=precision)
    unbroken = fit(bars, settings)
    real, left = checkpoint.save_checkpoint, [11]

    def failing(*args: Any) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_checkpoint", failing)
        with pytest.raises(OSError, match="No space"):
            fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    resumed: Trained = fit(bars, settings, folder=tmp_path)
    for name, weights in unbroken.model.state_dict().items():
        assert torch.equal(weights, resumed.model.state_dict()[name]), name
    assert (unbroken.log["val_nll"] == resumed.log["val_nll"]).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_members_are_stacked(bars: Dataset, precision: str) -> None:
    settings = Settings(**{**BASE, "model_options": {"width": 8, "hidden": 16}}, precision=precision)
    stacked, single = (fit_members(bars, settings, members=3, stack=stack) for stack in (None, False))
    assert all("stack of 3" in member.notes[-1] for member in stacked)
    for one, other in zip(stacked, single, strict=True):
        assert_close(torch.tensor(one.log["val_nll"]), torch.tensor(other.log["val_nll"]), rtol=0.05, atol=0.01)


def test_data_beyond_the_budget_are_streamed(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.models.preparation._budget", lambda device: 0)
    trained = fit(bars, Settings(**BASE))
    assert trained.notes == ("steps run eagerly: the data do not fit into GPU memory",)
    assert trained.log["train_loss"][-1] < trained.log["train_loss"][0]
