"""Every write of every verb that writes fails in turn; the same command then goes on and ends with the same numbers.

In `make test` each place in the code that changes the disk fails once, and the last change of each verb; `make faults`
fails every single change in every way.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide.cli.main import main
from confide.explorer import tags
from confide.explorer.tags import SampleTag, TagFile
from tests.faults.layer import KINDS, Change, FaultyDisk, Killed, on

ALL = os.environ.get("FAULTS") == "all"
PARTS = 16 if ALL else 1
"""The walk over all changes of a verb is cut into so many tests, which workers share and which can be asked for."""


@dataclass(frozen=True)
class Verb:
    """A command that writes into a folder, and the numbers that it leaves there."""

    words: Callable[[Path, Path], list[str]]
    numbers: Callable[[Path], Any]
    owns: bool = True
    """Whether all of the folder is the verb's own, so that it removes what a killed one left half-written."""

    def run(self, inputs: Path, out: Path) -> int:
        with pytest.MonkeyPatch.context() as patch:
            # A run makes this user's key where there is none yet: every folder has a user of its own.
            patch.setenv("XDG_CONFIG_HOME", str(out.with_name(f"{out.name}-config")))
            return main([*self.words(inputs, out), "--quiet"])


def run_words(inputs: Path, out: Path) -> list[str]:
    return ["run", str(inputs / "experiment.yaml"), "--out", str(out)]


def train_words(inputs: Path, out: Path) -> list[str]:
    settings = ["--set", "model=mlp", "--epochs", "2", "--set", "batch_size=64", "--checkpoint-seconds", "0"]
    return ["train", str(inputs / "rows.npz"), *settings, "--record", "val", "--device", "cpu", "--out", str(out)]


def recipe_words(inputs: Path, out: Path) -> list[str]:
    recipe = ["--recipe", "confide", "--features", "pixels", "--set", "model=mlp", "--set", "augment=none"]
    return ["train", str(inputs / "images.npz"), *recipe, "--epochs", "1", "--device", "cpu", "--out", str(out)]


def score_words(inputs: Path, out: Path) -> list[str]:
    files = ["-o", str(out / "scores.parquet"), "--save-fit", str(out / "fit.safetensors")]
    return ["score", str(inputs / "images.npz"), "--features", "pixels", *files]


def harden_words(inputs: Path, out: Path) -> list[str]:
    data = [str(inputs / "images.npz"), "--scores", str(inputs / "scores.parquet"), "--split", "train"]
    return ["harden", *data, "--fraction", "0.05", "-o", str(out)]


def shift_words(inputs: Path, out: Path) -> list[str]:
    shifts = ["--words", "brightness", "--severities", "1", "2", "--no-intervals", "--device", "cpu"]
    return ["shift", str(inputs / "model"), "--data", str(inputs / "images.npz"), *shifts, "--out", str(out)]


def monitor_words(inputs: Path, out: Path) -> list[str]:
    files = ["--reference", str(inputs / "val.npz"), "--predictions", str(inputs / "week.npz"), "--name", "week"]
    return ["monitor", str(out / "watch.jsonl"), *files, "--labels", str(inputs / "labels.csv"), "--risk", "0.5"]


def monitor_numbers(out: Path) -> Any:
    watch = confide.monitor.Monitor(file=out / "watch.jsonl")
    return [(b.n, b.labelled, b.right, b.accuracy, b.drift) for b in watch.batches], watch.alarms


def run_numbers(out: Path) -> Any:
    evaluation = json.loads((out / "evaluation.json").read_text())
    return evaluation["measurements"], evaluation["comparisons"], contents(out / "models")


def evaluation_numbers(out: Path) -> Any:
    return json.loads((out / "evaluation.json").read_text())["measurements"]


