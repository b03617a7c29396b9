"""metaacc: the released code's answer on its recorded split, targets out of reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import calibrators
from confide.checks import InputError


def test_golden_vector(val, test, golden):
    expected = golden("metaacc")
    rows, target = expected["split_idx_into_val"].tolist(), float(expected["target_acc"])
    calibrator = calibrators.fit("metaacc", val, rows=rows, target=target)
    assert calibrator.threshold == pytest.approx(float(expected["threshold"]), rel=1e-9)
    assert calibrator.temperature == pytest.approx(float(expected["temperature"]), rel=1e-4)
    probs = torch.softmax(calibrator(test).logits, dim=1).numpy()
    np.testing.assert_allclose(probs, expected["test_probs"], rtol=1e-4, atol=1e-5)


def test_a_higher_target_answers_fewer(val):
    low, high = (calibrators.fit("metaacc", val, target=t).threshold for t in (0.7, 0.9))
    assert high < low


def test_a_target_out_of_reach_is_refused(val):
    with pytest.raises(InputError, match="target must lie between the accuracies the validation samples reach"):
        calibrators.fit("metaacc", val, target=0.01)
