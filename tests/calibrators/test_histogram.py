"""histogram: the released codes' answers, empty bins, edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("kumar_equal_width_test", {}),
        ("kumar_equal_mass_test", {"binning": "mass"}),
        ("nncal_test", {"empty": "zero"}),
    ],
)
def test_golden_vector(val, test, golden, key, options):
    calibrator = calibrators.fit("histogram", val, **options)
    said = calibrator(test).logits.exp().gather(1, test.facts.prediction[:, None]).squeeze(1)
    np.testing.assert_allclose(said.numpy(), golden("histogram_binning")[key], rtol=1e-9, atol=1e-11)


def test_golden_edges(val, golden):
    edges = calibrators.fit("histogram", val, binning="mass").edges[1:]
    np.testing.assert_allclose(edges.numpy(), golden("histogram_binning")["kumar_equal_mass_edges"], rtol=1e-9)


def test_an_empty_bin_gives_its_midpoint_or_zero():
    confidence = torch.tensor([0.95, 0.97, 0.99, 0.92])
    before = Predictions.from_probs(confidence, torch.tensor([1, 1, 0, 1]))
    # 10 bins: only (0.9, 1] is filled, with 3 hits of 4; 0.65 falls into the empty (0.6, 0.7].
    fresh = Predictions.from_probs(torch.tensor([0.65, 0.93]).double(), torch.tensor([1, 1]))
    middle = calibrators.fit("histogram", before, bins=10)(fresh).logits.exp()[:, 1]
    torch.testing.assert_close(middle, torch.tensor([0.65, 0.75]).double())
    zero = calibrators.fit("histogram", before, bins=10, empty="zero")(fresh).logits.exp()[:, 1]
    torch.testing.assert_close(zero, torch.tensor([0.0, 0.75]).double(), atol=1e-11, rtol=0)


def test_the_rest_is_shared_in_proportion(val):
    after = calibrators.fit("histogram", val)(val).logits.exp()
    before = torch.softmax(val.logits, dim=1)
    row, lead = 5, int(val.facts.prediction[5])
    others = [k for k in range(10) if k != lead]
    torch.testing.assert_close(
        after[row, others] / after[row, others].sum(), before[row, others] / before[row, others].sum()
    )


def test_changes_of_the_argmax_are_reported(val):
    assert any("the predicted class changes on" in note for note in calibrators.fit("histogram", val).notes)
