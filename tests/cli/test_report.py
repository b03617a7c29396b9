"""`confide report`: one HTML file from runs or evaluations."""

from __future__ import annotations

import json

import pytest

from confide.cli.main import main
from confide.results import About, Evaluation, Measurement


@pytest.fixture
def run_folder(tmp_path):
    rows = (Measurement("accuracy", 0.9, 100, "test", bounds=(0.8, 0.95)),)
    Evaluation(rows, about=About(title="small"), warnings=("mind the gap",)).save(tmp_path / "run" / "evaluation.json")
    return tmp_path / "run"


def test_writes_one_page(run_folder, tmp_path, capsys):
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "This model is right on" in out
    assert "note: mind the gap" in out
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_json_for_machines(run_folder, tmp_path, capsys):
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["bytes"] == (tmp_path / "page.html").stat().st_size
    assert data["warnings"] == ["mind the gap"]


def test_bad_input_is_one_line_and_writes_nothing(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none"), "-o", str(tmp_path / "page.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert "confide report runs/demo" in capsys.readouterr().out
