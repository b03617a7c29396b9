"""vector: the optimum, the map that made the data, classes without samples."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch.nn import functional

from confide import Predictions, calibrators


def test_worked_number(val, test):
    calibrator = calibrators.fit("vector", val)
    assert float(calibrator(val).facts.need("nll").mean()) == pytest.approx(1.105896, abs=1e-6)
    assert float(calibrator(test).facts.need("nll").mean()) == pytest.approx(1.069801, abs=1e-6)


def test_the_slope_is_below_1e_8(val):
    calibrator = calibrators.fit("vector", val)
    weights, bias = calibrator.weights.clone().requires_grad_(), calibrator.bias.clone().requires_grad_()
    functional.cross_entropy(val.logits * weights + bias, val.labels).backward()
    assert float(torch.cat([weights.grad, bias.grad]).abs().max()) < 1e-8


def test_recovers_the_map_that_made_the_data(made):
    logits, labels = made(50000, 4, seed=2)
    weights, bias = torch.tensor([0.5, 1.0, 2.0, 1.5]).double(), torch.tensor([0.5, -0.5, 0.2, -0.2]).double()
    calibrator = calibrators.fit("vector", Predictions((logits - bias) / weights, labels))
    torch.testing.assert_close(calibrator.weights, weights, atol=0.06, rtol=0)
    torch.testing.assert_close(calibrator.bias, bias, atol=0.06, rtol=0)


def test_float32_at_size_gives_the_answer_of_float64(made, monkeypatch):
    logits, labels = made(3000, 30, seed=3)
    wide = calibrators.fit("vector", Predictions(logits, labels))
    monkeypatch.setattr(import_module("confide.calibrators.linear_maps"), "VECTOR_FLOAT64_ELEMENTS", 0)
    narrow = calibrators.fit("vector", Predictions(logits.float(), labels))
    torch.testing.assert_close(narrow.weights, wide.weights, atol=2e-3, rtol=0)


def test_a_class_without_samples_keeps_its_temperature_scaled_logit(made):
    logits, labels = made(2000, 4, seed=1)
    kept = labels != 3
    before = Predictions(logits[kept], labels[kept])
    calibrator = calibrators.fit("vector", before)
    plain = calibrators.fit("temperature", before)
    assert calibrator.weights[3].item() == pytest.approx(1 / plain.temperature)
    assert any("keep their temperature-scaled logit" in note for note in calibrator.notes)


def test_few_samples_a_class_converge_in_float32(made, monkeypatch):
    logits, labels = made(1500, 300, seed=4)
    wide = calibrators.fit("vector", Predictions(logits, labels))
    monkeypatch.setattr(import_module("confide.calibrators.linear_maps"), "VECTOR_FLOAT64_ELEMENTS", 0)
    narrow = calibrators.fit("vector", Predictions(logits.float(), labels))
    assert not any("stopped at its last iteration" in note for note in wide.notes + narrow.notes)
    losses = [float(c(Predictions(logits, labels)).facts.need("nll").mean()) for c in (wide, narrow)]
    # Classes told apart to 1 - p = 1e-6 end there in float32: 0.02 nats of all 1500 samples together.
    assert losses[1] == pytest.approx(losses[0], abs=3e-5)


def test_classes_told_apart_perfectly_are_noted(made):
    logits, labels = made(600, 4, seed=6)
    logits[:, 3] = torch.where(labels == 3, 6.0, -6.0) + 0.1 * logits[:, 3]
    before = Predictions(logits, labels)
    calibrator = calibrators.fit("vector", before)
    assert any("1 of 4 classes are told apart perfectly" in note for note in calibrator.notes)
    assert float(calibrator(before).facts.p_true[labels == 3].min()) > 0.999
