"""The compiled forward pass: whole batches only, and what cannot be compiled runs as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from confide.checks import InputError
from confide.records import Dataset
from confide.training import Settings, fit
from confide.training.state import CompiledForward


def with_compiler(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[[Tensor], Tensor]
) -> tuple[CompiledForward, list[str]]:
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled)
    notes: list[str] = []
    return CompiledForward(nn.Identity(), 4, notes), notes


def test_only_whole_batches_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, notes = with_compiler(monkeypatch, lambda inputs: inputs + 1)
    assert forward(torch.zeros(4)).sum() == 4
    assert forward(torch.zeros(3)).sum() == 0
    assert not notes


def test_a_network_that_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(inputs: Tensor) -> Tensor:
        raise RuntimeError("no compiler found\nmore")

    forward, notes = with_compiler(monkeypatch, failing)
    for _ in range(2):
        assert forward(torch.zeros(4)).sum() == 0
    assert notes == ["the network runs uncompiled: no compiler found"]


def test_too_little_memory_is_not_taken_for_a_failed_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(inputs: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("out of memory")

    forward, _ = with_compiler(monkeypatch, failing)
    with pytest.raises(torch.OutOfMemoryError):
        forward(torch.zeros(4))


def test_nothing_is_compiled_on_a_cpu(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("compiled on a CPU")

    monkeypatch.setattr(torch, "compile", refused)
    settings = Settings(epochs=1, batch_size=32, model_options={"width": 4}, device="cpu", compile=True)
    assert not fit(bars, settings).notes


def test_compiled_and_deterministic_exclude_each_other() -> None:
    with pytest.raises(InputError, match="chosen by timing"):
        Settings(compile=True, deterministic=True)
