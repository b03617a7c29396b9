"""ensemble_temperature: the released code's answers, exact weights, a mixture recovered."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.checks import InputError


@pytest.mark.parametrize(("vector", "inputs", "atol"), [("ets", "inputs_D", 2e-4), ("ets_interior", "inputs_D2", 5e-4)])
def test_golden_vector(golden, vector, inputs, atol):
    expected, data = golden(vector), golden(inputs)
    val = Predictions(data["val_logits"], data["val_labels"], split="val")
    test = Predictions(data["test_logits"], data["test_labels"], split="test")
    calibrator = calibrators.fit("ensemble_temperature", val)
    np.testing.assert_allclose(np.exp(calibrator(test).logits.numpy()), expected["test_probs_mse"], rtol=0, atol=atol)
    onehot = np.eye(10)[data["val_labels"]]
    objective = ((np.exp(calibrator(val).logits.numpy()) - onehot) ** 2).mean()
    assert objective == pytest.approx(float(expected["objective_mse"]), abs=1e-7)
    likely = calibrators.fit("ensemble_temperature", val, criterion="nll")
    assert likely.temperature == pytest.approx(float(expected["T_ce"][0]), rel=1e-3)
    np.testing.assert_allclose(likely.weights.numpy(), expected["w_ce"], atol=1e-3)


def test_recovers_the_mixture_that_made_the_labels(made):
    logits, _ = made(40000, 5, seed=0, spread=3.0)
    truth = 0.7 * torch.softmax(logits, dim=1) + 0.3 / 5
    labels = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    calibrator = calibrators.fit("ensemble_temperature", Predictions(logits, labels), criterion="nll")
    after = calibrator(Predictions(logits, labels)).logits.exp()
    assert float((after - truth).abs().mean()) < 0.01


def test_weights_beat_every_other_point_of_the_simplex(golden):
    data = golden("inputs_D2")
    val = Predictions(data["val_logits"], data["val_labels"])
    calibrator = calibrators.fit("ensemble_temperature", val)
    parts = torch.stack(
        [
            torch.softmax(val.logits / calibrator.temperature, 1),
            torch.softmax(val.logits, 1),
            torch.full((800, 10), 0.1),
        ]
    )
    onehot = torch.nn.functional.one_hot(val.labels, 10)
    loss = lambda w: float(((torch.einsum("k,kij->ij", w, parts) - onehot) ** 2).mean())  # noqa: E731
    others = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((200,))
    assert all(loss(calibrator.weights) <= loss(w) + 1e-12 for w in others)


def test_a_bound_is_said_and_bad_bounds_are_refused(made):
    logits, labels = made(2000, 4, seed=0)
    hot = calibrators.fit("ensemble_temperature", Predictions(logits * 100, labels))
    assert any("stopped at its bound 5" in note for note in hot.notes)
    with pytest.raises(InputError, match="bounds must be two temperatures"):
        calibrators.fit("ensemble_temperature", Predictions(logits, labels), bounds=(2.0, 1.0))


def test_the_mixture_is_never_less_likely_than_its_own_temperature(made):
    for seed in range(6):
        logits, labels = made(60, 8, seed=seed)
        val = Predictions(4 * logits, labels, split="val")
        mixture = calibrators.fit("ensemble_temperature", val)
        alone = Predictions(val.logits / mixture.temperature, labels)
        assert float(mixture(val).facts.need("nll").mean()) <= float(alone.facts.need("nll").mean()) + 1e-9
