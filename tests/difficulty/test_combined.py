"""`combined`: four signs without a label, and what they must tell."""

import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError


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
