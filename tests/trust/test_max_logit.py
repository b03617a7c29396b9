"""Largest logit: worked values, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import confide
from confide.checks import InputError
from confide.trust import fit

GOLDEN = Path(__file__).parents[1] / "golden"


def test_worked_values():
    first, third = (np.load(GOLDEN / f"inputs_{name}.npz") for name in "AC")
    row = confide.Predictions(first["logits"], first["labels"])
    assert float(fit("max_logit")(row)[0]) == pytest.approx(3.272215, abs=1e-6)
    predictions = confide.Predictions(third["logits"], third["labels"])
    area = roc_auc_score(predictions.facts.correct.numpy(), fit("max_logit")(predictions).numpy())
    assert area == pytest.approx(0.682137, abs=1e-6)


def test_a_lost_constant_is_refused():
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
    with pytest.raises(InputError, match="needs logits"):
        fit("max_logit")(predictions)
