"""The door of the calibrators: what it refuses, what it notes, what it writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.checks import InputError, OptionError


def test_a_split_called_test_is_refused(test):
    with pytest.raises(InputError, match="must not be fitted on the test split; pass the predictions on 'val'"):
        calibrators.fit("temperature", test)


def test_a_split_without_a_name_is_accepted(made):
    calibrators.fit("temperature", Predictions(*made(200, 3, seed=0)))


def test_unknown_words_and_options_get_the_nearest_one(val):
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        calibrators.fit("temprature", val)
    with pytest.raises(OptionError, match="did you mean 'search'"):
        calibrators.fit("temperature", val, serach="grid")


def test_bad_input_gets_one_line():
    with pytest.raises(InputError, match="is fitted on Predictions, got Tensor"):
        calibrators.fit("temperature", torch.zeros(3, 2))
    with pytest.raises(InputError, match="needs at least one prediction"):
        calibrators.fit("temperature", Predictions(torch.zeros(0, 2), torch.zeros(0)))
    with pytest.raises(InputError, match="logits must be finite, got nan at sample 1 of 2"):
        calibrators.fit("temperature", Predictions(torch.tensor([[0.0, 1], [torch.nan, 0]]), torch.tensor([0, 1])))
    infinite = Predictions(torch.tensor([[0.0, 1], [-torch.inf, 0]]).repeat(3000, 1), torch.zeros(6000))
    for options in ({}, {"search": "grid"}):
        with pytest.raises(InputError, match="logits must be finite, got -inf at sample 1 of 6000"):
            calibrators.fit("temperature", infinite, **options)
    with pytest.raises(InputError, match="logits must be finite, got -inf at sample 1 of 6000"):
        calibrators.fit("beta", infinite)
    with pytest.raises(InputError, match="'vector' needs all probabilities"):
        calibrators.fit("vector", Predictions.from_top1([0, 1], [0, 1], [0.5, 0.7]))


def test_the_classes_must_be_those_of_the_fit(val):
    with pytest.raises(InputError, match="was fitted for 10 classes, got predictions of 3"):
        calibrators.fit("temperature", val)(Predictions(torch.zeros(2, 3), torch.zeros(2)))


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_saved_calibrator_gives_the_same_numbers(val, test, tmp_path, suffix):
    calibrator = calibrators.fit("temperature", val)
    calibrator.save(tmp_path / f"calibrator{suffix}")
    again = calibrators.load(tmp_path / f"calibrator{suffix}")
    assert torch.equal(again(test).logits, calibrator(test).logits)
    assert (again.word, again.num_classes, again.n, again.notes) == ("temperature", 10, 800, calibrator.notes)


def test_loading_something_else_gets_one_line(tmp_path, made):
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(InputError, match="must be a calibrator of format 'calibrator/4', got None"):
        calibrators.load(tmp_path / "other.json")
    with pytest.raises(InputError, match="no such file"):
        calibrators.load(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"must end in \.json or \.safetensors"):
        calibrators.fit("temperature", Predictions(*made(50, 3, seed=0))).save(tmp_path / "calibrator.pt")


def test_labels_ids_split_and_columns_stay(made):
    logits, labels = made(30, 3, seed=0)
    before = Predictions(logits, labels, ids=np.arange(30) + 7, split="val", columns={"site": np.arange(30) % 2})
    after = calibrators.fit("temperature", before)(before)
    assert (after.split, after.ids.tolist()) == ("val", before.ids.tolist())
    assert torch.equal(after.labels, before.labels)
    assert after.columns["site"].tolist() == before.columns["site"].tolist()


def test_probabilities_given_as_such_are_calibrated_too(made):
    probs = torch.softmax(made(2000, 4, seed=4)[0] * 2, dim=1)
    labels = made(2000, 4, seed=4)[1]
    before = Predictions.from_probs(probs, labels)
    after = calibrators.fit("temperature", before)(before)
    assert float(after.facts.need("nll").mean()) < float(before.facts.need("nll").mean()) - 0.05
    assert after.from_probabilities


def test_missing_classes_and_few_samples_are_noted(made):
    logits, _ = made(5, 8, seed=0)
    notes = calibrators.fit("temperature", Predictions(logits, torch.tensor([0, 1, 2, 0, 1]))).notes
    assert any("5 of 8 classes have no validation sample (3, 4, 5, 6, 7)" in note for note in notes)
    assert any("5 validation samples are fewer than the 8 classes" in note for note in notes)
    assert any("few for the 1 parameters" in note for note in notes)


def test_one_hot_probabilities_are_noted_and_finite():
    labels = torch.arange(60) % 3
    said = torch.where(torch.arange(60) % 5 == 0, (labels + 1) % 3, labels)
    before = Predictions.from_probs(torch.nn.functional.one_hot(said, 3).double(), labels)
    calibrator = calibrators.fit("temperature", before)
    assert any("60 of 60 validation samples hold probabilities of 0" in note for note in calibrator.notes)
    # 1/5 of the labels differ: the best answer says 0.8.
    assert float(calibrator(before).facts.confidence.mean()) == pytest.approx(0.8, abs=1e-3)
