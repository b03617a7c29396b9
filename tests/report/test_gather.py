"""From paths to one evaluation: files, run folders, unfinished ones, several."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from confide.checks import InputError
from confide.report import gather, render_report
from confide.report.view import EvaluationView
from confide.results import About, ComparedRow, Comparison, Evaluation, Measurement, ModelPoint, OperatingPoint
from confide.store import RunPaths


def small(model: str, n: int = 100, stage: str = "raw", **about: object) -> Evaluation:
    rows = (Measurement("accuracy", 0.9, n, "test", stage, model=model, bounds=(0.8, 0.95)),)
    tests = (
        Comparison(
            "nll", ComparedRow(model, "raw"), ComparedRow(model, "temperature"), -0.1, -0.2, -0.05, 0.01, 0.01, "b"
        ),
    )
    points = (ModelPoint(OperatingPoint(risk=0.1, threshold=0.5), model),)
    return Evaluation(rows, comparisons=tests, operating_points=points, about=About(**about))


def test_a_run_folder_holds_its_evaluation(tmp_path):
    small("focal").save(tmp_path / "evaluation.json")
    assert repr(vars(gather([tmp_path]))) == repr(vars(gather([tmp_path / "evaluation.json"])))  # NaN is not NaN


def test_an_unfinished_run_shows_what_is_there_and_how_to_finish_it(tmp_path):
    small("focal").save(tmp_path / "evaluations" / "focal-raw.json")
    small("focal", stage="temperature").save(tmp_path / "evaluations" / "focal-temperature.json")
    found = gather([tmp_path])
    assert EvaluationView(found).stages == ("raw", "temperature")
    assert "not finished" in found.warnings[0]
    assert "confide run" in found.warnings[0]
    assert "not finished" in render_report(found)


def test_an_empty_run_folder_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"must hold evaluation\.json, but has none yet; name a folder that"):
        gather([tmp_path])
    (tmp_path / "config.yaml").write_text("losses: [focal]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"has none yet; finish it with: confide run .*config\.yaml --out "):
        gather([tmp_path])


@pytest.mark.slow
def test_the_hint_of_an_interrupted_run_finishes_that_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my config.yaml").write_text(
        "data: fashion-sample\nlosses: [cross_entropy]\ncalibrators: []\ntraining: {model: mlp, epochs: 3}\n",
        encoding="utf-8",
    )
    begun = subprocess.Popen([sys.executable, "-m", "confide", "run", "my config.yaml", "--out", "my run", "--quiet"])
    training = RunPaths(Path("my run")).model("cross_entropy")
    while not training.exists() and begun.poll() is None:
        time.sleep(0.05)
    begun.kill()
    begun.wait()
    with pytest.raises(InputError, match="has none yet; finish it with: ") as refused:
        gather(["my run"])
    hint = str(refused.value).split("finish it with: ")[1]
    assert subprocess.run([sys.executable, "-m", *shlex.split(hint)], check=False).returncode == 0
    assert len(gather(["my run"]).measurements)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my config.yaml", "my run"]


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        gather([tmp_path / "nothing"])


def test_an_evaluation_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "evaluation.json").write_text(json.dumps({"format": "evaluation/9"}))
    with pytest.raises(InputError, match="evaluation/9"):
        gather([tmp_path])


def test_a_damaged_evaluation_is_refused_in_one_line(tmp_path):
    data = small("focal").to_dict()
    del data["curves"]
    (tmp_path / "evaluation.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="must be what confide wrote, but it is not \\(KeyError: 'curves'\\)"):
        gather([tmp_path])


def test_several_runs_keep_their_models_apart(tmp_path):
    for name in ("first", "second"):
        about = {"stages": {"focal/temperature": f"T of {name}"}, "commands": (f"confide evaluate {name}.npz",)}
        small("focal", **about).save(tmp_path / name / "evaluation.json")
    found = gather([tmp_path / "first", tmp_path / "second" / "evaluation.json"])
    assert EvaluationView(found).models == ("focal (first)", "focal (second)")
    assert {str(c.a) for c in found.comparisons} == {"focal (first)/raw", "focal (second)/raw"}
    assert {p.model for p in found.operating_points} == {"focal (first)", "focal (second)"}
    assert found.about.stages["focal (second)/temperature"] == "T of second"
    assert found.about.title == "first, second"
    made = ("confide evaluate first.npz", "confide evaluate second.npz")
    assert found.about.commands[:2] == made
    assert found.about.commands[2].startswith("confide report ")
    assert found.about.commands[2].endswith("evaluation.json")
    assert "no paired test was made between them" in found.warnings[0]


def test_models_of_different_names_keep_them(tmp_path):
    small("focal").save(tmp_path / "a.json")
    small("brier").save(tmp_path / "b.json")
    assert EvaluationView(gather([tmp_path / "a.json", tmp_path / "b.json"])).models == ("focal", "brier")


def test_runs_on_different_samples_are_said_not_to_compare(tmp_path):
    small("focal", n=100).save(tmp_path / "a.json")
    small("brier", n=200).save(tmp_path / "b.json")
    found = gather([tmp_path / "a.json", tmp_path / "b.json"])
    assert "different samples (100 in a, 200 in b)" in found.warnings[1]
    assert "the same samples" not in render_report(found)
    assert "Two models, two runs." in render_report(found)
