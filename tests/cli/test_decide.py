"""`confide decide`: costs in their three forms, tables and files."""

import csv
import json

import numpy as np
import pytest

from confide import Predictions, decisions
from confide.cli.main import main


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(200, 2))
    np.savez("p.npz", logits=logits, labels=(logits + rng.gumbel(size=logits.shape)).argmax(axis=1))
    return "p.npz"


def test_costs_are_read_in_every_form_and_actions_are_written(file, capsys, tmp_path):
    (tmp_path / "costs.csv").write_text("0,1\n20,0\n")
    (tmp_path / "costs.yaml").write_text("- [0, 1]\n- [20, 0]\n")
    expected = decisions.decide(Predictions.load(file), [[0, 1], [20, 0]])
    for costs in (["--costs", "costs.csv"], ["--costs", "costs.yaml"], ["--costs", "[1, 20]"]):
        assert main(["decide", file, *costs, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["result"]["threshold"] == pytest.approx(1 / 21)
    words = ["decide", file, "--miss", "20", "--false-alarm", "1", "--out", "actions.csv", "--save", "rule.json"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "class 1 is decided where its probability is above 0.047619" in shown
    assert f"{expected.measured_cost.value:.4f}" in shown
    with open("actions.csv", encoding="utf-8") as table:
        assert [row["action"] for row in csv.DictReader(table)] == [str(k) for k in expected.actions.tolist()]
    assert main(["decide", file, "--load", "rule.json"]) == 0
    assert main(["decide", file, "--costs", "1", "--capacity", "5", "--out", "asked.csv"]) == 0
    with open("asked.csv", encoding="utf-8") as table:
        assert sum(row["action"] == "ask" for row in csv.DictReader(table)) == 5


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "give --costs"),
        (["--miss", "2"], "give --costs"),
        (["--miss", "2", "--false-alarm", "1", "--costs", "1"], "give --costs"),
        (["--costs", "[1, 2, 3]"], "a row for each of the 2 true classes"),
        (["--costs", "none.yaml"], "No such file"),
        (["--load", "none.json"], "no such file"),
    ],
)
def test_bad_words_are_one_line(file, capsys, words, part):
    assert main(["decide", file, *words]) == 1
    error = capsys.readouterr().err.strip()
    assert part in error
    assert "\n" not in error
