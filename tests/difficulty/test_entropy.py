import numpy as np
import pytest
import torch

from confide import Predictions, difficulty


def test_of_predictions_in_bits():
    predictions = Predictions(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    scores = difficulty.score("entropy", predictions, base=2)
    assert scores.values.tolist() == pytest.approx([2.0, 2.0, 2.0])


def test_takes_the_last_epoch(golden):
    probs, expected = golden("inputs_G")["probs"], golden("confusion_score")
    np.testing.assert_allclose(difficulty.score("entropy", probs).values, expected["s_t"][-1], rtol=1e-9)
