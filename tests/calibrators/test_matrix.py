"""matrix: the optimum, with and without the pull, and where there is none."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from confide import Predictions, calibrators


@pytest.mark.parametrize(
    ("options", "on_val", "on_test"),
    [({}, 1.064980, 1.123206), ({"reg_lambda": 1.0, "reg_mu": 1.0}, 1.067855, 1.114871)],
)
def test_worked_numbers(val, test, options, on_val, on_test):
    calibrator = calibrators.fit("matrix", val, **options)
    assert float(calibrator(val).facts.need("nll").mean()) == pytest.approx(on_val, abs=1e-6)
    assert float(calibrator(test).facts.need("nll").mean()) == pytest.approx(on_test, abs=1e-6)


def test_the_slope_is_below_1e_8(val):
    calibrator = calibrators.fit("matrix", val)
    weights = calibrator.weights.clone().requires_grad_()
    functional.cross_entropy(val.logits @ weights.T + calibrator.bias, val.labels).backward()
    assert float(weights.grad.abs().max()) < 1e-8


def test_accuracy_and_changed_classes_are_noted(val):
    notes = calibrators.fit("matrix", val).notes
    assert any("800 validation samples are few for the 110 parameters" in note for note in notes)
    assert any("the predicted class changes on 93 of 800 validation samples" in note for note in notes)


def test_few_samples_are_pulled_towards_their_temperature(made):
    # Labels that follow softmax(z / 3): nothing but a temperature is to be found, with more numbers than samples.
    logits, labels = made(200, 12, seed=2)
    few, others = Predictions(3 * logits[:100], labels[:100]), Predictions(3 * logits[100:], labels[100:])
    plain, pulled, tempered = (
        float(calibrators.fit(word, few, **options)(others).facts.need("nll").mean())
        for word, options in (("matrix", {"reg_lambda": 0.0}), ("matrix", {}), ("temperature", {}))
    )
    assert pulled < tempered + 0.1 < plain


@pytest.mark.parametrize(("word", "options"), [("matrix", {}), ("matrix", {"reg_lambda": 0.0}), ("dirichlet", {})])
@pytest.mark.parametrize("n", [50, 300])
def test_the_order_of_classes_changes_nothing(made, word, options, n):
    logits, labels = made(n, 10, seed=n)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(n))
    turned = Predictions(logits[:, order], order.argsort()[labels], split="val")
    before, after = (
        calibrators.fit(word, each, **options)(each).facts for each in (Predictions(logits, labels), turned)
    )
    assert float((before.p_true - after.p_true).abs().max()) < 1e-9


def test_separable_data_ends_finite(made):
    logits, _ = made(40, 5, seed=0)
    before = Predictions(logits, logits.argmax(dim=1))
    after = calibrators.fit("matrix", before)(before)
    assert torch.isfinite(after.logits).all()
    assert bool(after.facts.correct.all())


def test_more_numbers_than_samples_are_noted(made):
    logits, labels = made(60, 12, seed=1)
    notes = calibrators.fit("matrix", Predictions(logits, labels), reg_lambda=0.0).notes
    assert any("the samples are told apart perfectly" in note for note in notes)
    pulled = calibrators.fit("matrix", Predictions(logits, labels), reg_lambda=1.0).notes
    assert not any("told apart" in note for note in pulled)


def test_many_classes_share_one_basis(made, monkeypatch):
    logits, labels = made(600, 6, seed=4)
    blocks = calibrators.fit("matrix", Predictions(logits, labels), reg_lambda=1.0)
    monkeypatch.setattr("confide.calibrators.linear_maps.MANY_CLASSES", 2)
    shared = calibrators.fit("matrix", Predictions(logits, labels), reg_lambda=1.0)
    torch.testing.assert_close(shared.weights, blocks.weights, atol=1e-5, rtol=0)
