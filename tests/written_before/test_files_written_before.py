"""Files written before still load: one of each kind, written by confide 0.1.0 before its modules became topics.

`files/expected.json` holds what that version computed from them, so values are compared and not only loaded. A changed
format raises its number and keeps a reader for these.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import confide
from confide import calibrators, difficulty, training, trust
from confide.evaluation import OperatingPoint, Subject, shift_grid
from confide.records import Split
from confide.store import read_manifest

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def named(prefix):
    return sorted(name for name in EXPECTED if name.startswith(prefix))


@pytest.fixture(scope="module")
def predictions():
    return confide.Predictions.load(FILES / "predictions.parquet")


@pytest.fixture(scope="module")
def features():
    return confide.Features.load(FILES / "features.npz")


@pytest.fixture
def images(monkeypatch):
    monkeypatch.chdir(FILES)
    return confide.load_dataset("images.npz")


def first(record, rows=5):
    return confide.Features(
        record.values[:rows], record.labels[:rows], record.ids[:rows], record.extractor, "val", record.options
    )


@pytest.mark.parametrize("ending", ["npz", "csv"])
def test_predictions_of_every_ending_are_the_same_samples(predictions, ending):
    other = confide.Predictions.load(FILES / f"predictions.{ending}")
    assert list(other.ids) == list(predictions.ids)
    assert torch.equal(other.labels, predictions.labels)
    np.testing.assert_allclose(torch.softmax(other.logits, 1), torch.softmax(predictions.logits, 1), **CLOSE)
    assert set(other.columns) == {"light", "difficulty"}


def test_predictions_of_probabilities_and_of_pairs():
    probabilities = confide.Predictions.load(FILES / "predictions_probs.npz")
    pairs = confide.Predictions.load(FILES / "predictions_top1.parquet")
    assert len(probabilities) == len(pairs) == 8
    assert (probabilities.split, pairs.split) == ("test", "test")
    np.testing.assert_allclose(pairs.facts.confidence, np.linspace(0.4, 0.9, 8), **CLOSE)


@pytest.mark.parametrize("name", named("calibrator_"))
def test_calibrators(predictions, name):
    calibrated = calibrators.load(FILES / name)(predictions.take(np.arange(5)))
    np.testing.assert_allclose(calibrated.logits, EXPECTED[name], **CLOSE)


@pytest.mark.parametrize("name", named("trust_"))
def test_trust_predictors(predictions, features, name):
    predictor, five = trust.load(FILES / name), predictions.take(np.arange(5))
    second = features.values[:5, :2] * 1.5 if predictor.second_dim else None
    rows = {"nothing": None, "members": None}.get(predictor.wants, first(features))
    if predictor.wants == "members":
        noise = np.random.default_rng(3).normal(size=(3, len(predictions), 3))
        rows = (predictions.logits.numpy()[None] + noise).astype(np.float32)[:, :5]
    np.testing.assert_allclose(predictor(five, rows, second), EXPECTED[name], **CLOSE)


@pytest.mark.parametrize("name", named("difficulty_"))
def test_fitted_difficulties(features, name):
    fitted = difficulty.load(FILES / name)
    np.testing.assert_allclose(fitted.score(first(features)).values, EXPECTED[name], **CLOSE)
    assert fitted.source.extractor == "pixels"


@pytest.mark.parametrize("ending", ["parquet", "npz", "csv"])
def test_scores(ending):
    scores = confide.Scores.load(FILES / f"scores.{ending}")
    np.testing.assert_allclose(scores.values[:5], EXPECTED["scores"], **CLOSE)
    assert scores.ids[0] == "s000"
    assert scores.method == ("difficulty" if ending == "csv" else "rmd")


def test_features_as_a_table_and_as_a_folder(features):
    again = confide.Features.load(FILES / "features.parquet")
    np.testing.assert_array_equal(again.values, features.values)
    assert (again.extractor, again.split, dict(again.options)) == ("pixels", "val", {"size": 2})
    folder = confide.Features.load(FILES / "features_folder")
    np.testing.assert_allclose(folder.values[:5], EXPECTED["features_folder"], **CLOSE)


def test_the_log_of_a_recorder():
    values = difficulty.score("loss", difficulty.open_log(FILES / "recorder")).values
    np.testing.assert_allclose(values, EXPECTED["recorder"], **CLOSE)


@pytest.mark.parametrize("name", named("operating_point"))
def test_operating_points(predictions, name):
    accepted = confide.apply_operating_point(OperatingPoint.load(FILES / name), predictions)
    assert accepted.int().tolist() == EXPECTED[name]


def test_an_evaluation():
    evaluation = confide.Evaluation.load(FILES / "evaluation.json")
    for metric, value in EXPECTED["evaluation.json"].items():
        assert evaluation.value(metric, group=None) == pytest.approx(value), metric


def test_a_trained_model_and_its_oracle(images):
    trained = training.Trained.load(FILES / "training")
    logits = training.predict(trained, images, "test").logits[:5]
    np.testing.assert_allclose(logits, EXPECTED["training"], rtol=1e-4, atol=1e-5)
    assert len(trained.log["epoch"]) == 2
    oracle = training.Oracle.load(FILES / "oracle")
    np.testing.assert_allclose(oracle(images)[:5], EXPECTED["oracle"], rtol=1e-4, atol=1e-5)


def test_a_stopped_training_goes_on(images, tmp_path):
    shutil.copytree(FILES / "stopped_training", tmp_path / "again")
    settings = training.Settings(
        epochs=2,
        model="small_cnn",
        model_options={"width": 2, "hidden": 4},
        device="cpu",
        batch_size=20,
    )
    trained = training.fit(images, settings, folder=tmp_path / "again")
    assert any("resumed at epoch 1" in note for note in trained.process_notes), trained.process_notes
    whole = training.Trained.load(FILES / "training")
    for name, weights in whole.model.state_dict().items():
        np.testing.assert_allclose(trained.model.state_dict()[name], weights, rtol=1e-4, atol=1e-5)


def test_cells_of_a_shift_grid_that_do_not_name_their_images_are_made_again(images, tmp_path):
    shutil.copytree(FILES / "shift", tmp_path / "shift")
    test = images.split("test")
    pictures = np.repeat(np.repeat(test.inputs[:12], 4, 2), 4, 3)

    batches = []

    def forward(images):
        batches.append(images)
        return images.float().mean(dim=2)[:, 0, :6:2] / 25, None

    grid = shift_grid(
        Split(pictures, test.labels[:12], test.ids[:12]),
        {"columns": Subject(forward=forward, identity="one")},
        words=["contrast"],
        severities=(1,),
        folder=tmp_path / "shift",
        intervals=False,
    )
    assert len(batches) > 1
    for metric, value in EXPECTED["shift"].items():
        assert grid.value(metric, group="shift=contrast/1") == pytest.approx(value), metric


def test_a_run_folder():
    run = FILES / "run"
    assert "train:cross_entropy" in read_manifest(run).stages
    evaluation = confide.Evaluation.load(run / "evaluation.json")
    accuracy = evaluation.value("accuracy", model="cross_entropy", stage="raw", group=None)
    assert accuracy == EXPECTED["run"]["accuracy"]
    predictions = confide.Predictions.load(run / "predictions" / "cross_entropy-test.parquet")
    assert float(predictions.facts.correct.double().mean()) == pytest.approx(accuracy)
    assert calibrators.load(run / "calibrators" / "cross_entropy-temperature.json").word == "temperature"
    assert trust.load(run / "trust" / "cross_entropy-mcp.json").word == "mcp"
    assert training.Trained.load(run / "models" / "cross_entropy").num_classes == 3
    assert len(confide.Scores.load(run / "scores" / "test.parquet")) == 40