def contents(folder: Path) -> dict[str, str]:
    """Digests of what must come out the same to the last byte; not of what holds a clock."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    clocks = ("timings.parquet", "manifest.json", ".lock")
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in clocks and "checkpoints" not in path.parts and path.suffix != ".part"
    }


VERBS = {
    "run": Verb(run_words, run_numbers),
    "train": Verb(train_words, contents),
    "recipe": Verb(recipe_words, contents),
    "score": Verb(score_words, contents, owns=False),
    "harden": Verb(harden_words, contents),
    "shift": Verb(shift_words, evaluation_numbers),
    "monitor": Verb(monitor_words, monitor_numbers),
}
CONFIG = """
data: rows.npz
features: pixels
training: {model: mlp, epochs: 2, batch_size: 64, device: cpu}
metrics: [accuracy, nll]
promise: 0.2
gallery: 1
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, scores and a model to work on."""
    folder = tmp_path_factory.mktemp("inputs")
    draw, labels = np.random.default_rng(0), np.arange(150) % 2
    np.savez(folder / "rows.npz", x=draw.normal(size=(150, 3)) + labels[:, None], y=labels)
    images = (draw.integers(0, 120, (120, 6, 6)) + 60 * (np.arange(120) % 2)[:, None, None]).astype(np.uint8)
    np.savez(folder / "images.npz", images=images, labels=np.arange(120) % 2)
    (folder / "experiment.yaml").write_text(CONFIG.replace("rows.npz", str(folder / "rows.npz")))
    logits, truth = draw.normal(size=(200, 2)), draw.integers(0, 2, 200)
    confide.Predictions(logits[:100], truth[:100]).save(folder / "val.npz")
    confide.Predictions(logits[100:], ids=range(100, 200)).save(folder / "week.npz")
    labels_csv = "".join(f"{k},{truth[k]}\n" for k in range(100, 150))
    (folder / "labels.csv").write_text(f"id,label\n{labels_csv}")
    words = ["score", str(folder / "images.npz"), "--features", "pixels", "--gallery", "none", "--quiet"]
    assert main([*words, "-o", str(folder / "scores.parquet")]) == 0
    settings = confide.training.Settings(model="mlp", epochs=1, device="cpu")
    confide.training.fit(confide.load_dataset(str(folder / "images.npz")), settings, folder=folder / "model")
    return folder


@pytest.fixture(scope="module")
def unbroken(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[FaultyDisk, Any]]:
    """The changes that a verb makes when nothing fails, and its numbers."""
    known: dict[str, tuple[FaultyDisk, Any]] = {}

    def of(name: str) -> tuple[FaultyDisk, Any]:
        if name not in known:
            out = tmp_path_factory.mktemp(f"unbroken-{name}") / "out"
            with on(FaultyDisk()) as noted:
                assert VERBS[name].run(inputs, out) == 0
            known[name] = noted, VERBS[name].numbers(out)
        return known[name]

    return of


def attempt(verb: Verb, inputs: Path, out: Path, faulty: FaultyDisk) -> bool:
    """Whether the verb came to its end; what the disk refuses is one line and status 1, never a traceback."""
    with on(faulty):
        try:
            status = verb.run(inputs, out)
        except Killed:
            return False
    assert status == 0 or faulty.hits
    return status == 0 and not faulty.hits


@pytest.mark.parametrize("name", VERBS)
def test_every_place_that_writes_may_fail_once(
    name: str,
    inputs: Path,
    unbroken: Callable[[str], tuple[FaultyDisk, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each try fails wherever nothing has failed before, in another way each time, and is tried again."""
    noted, numbers = unbroken(name)
    failed: set[tuple[str, str]] = set()
    for kind in cycle(KINDS):
        before = frozenset(failed)
        faulty = FaultyDisk(lambda _, change: change.key not in failed and failed.add(change.key) is None, kind)
        if attempt(VERBS[name], inputs, tmp_path / "out", faulty):
            break
        assert before < failed
    assert failed >= {change.key for change in noted.changes if change.name != "make_folder"}
    assert VERBS[name].numbers(tmp_path / "out") == numbers
    assert not (VERBS[name].owns and list((tmp_path / "out").rglob("*.part")))
    assert "Traceback" not in capsys.readouterr().err


def every_change(changes: list[Change], part: int) -> list[tuple[int, str]]:
    """The cases of a part: all ways to fail of every so many-th change; without FAULTS=all one way at the last change.

    Only what is flushed can be half there: elsewhere "half" is "kill", and "full" is "fail" with another number.
    """
    if not ALL:
        return [(len(changes), "half")]
    ways = {"flush": KINDS, "new_file": ("full", "kill"), "make_folder": ("full", "kill")}
    numbers = range(1 + part, 1 + len(changes), PARTS)
    return [(number, kind) for number in numbers for kind in ways.get(changes[number - 1].name, ("fail", "kill"))]


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_fails_at_any_change_goes_on_to_the_same_numbers(
    name: str,
    part: int,
    inputs: Path,
    unbroken: Callable[[str], tuple[FaultyDisk, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    noted, numbers = unbroken(name)
    for number, kind in every_change(noted.changes, part):
        out = tmp_path / f"{number}-{kind}"
        attempt(VERBS[name], inputs, out, FaultyDisk(lambda k, _, number=number: k == number, kind))  # type: ignore[misc]
        assert VERBS[name].run(inputs, out) == 0, (number, kind, capsys.readouterr().err)
        assert VERBS[name].numbers(out) == numbers, (number, kind, noted.changes[number - 1])
        shutil.rmtree(out)


@pytest.mark.parametrize("name", [name for name in VERBS if name != "monitor"])  # a watch is only added to
def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_anything_follows(
    name: str, unbroken: Callable[[str], tuple[FaultyDisk, Any]]
) -> None:
    changes = unbroken(name)[0].changes
    renames = [k for k, change in enumerate(changes) if change.name == "rename"]
    assert renames
    for k in renames:
        assert changes[k - 1].name == "flush"
        assert changes[k - 1].path.parent == changes[k].path.parent
        assert (changes[k + 1].name, changes[k + 1].path) == ("flush_folder", changes[k].path.parent)


# Tags are written by SQLite: there every statement fails in turn.


class FaultyConnection(sqlite3.Connection):
    """A connection whose `left`-th statement from now fails."""

    left = 0
    error: BaseException

    def execute(self, *args: Any) -> sqlite3.Cursor:
        FaultyConnection.left -= 1
        if FaultyConnection.left == 0:
            raise FaultyConnection.error
        return super().execute(*args)


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("database or disk is full"), Killed()], ids=["full", "kill"]
)
def test_a_tag_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(tags.sqlite3, "connect", lambda *a, **k: real(*a, factory=FaultyConnection, **k))
    FaultyConnection.error = error
    for number in range(1, 30):
        path = tmp_path / f"{number}.sqlite"
        FaultyConnection.left = 0
        first = TagFile(path)
        first.put(SampleTag("test", "a", "drop"))
        first.close()
        FaultyConnection.left = number
        second = None
        try:
            second = TagFile(path)
            second.put(SampleTag("test", "b", "keep", None, "seen"))
            confirmed = True
        except (confide.checks.InputError, Killed):
            confirmed = False
        finally:
            unused, FaultyConnection.left = FaultyConnection.left > 0, 0
            if second is not None:
                second.close()
        with closing(TagFile(path)) as written:
            kept = {tag.id: (tag.action, tag.note) for tag in written.all()}
        assert kept.pop("a") == ("drop", "")
        assert kept == ({"b": ("keep", "seen")} if confirmed else {})
        if unused:
            return
    raise AssertionError("a tag takes fewer statements")
