"""mcp, entropy, margin, max_logit and energy: worked values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import confide
from confide.core.door import InputError
from confide.trust import fit

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name):
    arrays = np.load(GOLDEN / f"inputs_{name}.npz")
    return confide.Predictions(arrays["logits"], arrays["labels"])


def test_worked_values():
    row = golden("A")
    assert float(fit("energy")(row)[0]) == pytest.approx(3.648105, abs=1e-6)
    assert float(fit("energy", temperature=2.0)(row)[0]) == pytest.approx(5.249024, abs=1e-6)
    assert float(fit("max_logit")(row)[0]) == pytest.approx(3.272215, abs=1e-6)
    assert float(fit("mcp")(row)[0]) == pytest.approx(0.686678, abs=1e-6)


def test_worked_ranking_of_errors():
    predictions = golden("C")
    correct = predictions.facts.correct.numpy()
    for word, area in (("mcp", 0.736516), ("max_logit", 0.682137), ("energy", 0.650655)):
        assert roc_auc_score(correct, fit(word)(predictions).numpy()) == pytest.approx(area, abs=1e-6)


def test_probabilities_of_a_known_row():
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
    # 0.7 log 0.7 + 0.2 log 0.2 + 0.1 log 0.1 = -0.249672 - 0.321888 - 0.230259
    assert float(fit("entropy")(predictions)) == pytest.approx(-0.801819, abs=1e-6)
    assert float(fit("margin")(predictions)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("word", ["energy", "max_logit"])
def test_a_lost_constant_is_refused(word):
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
    with pytest.raises(InputError, match="needs logits"):
        fit(word)(predictions)


def test_energy_lies_between_max_logit_and_max_logit_plus_log_classes():
    predictions = golden("C")
    energy, largest = fit("energy")(predictions), fit("max_logit")(predictions)
    assert (energy >= largest).all()
    assert (energy <= largest + np.log(10) + 1e-12).all()


def test_top_1_files_know_only_mcp():
    predictions = confide.Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6])
    assert torch.equal(fit("mcp")(predictions), torch.tensor([0.9, 0.6], dtype=torch.float64))
    with pytest.raises(InputError, match="top-1"):
        fit("entropy")(predictions)
