"""Monte-Carlo dropout against ConfidNet's formula and the predictive distribution."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import confide
from confide.checks import InputError
from confide.trust import fit

VECTOR = np.load(Path(__file__).parents[1] / "golden" / "mc_dropout.npz")
MEMBERS = VECTOR["logit_samples"]
PREDICTIONS = confide.Predictions(MEMBERS.mean(axis=0), VECTOR["confidnet_pred"])


def test_golden_vectors():
    logits, probs = fit("mc_dropout"), fit("mc_dropout", average="probs")
    assert_allclose(logits(PREDICTIONS, MEMBERS).numpy(), VECTOR["confidnet_confidence"], rtol=1e-9, atol=1e-12)
    assert_allclose(probs(PREDICTIONS, MEMBERS).numpy(), VECTOR["mean_prob_neg_entropy"], rtol=1e-9, atol=1e-12)
    assert (PREDICTIONS.facts.prediction.numpy() == VECTOR["confidnet_pred"]).all()


def test_members_of_another_shape_are_one_clear_line():
    with pytest.raises(InputError, match="must be s x 30 x 6"):
        fit("mc_dropout")(PREDICTIONS, MEMBERS[:, :, :5])
    with pytest.raises(InputError, match="needs the members' logits"):
        fit("mc_dropout")(PREDICTIONS)


def test_half_precision_and_nan():
    members = torch.randn(5, 40, 6, generator=torch.Generator().manual_seed(0)).to(torch.float16)
    predictions = confide.Predictions(members[0], torch.zeros(40, dtype=torch.int64))
    exact = fit("mc_dropout")(predictions, members.double())
    torch.testing.assert_close(fit("mc_dropout")(predictions, members).double(), exact, rtol=1e-5, atol=1e-6)
    votes = fit("ensemble", measure="votes")(predictions, members)
    torch.testing.assert_close(votes * 5, (votes * 5).round())
    members[2, 11, 3] = float("nan")
    with pytest.raises(InputError, match="must be finite, got nan at sample 11 of 40"):
        fit("mc_dropout")(predictions, members)
