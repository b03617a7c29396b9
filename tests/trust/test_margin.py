"""Margin of a known row."""

import pytest

import confide
from confide.trust import fit


def test_probabilities_of_a_known_row():
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1], [0.2, 0.4, 0.4]], [0, 1])
    assert fit("margin")(predictions).tolist() == pytest.approx([0.5, 0.0], abs=1e-6)
