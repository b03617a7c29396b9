"""The step that a CUDA graph captures, replayed here without capture: the same order, rates and sums."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from confide.checks import InputError
from confide.records import Dataset
from confide.training import Settings, fit, loop, predict, prediction, state, steps

QUICK: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 50,
    "model_options": {"width": 4, "hidden": 8},
    "augment": "crop_flip",
    "device": "cpu",
}


class Replayed:
    """Stands for a captured graph: a replay runs the step."""

    def __init__(self, step: steps.GraphStep) -> None:
        self.step, self.count = step, 0

    def replay(self) -> None:
        self.count += 1
        self.step._step()


@pytest.mark.parametrize("loss", ["cross_entropy", "adafocal", "crl", "selective_au"])
def test_replayed_steps_equal_eager_ones(bars: Dataset, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    settings = Settings(**QUICK, loss=loss)
    eager = fit(bars, settings)
    made: list[steps.GraphStep] = []
    real_optimizer = state.make_optimizer

    def with_rate_tensor(*args: Any) -> torch.optim.Optimizer:
        optimizer = real_optimizer(*args)
        optimizer.param_groups[0]["lr"] = torch.tensor(settings.learning_rate)
        return optimizer

    def capture(self: steps.GraphStep) -> bool:
        self.graph = Replayed(self)  # type: ignore[assignment]
        made.append(self)
        return True

    monkeypatch.setattr(steps, "make_optimizer", with_rate_tensor)
    monkeypatch.setattr(steps, "_reason_against", lambda run: None)
    monkeypatch.setattr(steps.GraphStep, "_capture", capture)
    monkeypatch.setattr(steps.GraphStep, "stream_context", steps.NoGraph.stream_context)
    replayed = fit(bars, settings)
    # 240 samples: 4 whole batches and one of 40 an epoch; the first three steps warm up.
    assert made[0].graph.count == 3 * 4 - 3  # type: ignore[union-attr]
    for name, weights in eager.model.state_dict().items():
        assert_close(replayed.model.state_dict()[name], weights, rtol=1e-4, atol=1e-5, msg=name)
    assert_close(torch.tensor(replayed.log["train_loss"]), torch.tensor(eager.log["train_loss"]), rtol=1e-5, atol=0)


def test_a_bad_step_is_found_after_the_fact(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(run_: Any, inputs: Any, rows: Any) -> None:
        mean = torch.tensor(float("nan") if run_.state.step == 2 else 0.5, dtype=torch.float64)
        run_.state.sums += torch.stack([mean, mean, mean])
        loop.note_non_finite(run_.state, mean, torch.tensor(run_.state.step))

    monkeypatch.setattr(loop, "eager_step", spoiled)
    with pytest.raises(InputError, match=r"epoch 1, step 3, batch with ids"):
        fit(bars, Settings(**QUICK))


def test_a_batch_too_large_names_one_that_fits(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    real, held = loop.forward_backward, list[Any]()

    def small_memory(state_: Any, inputs: Any, labels: Any, rows: Any) -> Any:
        # What an earlier try had computed must be gone before the next one, or none would ever fit.
        assert all(earlier() is None for earlier in held)
        activations = torch.zeros(3)
        held.append(weakref.ref(activations))
        if len(rows) > 20:
            raise torch.OutOfMemoryError("out of memory")
        return real(state_, inputs, labels, rows)

    monkeypatch.setattr(loop, "forward_backward", small_memory)
    monkeypatch.setattr("confide.training.steps.forward_backward", small_memory)
    with pytest.raises(InputError, match=r"a batch of 50 does not fit .*; a batch_size of 16 does"):
        fit(bars, Settings(**QUICK))


@pytest.mark.parametrize("fits", [7, 0])
def test_a_validation_batch_too_large_is_halved(bars: Dataset, monkeypatch: pytest.MonkeyPatch, fits: int) -> None:
    trained = fit(bars, Settings(**QUICK))
    expected, real, sizes = predict(trained, bars).logits, prediction.batch_logits, list[int]()

    def small_memory(model: Any, inputs: Any, *rest: Any) -> Any:
        sizes.append(len(inputs))
        if len(inputs) > fits:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return real(model, inputs, *rest)

    monkeypatch.setattr(prediction, "batch_logits", small_memory)
    if not fits:
        with pytest.raises(InputError, match=r"one sample does not fit into the memory of cpu"):
            predict(trained, bars)
        return
    assert_close(predict(trained, bars).logits, expected)
    assert sizes[:5] == [60, 60, 50, 25, 12]
    assert sizes[5] == 6
