"""Energy: worked values, bounds, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import confide
from confide.checks import InputError
from confide.trust import fit

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name):
    arrays = np.load(GOLDEN / f"inputs_{name}.npz")
    return confide.Predictions(arrays["logits"], arrays["labels"])


def test_worked_values():
    row = golden("A")
    assert float(fit("energy")(row)[0]) == pytest.approx(3.648105, abs=1e-6)
    assert float(fit("energy", temperature=2.0)(row)[0]) == pytest.approx(5.249024, abs=1e-6)


def test_worked_ranking_of_errors():
    predictions = golden("C")
    correct = predictions.facts.correct.numpy()
    assert roc_auc_score(correct, fit("energy")(predictions).numpy()) == pytest.approx(0.650655, abs=1e-6)


def test_energy_lies_between_max_logit_and_max_logit_plus_log_classes():
    predictions = golden("C")
    energy, largest = fit("energy")(predictions), fit("max_logit")(predictions)
    assert (energy >= largest).all()
    assert (energy <= largest + np.log(10) + 1e-12).all()


def test_a_lost_constant_is_refused():
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
    with pytest.raises(InputError, match="needs logits"):
        fit("energy")(predictions)


def test_half_precision_is_no_limit_of_the_temperature():
    logits = torch.tensor([[700.0, 1.0], [-3.0, -2.0]], dtype=torch.float16)
    predictions = confide.Predictions(logits, torch.tensor([0, 1]))
    for temperature in (0.01, 2.0, 100.0):
        expected = temperature * torch.logsumexp(logits.double() / temperature, dim=1)
        found = fit("energy", temperature=temperature)(predictions)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
