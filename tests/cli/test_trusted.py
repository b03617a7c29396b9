"""`confide predict --trust`: the column trust of a saved predictor, with the model's own or given features."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import confide
from confide.cli.main import main
from confide.features import extract
from confide.records import Split
from confide.training import Settings, fit, penultimate, predict


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("trusted")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    images = rng.integers(0, 200, (300, 1, 8, 8))
    images[np.arange(300), 0, :, 2 * labels] += 40
    parts = {
        name: Split(images[rows].astype(np.uint8), labels[rows].astype(np.int64), np.arange(300)[rows])
        for name, rows in (("train", slice(0, 100)), ("val", slice(100, 200)), ("test", slice(200, 300)))
    }
    arrays = {
        f"{key}_{name}": getattr(one, what)
        for name, one in parts.items()
        for key, what in (("x", "inputs"), ("y", "labels"))
    }
    np.savez(root / "data.npz", **arrays)
    dataset = confide.load_dataset(root / "data.npz")
    settings = Settings(epochs=2, model_options={"width": 4, "hidden": 8}, device="cpu", batch_size=20)
    return root, dataset, fit(dataset, settings, folder=root / "run")


def test_the_column_is_what_the_predictor_says(made):
    root, dataset, model = made
    trust = confide.trust.fit(
        "combined", predict(model, dataset, "val", device="cpu"), penultimate(model, dataset, "val")
    )
    trust.save(root / "trust.json")
    out, features = root / "out.parquet", root / "features.npz"
    words = ["predict", str(root / "run"), str(root / "data.npz"), "--device", "cpu", "--out", str(out)]
    assert main([*words, "--trust", str(root / "trust.json"), "--write-features", str(features)]) == 0
    said = confide.Predictions.load(out)
    expected = trust(predict(model, dataset, "test", device="cpu"), penultimate(model, dataset, "test"))
    torch.testing.assert_close(said.trust, expected, rtol=1e-5, atol=1e-6)
    assert main([*words, "--trust", str(root / "trust.json"), "--features", str(features)]) == 0
    torch.testing.assert_close(confide.Predictions.load(out).trust, expected, rtol=1e-5, atol=1e-6)


def test_a_predictor_of_members_is_one_clear_line(made, capsys):
    root = made[0]
    confide.trust.fit("ensemble").save(root / "ensemble.json")
    words = ["predict", str(root / "run"), str(root / "data.npz"), "--device", "cpu", "--out", str(root / "o.parquet")]
    assert main([*words, "--trust", str(root / "ensemble.json")]) == 1
    assert "needs the logits of several members" in capsys.readouterr().err


@pytest.fixture(scope="module")
def informed(made):
    """A predictor with pixels as the second opinion."""
    _, dataset, model = made
    second = {split: extract("pixels", dataset, split) for split in ("train", "val", "test")}
    val = predict(model, dataset, "val", device="cpu")
    how = {"second": second["val"], "second_reference": second["train"], "oracle": "none"}
    trust = confide.trust.fit("combined", val, penultimate(model, dataset, "val"), **how)
    expected = trust(predict(model, dataset, "test", device="cpu"), penultimate(model, dataset, "test"), second["test"])
    return trust, second, expected


def applied(root, *more):
    words = ["predict", str(root / "run"), str(root / "data.npz"), "--device", "cpu", "--out", str(root / "s.parquet")]
    return main([*words, *more])


def test_a_second_opinion_is_extracted_or_read(made, informed):
    root, (trust, second, expected) = made[0], informed
    path = str(trust.save(root / "informed.json"))
    assert applied(root, "--trust", path) == 0
    torch.testing.assert_close(confide.Predictions.load(root / "s.parquet").trust, expected, rtol=1e-5, atol=1e-6)
    second["test"].save(root / "pixels.npz")
    (root / "s.parquet").unlink()
    assert applied(root, "--trust", path, "--second", str(root / "pixels.npz")) == 0
    torch.testing.assert_close(confide.Predictions.load(root / "s.parquet").trust, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("elsewhere", "64 features each by 'elsewhere', which cannot be made here: no extractor named 'elsewhere'"),
        ("timm:resnet18", "`confide score DATA --split SPLIT --features timm:resnet18 --write-features second.npz`"),
        ("cached", "by 'cached', which cannot be made here: features 'cached' need data that carries a column"),
    ],
)
def test_a_second_opinion_that_cannot_be_made_is_one_clear_line(made, informed, capsys, monkeypatch, word, message):
    monkeypatch.setitem(sys.modules, "timm", None)
    root, trust = made[0], informed[0]
    path = replace(trust, about=replace(trust.about, second_extractor=word)).save(root / "named.json")
    assert applied(root, "--trust", str(path)) == 1
    told = capsys.readouterr().err
    assert message in told
    assert "--second" in told
    assert told.count("\n") == 1


def test_a_second_opinion_nobody_asked_for_is_refused(made, capsys):
    root = made[0]
    confide.trust.fit("mcp").save(root / "mcp.json")
    assert applied(root, "--trust", str(root / "mcp.json"), "--second", str(root / "none.npz")) == 1
    assert "fitted without a second opinion; leave --second out" in capsys.readouterr().err


def test_score_writes_the_features_that_a_second_opinion_reads(made, informed, tmp_path):
    root, (trust, second, expected) = made[0], informed
    words = ["score", str(root / "data.npz"), "--split", "test", "--features", "pixels", "--no-verdicts"]
    out = ["--gallery", "none", "-o", str(tmp_path / "scores.parquet"), "--write-features", str(tmp_path / "test.npz")]
    assert main([*words, *out]) == 0
    found = confide.Features.load(tmp_path / "test.npz")
    assert (found.extractor, found.split) == ("pixels", "test")
    np.testing.assert_allclose(found.values, second["test"].values, atol=1e-3)  # in half precision
    path = str(trust.save(tmp_path / "trust.json"))
    assert applied(root, "--trust", path, "--second", str(tmp_path / "test.npz")) == 0
    torch.testing.assert_close(confide.Predictions.load(root / "s.parquet").trust, expected, rtol=0.01, atol=0.01)
