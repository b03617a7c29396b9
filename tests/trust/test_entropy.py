"""Negative entropy of a known row."""

import pytest

import confide
from confide.checks import InputError
from confide.trust import fit


def test_probabilities_of_a_known_row():
    predictions = confide.Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
    # 0.7 log 0.7 + 0.2 log 0.2 + 0.1 log 0.1 = -0.249672 - 0.321888 - 0.230259
    assert float(fit("entropy")(predictions)) == pytest.approx(-0.801819, abs=1e-6)


def test_top_1_files_do_not_know_it():
    with pytest.raises(InputError, match="top-1"):
        fit("entropy")(confide.Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6]))
