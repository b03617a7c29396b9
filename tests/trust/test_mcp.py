"""mcp where float32 runs out of numbers."""

import torch

import confide
from confide.trust import fit


def test_confidences_that_round_to_one_stay_in_order():
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]])
    values = fit("mcp")(confide.Predictions(logits, [0, 0, 0]))
    assert values[0] < values[1] < values[2]
