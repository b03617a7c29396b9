"""Class-balanced weights, and what they do to the decision."""

import torch

from confide.losses.reweighting import class_balance_weights
from confide.trust import fit


def test_balanced_weights():
    # beta = 0.5, counts 1 and 2: 0.5 / 0.5 = 1 and 0.5 / 0.75 = 2/3; rescaled to sum 2: 1.2 and 0.8
    weights = class_balance_weights(torch.tensor([1, 2]), 0.5)
    torch.testing.assert_close(weights, torch.tensor([1.2, 0.8], dtype=torch.float64))
    torch.testing.assert_close(class_balance_weights(torch.tensor([3, 900]), 0.0), torch.ones(2, dtype=torch.float64))


def test_balancing_doubts_more(hidden_errors):
    val, features = hidden_errors(600)
    plain, balanced = (
        fit("class_balanced", val, features, epochs=30, learning_rate=2e-2, beta=b) for b in (0.0, 0.9999)
    )
    assert float((balanced(val, features) > 0).float().mean()) < float((plain(val, features) > 0).float().mean())
