"""What a user sees of long work."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import ClassVar

import pytest

from confide.progress import Progress


class Bar:
    """Stands in for tqdm's bar, and keeps what it was told."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, total: int, desc: str) -> None:
        self.total, self.desc, self.n, self.note, self.closed = total, desc, 0, "", False
        Bar.made.append(self)

    def set_postfix_str(self, note: str, refresh: bool) -> None:
        self.note = note

    def update(self, by: int) -> None:
        self.n += by

    def close(self) -> None:
        self.closed = True


def test_notebook_gets_the_bar_of_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    auto = ModuleType("tqdm.auto")
    auto.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    monkeypatch.setattr(Progress, "quiet", False)
    with Progress("train", 3, patience=0) as progress:
        for step in range(3):
            progress.step(1, f"loss {step}")
    (bar,) = Bar.made
    assert (bar.desc, bar.total, bar.n, bar.note, bar.closed) == ("train", 3, 3, "loss 2", True)
    assert capsys.readouterr().err == ""


def test_terminal_says_what_how_far_and_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Progress, "quiet", False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("train", 2, patience=0) as progress:
        progress.step(1, "loss 0.5")
        progress.step(1)
    shown = capsys.readouterr().err
    assert "train  50 %" in shown
    assert "left  loss 0.5" in shown
    assert shown.endswith("\r\x1b[K")


def test_where_the_result_will_be_is_told_once_before_long_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Progress, "quiet", False)
    monkeypatch.setattr(Progress, "result", "runs/mine")
    with Progress("quick", 1) as progress:
        progress.step()
    assert capsys.readouterr().err == ""
    for _ in range(2):
        with Progress("train", 2, patience=0) as progress:
            progress.step(2)
    assert capsys.readouterr().err.count("the result will be in runs/mine\n") == 1
