"""mcp: worked values, top-1 files, and where float32 runs out of numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import confide
from confide.trust import fit

GOLDEN = Path(__file__).parents[1] / "golden"


def test_worked_values():
    first, third = (np.load(GOLDEN / f"inputs_{name}.npz") for name in "AC")
    row = confide.Predictions(first["logits"], first["labels"])
    assert float(fit("mcp")(row)[0]) == pytest.approx(0.686678, abs=1e-6)
    predictions = confide.Predictions(third["logits"], third["labels"])
    area = roc_auc_score(predictions.facts.correct.numpy(), fit("mcp")(predictions).numpy())
    assert area == pytest.approx(0.736516, abs=1e-6)


def test_top_1_files_know_it():
    predictions = confide.Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6])
    assert torch.equal(fit("mcp")(predictions), torch.tensor([0.9, 0.6], dtype=torch.float64))


def test_confidences_that_round_to_one_stay_in_order():
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]])
    values = fit("mcp")(confide.Predictions(logits, [0, 0, 0]))
    assert values[0] < values[1] < values[2]
