"""beta: the released code's answers, the map that made the data, classes that cannot be fitted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators.probability_maps import beta_columns
from confide.numerics.logistic import PooledPoints, logistic_regressions


def of_the_top_class(predictions):
    facts = predictions.facts
    return Predictions.from_probs(facts.confidence, facts.correct.long())


@pytest.mark.parametrize("form", ["abm", "am", "ab"])
def test_golden_vector(val, test, golden, form):
    calibrator = calibrators.fit("beta", of_the_top_class(val), form=form)
    probs = calibrator(of_the_top_class(test)).logits.exp()[:, 1].numpy()
    np.testing.assert_allclose(probs, golden("beta")[f"{form}_test"], rtol=2e-3, atol=1e-3)


def test_worked_optimum(val):
    calibrator = calibrators.fit("beta", of_the_top_class(val))
    assert calibrator.a[1].item() == pytest.approx(0.31367, abs=1e-5)
    assert calibrator.b[1].item() == pytest.approx(1.38877, abs=1e-5)
    assert calibrator.intercept[1].item() == pytest.approx(-1.21570, abs=1e-5)


def test_recovers_the_map_that_made_the_data():
    probs = torch.rand(60000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = torch.sigmoid(0.5 * probs.log() - 2.0 * torch.log1p(-probs) - 0.3)
    hits = torch.bernoulli(truth, generator=torch.Generator().manual_seed(1)).long()
    calibrator = calibrators.fit("beta", Predictions.from_probs(probs, hits))
    assert calibrator.a[1].item() == pytest.approx(0.5, abs=0.05)
    assert calibrator.b[1].item() == pytest.approx(2.0, abs=0.1)
    assert calibrator.intercept[1].item() == pytest.approx(-0.3, abs=0.1)


def test_a_map_never_turns_the_order_round():
    # The more likely it was said, the less often it happened: both slopes would be negative.
    probs = torch.linspace(0.05, 0.95, 400, dtype=torch.float64)
    calibrator = calibrators.fit("beta", Predictions.from_probs(probs, (torch.arange(400) % 400 < 200).long()))
    assert float(calibrator.a.min()) >= 0
    assert float(calibrator.b.min()) >= 0


def test_a_class_without_samples_keeps_its_probabilities(made):
    logits, labels = made(500, 3, seed=2)
    calibrator = calibrators.fit("beta", Predictions(logits[labels != 2], labels[labels != 2]))
    assert (calibrator.a[2].item(), calibrator.b[2].item(), calibrator.intercept[2].item()) == (1.0, 1.0, 0.0)


def test_certain_rows_stay_finite(made):
    logits, labels = made(500, 3, seed=3)
    extreme = Predictions(torch.tensor([[1e5, 0.0, -1e5], [0.0, 0.0, 0.0]]), torch.tensor([0, 1]))
    assert torch.isfinite(calibrators.fit("beta", Predictions(logits, labels))(extreme).logits).all()


def test_pooled_points_give_the_map_of_all_points():
    random = np.random.default_rng(0)
    odds = random.normal(-2.0, 2.0, (2, 9000))
    hits = random.random((2, 9000)) < 1 / (1 + np.exp(-0.6 * odds - 0.4))
    few, columns = PooledPoints.of(odds), lambda at: beta_columns(at, "abm")
    sums = np.stack([(hits * column).sum(axis=1) for column in columns(odds)], axis=1)
    assert few.at.shape[1] < 400
    pooled = logistic_regressions(columns(few.at), few.counts, sums)
    np.testing.assert_allclose(pooled, logistic_regressions(columns(odds), None, sums), rtol=1e-5)
