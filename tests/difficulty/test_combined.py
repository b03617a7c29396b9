"""`combined`: four signs without a label, and what they must tell."""

import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError
from confide.difficulty.combined import _log_posterior


@pytest.fixture(scope="module")
def fitted():
    draw = np.random.default_rng(0)
    labels = np.arange(400) % 4
    rows = 4 * np.eye(4, 6)[labels] + draw.normal(size=(400, 6))
    return rows, labels, difficulty.fit("combined", rows, labels)


def test_labels_of_the_scored_samples_do_not_matter(fitted):
    rows, labels, model = fitted
    plain = model.score(rows).values
    for others in (labels, np.zeros_like(labels), "predicted", "min"):
        np.testing.assert_array_equal(model.score(rows, others).values, plain)
    assert not model.uses_labels


def test_fitted_samples_and_new_ones_are_measured_alike(fitted):
    """A fitted sample has no vote on itself: else new samples would look harder than fitted ones of the same kind."""
    rows, labels, model = fitted
    draw = np.random.default_rng(1)
    new = 4 * np.eye(4, 6)[labels] + draw.normal(size=(400, 6))
    gap = model.score(new).values.mean() - model.score(rows).values.mean()
    assert abs(gap) < 0.05
    assert model.score(rows).values.mean() == pytest.approx(0.5, abs=0.05)


def test_between_two_classes_and_far_from_all_is_hard(fitted):
    rows, _, model = fitted
    between, far = 2 * (np.eye(4, 6)[0] + np.eye(4, 6)[1]), np.full(6, 60.0)
    usual = np.quantile(model.score(rows).values, 0.9)
    assert (model.score(np.stack([between, far])).values > usual).all()


def test_one_class_says_nothing():
    with pytest.raises(InputError, match="two classes or more, got 1"):
        difficulty.fit("combined", np.eye(4), np.zeros(4, dtype=int))


def test_two_classes_are_enough_and_the_opinion_is_that_of_bayes_rule():
    draws = np.random.default_rng(0)
    labels = np.arange(80) % 4 // 3  # 60 of one class, 20 of the other
    rows = 3 * np.eye(2, 4)[labels] + draws.normal(size=(80, 4))
    fitted = difficulty.fit("combined", rows, labels, shrinkage=0.0)
    between, sure = fitted.score(np.array([[1.5, 1.5, 0, 0], [4.0, -1.0, 0, 0]])).values
    assert between > sure
    scaled, _ = _log_posterior(fitted.model.gaussians, rows)
    own = [rows[labels == k] for k in (0, 1)]
    precision = np.linalg.inv(sum(len(part) / 80 * np.cov(part.T, bias=True) for part in own))
    away = [rows - part.mean(axis=0) for part in own]
    first, second = (
        np.log(len(p) / 80) - ((d @ precision) * d).sum(axis=1) / 2 for p, d in zip(own, away, strict=True)
    )
    assert np.corrcoef(scaled[:, 0] - scaled[:, 1], first - second)[0, 1] > 0.9999
