"""What a user sees of long work."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

from confide.cli.main import guarded, main
from confide.data import load_dataset
from confide.progress import Progress
from confide.training import Settings, fit, predict


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


def test_a_verb_that_writes_a_result_tells_where_before_long_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def long_work(args: argparse.Namespace) -> None:
        with Progress("work", 1, patience=0) as progress:
            progress.step()

    monkeypatch.setattr(Progress, "quiet", False)
    for out, lines in (("calibrated.parquet", "the result will be in calibrated.parquet\n"), (None, "")):
        assert guarded(long_work, argparse.Namespace(quiet=False, out=out)) == 0
        assert capsys.readouterr().err == lines
    assert guarded(long_work, argparse.Namespace(quiet=False)) == 0
    assert capsys.readouterr().err == ""


def test_an_evaluation_without_out_tells_the_folder_that_it_will_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.savez(tmp_path / "own.npz", logits=np.eye(4), labels=np.arange(4))
    told: list[str] = []
    monkeypatch.setattr("confide.cli.evaluate.finish", lambda *_: told.append(Progress.result) or 0)
    assert main(["evaluate", str(tmp_path / "own.npz")]) == 0
    assert told == [str(tmp_path / "own-evaluation")]


def test_long_predictions_tell_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = load_dataset((np.eye(20, dtype=np.float32), np.arange(20) % 2))
    options = {"dropout": 0.1}
    trained = fit(dataset, Settings(model="mlp", model_options=options, epochs=1, batch_size=8, device="cpu"))
    steps: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Progress, "step", lambda self, by=1, note="": steps.append((self.what, self.total, by)))
    for passes in (0, 3):
        steps.clear()
        predict(trained, dataset, "train", passes=passes, batch_size=4)
        assert {step[:2] for step in steps} == {("predict train", 16 * max(passes, 1))}
        assert sum(step[2] for step in steps) == steps[0][1]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr("confide.progress.time", own)
    monkeypatch.setattr(Progress, "quiet", False)
    monkeypatch.setattr(Progress, "result", "")
    return own


def test_a_log_file_gets_a_line_every_tenth_after_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 40) as progress:
        for _ in range(40):
            clock.now += 1
            progress.step(1, "loss")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"train {5 * k:3d} %  {40 - 2 * k} s left  loss" for k in range(6, 21, 2)]


def test_a_terminal_is_drawn_after_two_seconds_and_five_times_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("train", 40) as progress:
        for _ in range(25):
            clock.now += 0.125
            progress.step()
        assert capsys.readouterr().err.split("\r\x1b[K")[1:] == [
            "train  40 %  3 s left  ",
            "train  45 %  3 s left  ",
            "train  50 %  2 s left  ",
            "train  55 %  2 s left  ",
            "train  60 %  2 s left  ",
        ]
        progress.step(14)
        clock.now += 0.01
        progress.step(1, "x" * 200)
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert [len(line) for line in shown] == [0, 110, 0]
    assert shown[1].startswith("train 100 %  0 s left  xxx")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.4, "59 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (3600, "1 h 00 min"), (7380, "2 h 03 min")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    from confide.progress import _span

    assert _span(seconds) == text


def test_work_of_nothing_is_a_step_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("train", 0) as progress:
        clock.now += 2
        progress.step(0)
        clock.now += 1
        progress.step(3)
    assert capsys.readouterr().err == "\r\x1b[Ktrain   0 %  2 s left  \r\x1b[Ktrain 100 %  0 s left  \r\x1b[K"
