"""`confide calibrate`: roles, tables, files, warnings, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from confide import Features, Predictions, calibrators
from confide.cli.main import main


def write(path, scale, seed, split=None, n=600):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    site = np.array(["north", "south"])[np.arange(n) % 2]
    Predictions(scale * logits, labels, split=split, columns={"site": site}).save(path)
    return str(path)


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "val.parquet", 3.0, 0, "val"), write(tmp_path / "test.parquet", 3.0, 1, "test")


def test_json_holds_the_choice_and_before_and_after(files, tmp_path, capsys):
    saved, out = tmp_path / "calibrator.json", tmp_path / "after.parquet"
    words = ["calibrate", "--fit", files[0], "--apply", files[1], "--methods", "temperature", "beta", "--json"]
    assert main([*words, "--save", str(saved), "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chosen"] in ("temperature", "beta")
    assert {c["word"] for c in told["candidates"]} == {"none", "temperature", "beta"}
    before = {m["metric"]: m for m in told["before"]}
    after = {m["metric"]: m for m in told["after"]}
    assert after["nll"]["value"] < before["nll"]["value"]
    assert before["ece"]["low"] <= before["ece"]["value"] <= before["ece"]["high"]
    assert next(c for c in told["comparisons"] if c["metric"] == "nll")["better"] == "b"
    applied = calibrators.load(saved)(Predictions.load(files[1]))
    torch.testing.assert_close(Predictions.load(out).logits, applied.logits)


def test_tables_for_people(files, capsys):
    assert main(["calibrate", "--fit", files[0], "--apply", files[1], "--methods", "temperature"]) == 0
    out = capsys.readouterr().out
    assert "> temperature" in out
    assert "cross-validated on the 600 fitted predictions" in out
    assert "on the 600 applied predictions" in out
    error = next(line for line in out.splitlines() if line.startswith("ece "))
    assert error.count(", by chance 0.0") == 2


def test_a_second_opinion_from_files_of_features_or_predictions(files, tmp_path, capsys):
    rows = []
    for name, seed in (("train", 5), ("val", 0), ("test", 1)):
        path = write(tmp_path / f"b-{name}.parquet", 1.0, seed)
        predictions = Predictions.load(path)
        views = predictions.logits.numpy() + 2 * np.eye(4)[predictions.labels]
        Features(views, predictions.labels.numpy(), predictions.ids, "views", name).save(tmp_path / f"{name}.npz")
        rows.append(str(tmp_path / f"{name}.npz"))
    words = ["calibrate", "--fit", files[0], "--apply", files[1], "--methods", "temperature", "--json"]
    by_features = ["--opinion", "gaussian", "--fitted", rows[0], "--features", *rows[1:], "--classes", "kept"]
    by_model = ["--opinion", f"b={tmp_path}/b-val.parquet,{tmp_path}/b-test.parquet"]
    for opinion, shown in ((by_features, "kept"), (by_model, "free")):
        assert main([*words, *opinion]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {c["word"] for c in told["candidates"]} == {"none", "temperature", "second_opinion"}
        if told["calibrator"]["word"] == "second_opinion":
            assert told["calibrator"]["options"]["classes"] == shown
    assert main([*words[:5], "--methods", "second_opinion", *by_features]) == 0
    assert "price: every new sample goes through views too; `confide predict` shows" in capsys.readouterr().out
    given = (["--opinion", "gaussian"], ["--features", *rows[1:]], ["--fitted", rows[0]])
    for left_out in range(3):
        for some in (given[left_out], [word for k, part in enumerate(given) if k != left_out for word in part]):
            assert main([*words, *some]) == 1
            assert "must come together" in capsys.readouterr().err


def test_it_warns_when_calibration_does_not_help(tmp_path, capsys):
    val, test = write(tmp_path / "val.parquet", 1.0, 2), write(tmp_path / "test.parquet", 1.0, 3)
    assert main(["calibrate", "--fit", val, "--apply", test, "--methods", "matrix"]) == 0
    out = capsys.readouterr().out
    assert "warning: calibration does not help for certain" in out
    assert "warning: on the applied predictions 'matrix'" in out
    assert "the predicted class changes on" in out


def test_nothing_is_changed_when_none_is_best(tmp_path, capsys):
    val, test = write(tmp_path / "val.parquet", 1.0, 2, n=200), write(tmp_path / "test.parquet", 1.0, 3, n=200)
    assert main(["calibrate", "--fit", val, "--apply", test, "--methods", "matrix", "histogram", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["chosen"] == "none"
    assert told["calibrator"]["word"] == "temperature"  # of 1: what --save writes can be applied
    assert any("no calibrator improves" in w for w in told["warnings"])


def test_by_group(files, tmp_path, capsys):
    saved = tmp_path / "groups.safetensors"
    words = ["calibrate", "--fit", files[0], "--apply", files[1], "--methods", "temperature", "--by", "site"]
    assert main([*words, "--save", str(saved)]) == 0
    assert set(calibrators.load(saved).groups) == {"north", "south"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fit", "{test}", "--apply", "{val}"], "must not be fitted on the test split"),
        (["--fit", "{val}", "--apply", "{val}"], "--fit and --apply must be different files"),
        (["--fit", "{val}", "--apply", "{test}", "--methods", "sigmoid"], "no calibrator named 'sigmoid'"),
        (["--fit", "{val}", "--apply", "{test}", "--save", "c.pt"], "must end in .json or .safetensors"),
        (["--fit", "{val}", "--apply", "{test}", "--by", "age"], "no column 'age' to group by"),
        (["--fit", "none.npz", "--apply", "{test}"], "does not exist"),
    ],
)
def test_bad_requests_get_one_line(files, capsys, words, message):
    given = [word.format(val=files[0], test=files[1]) for word in words]
    assert main(["calibrate", *given]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_samples_fitted_and_judged_on_are_noticed(files, tmp_path, capsys):
    both = tmp_path / "both.parquet"
    Predictions.load(files[0]).take(np.arange(100)).save(both)
    assert main(["calibrate", "--fit", files[0], "--apply", str(both), "--methods", "temperature"]) == 0
    assert "100 of 100 applied samples have the very outputs of a fitted one" in capsys.readouterr().out


def test_rounded_outputs_that_meet_by_chance_are_no_shared_samples(files, tmp_path, capsys):
    rounded = []
    for k, file in enumerate(files):
        p = Predictions.load(file)
        probs = p.probabilities()[:, 0].numpy().round(2)
        Predictions.from_probs(probs, (p.labels != 0).long(), split=p.split).save(tmp_path / f"{k}.csv")
        rounded.append(str(tmp_path / f"{k}.csv"))
    assert main(["calibrate", "--fit", rounded[0], "--apply", rounded[1], "--methods", "temperature"]) == 0
    assert "very outputs" not in capsys.readouterr().out
