"""Ensemble agreement on members whose answers are known."""

import math

import pytest
import torch

import confide
from confide.trust import fit

# Two members: one says (3/4, 1/4), the other (1/4, 3/4); then both say (3/4, 1/4).
PROBS = torch.tensor([[[0.75, 0.25], [0.75, 0.25]], [[0.25, 0.75], [0.75, 0.25]]], dtype=torch.float64)
PREDICTIONS = confide.Predictions(PROBS[0].log(), [0, 0])


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("predicted_class", [0.5, 0.75]),
        ("votes", [0.5, 1.0]),
        # H(1/2, 1/2) - H(3/4, 1/4) = 0.693147 - 0.562335
        ("mutual_information", [-(math.log(2) - 0.5623351446), 0.0]),
    ],
)
def test_agreement(measure, expected):
    values = fit("ensemble", measure=measure)(PREDICTIONS, PROBS.log())
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
