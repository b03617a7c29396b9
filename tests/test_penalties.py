"""Worked numbers of the penalties, and that the losses of the same name are cross-entropy plus them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from confide import losses, penalties
from confide.checks import InputError


@pytest.fixture(scope="module")
def batch():
    with np.load(Path(__file__).parents[0] / "golden" / "inputs_A.npz", allow_pickle=False) as file:
        return torch.from_numpy(file["logits"]), torch.from_numpy(file["labels"])


@pytest.mark.parametrize(("margin", "value"), [(6.0, 0.0207272), (2.0, 1.1285548), (10.0, 0.0)])
def test_the_margin_penalty_of_known_logits(batch, margin, value):
    assert penalties.mbls(*batch, margin=margin).item() == pytest.approx(value, abs=5e-8)


def test_the_class_mean_gap_of_known_logits(batch):
    assert penalties.mdca(*batch).item() == pytest.approx(0.0233357, abs=5e-8)


@pytest.mark.parametrize("word", ["mmce", "mmce_weighted", "kde_xe", "mdca"])
def test_the_loss_is_cross_entropy_plus_weight_times_the_penalty(batch, word):
    value = losses.create(word, weight=0.7)(*batch)
    wanted = functional.cross_entropy(*batch) + 0.7 * getattr(penalties, word)(*batch)
    torch.testing.assert_close(value, wanted)


def test_the_two_rules_for_the_bandwidth_choose_differently(batch):
    # Known for these logits: 0.2 by the plain likelihood, 0.1 when it is divided by the bandwidth once more.
    for form, bandwidth in (("paper", 0.2), ("original", 0.1)):
        chosen, given = penalties.kde_xe(*batch, form=form), penalties.kde_xe(*batch, bandwidth=bandwidth)
        torch.testing.assert_close(chosen, given)


@pytest.mark.parametrize("word", penalties.PENALTIES.names())
def test_a_penalty_takes_one_true_class_a_sample(batch, word):
    logits, labels = batch
    with pytest.raises(InputError):
        getattr(penalties, word)(logits, functional.one_hot(labels, logits.shape[1]).float())
