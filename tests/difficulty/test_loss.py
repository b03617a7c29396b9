import numpy as np
import pytest
import torch

from confide import Predictions, difficulty


def test_golden_vector(golden):
    inputs, expected = golden("inputs_G"), golden("fcp_loss")
    last = difficulty.score("loss", inputs["probs"], inputs["labels"], members=(0,))
    np.testing.assert_allclose(last.values, expected["ce_loss_last_epoch_member0"], rtol=1e-9)
    every = difficulty.score("loss", inputs["probs"], inputs["labels"], epochs="all")
    np.testing.assert_allclose(every.values, expected["mean_ce"], rtol=1e-9)


def test_of_predictions_is_their_cross_entropy():
    predictions = Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    # log(1 + e^-2) = 0.126928, log(1 + e) = 1.313262
    assert difficulty.score("loss", predictions).values.tolist() == pytest.approx([0.126928, 1.313262], abs=1e-6)


def test_an_impossible_label_stays_finite():
    assert np.isfinite(difficulty.score("loss", np.array([[1.0, 0.0]]), [1]).values).all()
