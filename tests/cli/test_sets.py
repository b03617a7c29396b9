"""`confide sets`: tables, files, and the exit status where nothing can be promised."""

import csv
import json

import numpy as np
import pytest

from confide import Predictions, sets
from confide.cli.main import main


@pytest.fixture
def files(tmp_path):
    for seed, name in enumerate(("val", "test", "tiny")):
        rng = np.random.default_rng(seed)
        n = 5 if name == "tiny" else 300
        logits = 2 * rng.normal(size=(n, 3))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels, difficulty=rng.random(n))
    return tmp_path


def test_sets_are_fitted_applied_saved_and_written(files, capsys):
    words = ["sets", "--fit", files / "val.npz", "--apply", files / "test.npz", "--by", "difficulty"]
    more = ["--save", files / "sets.json", "--out", files / "sets.csv", "--method", "aps"]
    assert main([str(word) for word in (*words, *more)]) == 0
    shown = capsys.readouterr().out
    assert "at least 90.0% of the sets hold the true class within each group of difficulty" in shown
    assert "difficulty: hardest band" in shown
    with open(files / "sets.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    inside = sets.load(files / "sets.json")(Predictions.load(files / "test.npz"))
    assert [int(row["size"]) for row in rows] == inside.sum(dim=1).tolist()
    assert rows[0]["classes"] == " | ".join(str(k) for k in range(3) if inside[0, k])
    assert main(["sets", "--load", str(files / "sets.json"), "--apply", str(files / "test.npz"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["groups"][0]["n"] == 300


def test_too_few_samples_end_with_status_3(files, capsys):
    assert main(["sets", "--fit", str(files / "tiny.npz"), "--apply", str(files / "test.npz")]) == 3
    shown = capsys.readouterr().out
    assert "nothing can be promised" in shown
    assert "it takes at least 9" in shown


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "give either --fit"),
        (["--fit", "val.npz", "--apply", "val.npz"], "must be different files"),
        (["--fit", "val.npz", "--out", "x.csv"], "are of the samples of --apply"),
        (["--fit", "val.npz", "--coverage", "1"], "coverage must lie in (0, 1)"),
        (["--fit", "val.npz", "--method", "lca"], "did you mean 'lac'?"),
        (["--fit", "val.npz", "--by", "site"], "no column 'site'"),
    ],
)
def test_bad_words_are_one_line(files, capsys, monkeypatch, words, part):
    monkeypatch.chdir(files)
    assert main(["sets", *words]) == 1
    error = capsys.readouterr().err.strip()
    assert part in error
    assert "\n" not in error
