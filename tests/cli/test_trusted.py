"""`confide predict --trust`: the column trust of a saved predictor, with the model's own or given features."""

import numpy as np
import pytest
import torch

import confide
from confide.cli.main import main
from confide.core.records import Split
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
