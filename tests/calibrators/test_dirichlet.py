"""dirichlet: the released code's answers, the map that made the data, the default pull."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators


@pytest.mark.parametrize(
    ("vector", "options"),
    [
        ("dirichlet_full_l0.01_mu0.01", {"reg_lambda": 0.01, "reg_mu": 0.01}),
        ("dirichlet_full_l0.001_muNone", {"reg_lambda": 0.001}),
    ],
)
def test_golden_vector(golden, vector, options):
    data, expected = golden("inputs_D"), golden(vector)
    kept, kept_test = data["val_labels"] < 4, data["test_labels"] < 4
    val = Predictions(data["val_logits"][kept][:, :4], data["val_labels"][kept], split="val")
    test = Predictions(data["test_logits"][kept_test][:, :4], data["test_labels"][kept_test], split="test")
    calibrator = calibrators.fit("dirichlet", val, **options)
    np.testing.assert_allclose(np.exp(calibrator(test).logits.numpy()), expected["test_probs"], rtol=1e-4, atol=1e-5)
    weights = torch.cat([calibrator.weights, calibrator.bias[:, None]], dim=1)
    np.testing.assert_allclose((weights - weights[-1]).numpy(), expected["weights"], rtol=1e-4, atol=1e-5)


def test_recovers_the_map_that_made_the_data(made):
    weights = torch.tensor([[1.5, 0.2, 0.0], [0.0, 0.7, -0.3], [0.1, 0.0, 1.0]]).double()
    bias = torch.tensor([0.4, -0.1, -0.3]).double()
    logits, _ = made(60000, 3, seed=5)
    log_probs = torch.log_softmax(logits, dim=1)
    truth = torch.softmax(log_probs @ weights.T + bias, dim=1)
    labels = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(6)).squeeze(1)
    calibrator = calibrators.fit("dirichlet", Predictions(logits, labels), reg_lambda=0.0)
    found = torch.softmax(log_probs @ calibrator.weights.T + calibrator.bias, dim=1)
    assert float((found - truth).abs().mean()) < 0.005


def test_the_default_pull_treats_all_classes_alike(made):
    logits, labels = made(400, 5, seed=7)
    order = torch.tensor([3, 0, 4, 1, 2])
    plain = calibrators.fit("dirichlet", Predictions(logits, labels))
    turned = calibrators.fit("dirichlet", Predictions(logits[:, order], torch.argsort(order)[labels]))
    torch.testing.assert_close(turned.weights, plain.weights[order][:, order], atol=1e-6, rtol=1e-5)


def test_a_strong_pull_leaves_scaling_by_class(made):
    logits, labels = made(400, 4, seed=8)
    strong = calibrators.fit("dirichlet", Predictions(logits, labels), reg_lambda=1e6, reg_mu=1e6, reference_row=False)
    off = strong.weights - torch.diag(torch.diag(strong.weights))
    assert float(off.abs().max()) < 1e-4
    assert float(strong.bias.abs().max()) < 1e-4


def test_fewer_samples_than_classes_stay_sane(made):
    logits, _ = made(4, 10, seed=0)
    before = Predictions(logits, torch.tensor([0, 1, 2, 3]))
    calibrator = calibrators.fit("dirichlet", before)
    assert any("fewer than the 10 classes" in note for note in calibrator.notes)
    assert torch.isfinite(calibrator(before).logits).all()


def test_a_map_that_predicts_worse_than_one_temperature_says_so(made):
    def note(n, c):
        logits, labels = made(n, c, seed=0)
        notes = calibrators.fit("dirichlet", Predictions(8 * logits, labels)).notes
        return next((note for note in notes if note.startswith("held out")), None)

    assert re.match(r"held out, its samples have an NLL of .*, with one temperature [12]\.\d+: ", note(100, 10))
    assert note(1000, 5) is None


@pytest.mark.parametrize("odir", [True, False])
def test_float32_passes_reach_the_minimum_of_loss_and_pull(made, monkeypatch, odir):
    logits, labels = made(1500, 40, seed=9)
    pull = {"reg_lambda": 0.01, "reference_row": False, **({"reg_mu": 0.01} if odir else {})}
    wide = calibrators.fit("dirichlet", Predictions(logits, labels), **pull)
    monkeypatch.setattr("confide.calibrators.linear_maps.WIDE_WORK", 0)
    narrow = calibrators.fit("dirichlet", Predictions(logits.float(), labels), **pull)
    log_probs = torch.log_softmax(logits, dim=1)

    def objective(calibrator):
        loss = torch.nn.functional.cross_entropy(log_probs @ calibrator.weights.T + calibrator.bias, labels)
        square = (calibrator.weights**2).sum() - (calibrator.weights.diagonal() ** 2).sum() * odir
        return float(loss + 0.01 * (square + (calibrator.bias**2).sum()))

    assert objective(narrow) == pytest.approx(objective(wide), abs=1e-6)
    # The row added to all rows is the one that makes the pull smallest.
    shared = wide.weights - torch.diag(wide.weights.diagonal()) if odir else wide.weights
    assert float(shared.sum(dim=0).abs().max()) < 1e-9
