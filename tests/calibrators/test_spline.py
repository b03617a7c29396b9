"""spline: the released code's answer with its interpolation put right, and its spline."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators.probability_maps import fitted_spline
from confide.checks import InputError


def test_golden_vector(val, test, golden):
    expected = golden("spline")
    calibrator = calibrators.fit("spline", val)
    said = calibrator(test).logits.exp().gather(1, test.facts.prediction[:, None]).squeeze(1)
    np.testing.assert_allclose(said.numpy(), expected["test_top_correct_interp"], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(calibrator.nodes.numpy(), expected["val_scores_sorted"], rtol=1e-12)
    np.testing.assert_allclose(calibrator.levels.numpy(), expected["recalibrated_at_val"], rtol=1e-7, atol=1e-8)


def test_golden_knots(val, golden):
    expected = golden("spline")
    correct = val.facts.correct.numpy()[np.argsort(val.facts.confidence.numpy(), kind="stable")]
    heights = np.cumsum(correct - expected["val_scores_sorted"]) / 800
    found = fitted_spline(np.linspace(0, 1, 800), heights, 6)
    np.testing.assert_allclose(found(np.linspace(0, 1, 6)), expected["knot_values"], rtol=1e-7, atol=1e-8)


def test_equal_confidences_get_one_answer():
    probs = torch.tensor([0.9, 0.1]).double().repeat(40, 1)
    labels = torch.arange(40) % 4 == 0
    before = Predictions.from_probs(probs, labels.long())
    after = calibrators.fit("spline", before)(before).logits.exp()[:, 0]
    assert float(after.max() - after.min()) < 1e-12
    assert float(after[0]) == pytest.approx(0.75, abs=0.02)


def test_one_sample_is_refused():
    with pytest.raises(InputError, match="needs at least 2 predictions, got 1"):
        calibrators.fit("spline", Predictions(torch.zeros(1, 2), torch.zeros(1)))
