"""metamis: the released code's answer on its recorded split, the seed, the price."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators import meta_cal
from confide.checks import InputError


def test_golden_vector(val, test, golden):
    expected = golden("metamis")
    calibrator = calibrators.fit("metamis", val, rows=expected["split_idx_into_val"].tolist())
    assert calibrator.threshold == pytest.approx(float(expected["threshold"]), rel=1e-9)
    assert calibrator.temperature == pytest.approx(float(expected["temperature"]), rel=1e-4)
    probs = torch.softmax(calibrator(test).logits, dim=1).numpy()
    np.testing.assert_allclose(probs, expected["test_probs"], rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_threshold(val):
    thresholds = [calibrators.fit("metamis", val, seed=seed).threshold for seed in (3, 3, 4)]
    assert thresholds[0] == thresholds[1]
    assert thresholds[0] != thresholds[2]


def test_the_price_in_accuracy_is_reported(val):
    notes = calibrators.fit("metamis", val).notes
    assert any("get the uniform answer" in note for note in notes)
    assert any("accuracy there falls by" in note for note in notes)


def test_nothing_right_is_refused(made):
    logits, _ = made(50, 3, seed=0)
    with pytest.raises(InputError, match="needs at least one right prediction"):
        calibrators.fit("metamis", Predictions(logits, logits.argmin(dim=1)))
    with pytest.raises(InputError, match="rows must be indices into the 50 predictions"):
        calibrators.fit("metamis", Predictions(logits, logits.argmax(dim=1)), rows=[50])


def test_nothing_below_the_threshold_keeps_the_temperature_one():
    before = Predictions(torch.tensor([[2.0, 0.0]]).repeat(20, 1), torch.arange(20) % 2)
    calibrator = calibrators.fit("metamis", before)
    assert calibrator.temperature == 1.0
    assert any("T stays 1" in note for note in calibrator.notes)


def test_the_sample_that_set_the_threshold_stays_above_it_whatever_the_rounding(val):
    calibrator = calibrators.fit("metamis", val)
    log_probs = torch.log_softmax(val.logits, dim=1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=1)
    at = int((entropy - calibrator.threshold).abs().argmin())
    assert float(entropy[at]) == calibrator.threshold
    nudged = val.logits[[at]] + torch.linspace(0, 30, 50, dtype=torch.float64)[:, None]
    after = calibrator.calibrated(nudged)
    assert torch.equal(after, torch.zeros_like(after))


@pytest.mark.parametrize(("rows", "fits"), [([0, 5], True), ([], False), ([-1], False), ([6], False)])
def test_rows_that_set_the_threshold_are_those_of_the_predictions(rows, fits):
    pool = np.arange(6)
    if fits:
        assert meta_cal.chosen_rows(rows, pool, 3, 0, 6).tolist() == rows
    else:
        with pytest.raises(InputError, match="rows must be indices into the 6 predictions"):
            meta_cal.chosen_rows(rows, pool, 3, 0, 6)
    assert len(meta_cal.chosen_rows(None, pool, 0, 0, 6)) == 1
    assert len(meta_cal.chosen_rows(None, pool, 3, 0, 6)) == 3
    assert len(meta_cal.chosen_rows(None, np.arange(2000), 1000, 0, 2000)) == 500


def test_a_sample_at_the_threshold_gets_the_uniform_answer():
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.5, 0.0], [3.0, 0.0]], dtype=torch.float64)
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    fitted = meta_cal.tempered_below(logits, torch.tensor([0, 1, 0, 0]), entropy, float(entropy[1]), np.array([0]))
    assert fitted.notes[0] == "2 of 4 validation samples get the uniform answer"  # the threshold itself and above
    after = meta_cal.apply_meta_cal(fitted.values, logits)
    assert (after == 0).all(dim=1).tolist() == [False, True, True, False]
