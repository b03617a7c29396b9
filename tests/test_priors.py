"""Class shares: a correction by Bayes' formula, and fits and metrics of samples that were drawn by class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, calibrators
from confide.checks import InputError

PRIOR, BALANCED = np.array([0.85, 0.12, 0.03]), np.full(3, 1 / 3)


def posterior(x: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Of classes at -1, 0 and 1 with standard deviation 0.6, exactly."""
    joint = prior * np.exp(-((x[:, None] - np.array([-1.0, 0.0, 1.0])) ** 2) / (2 * 0.36))
    return joint / joint.sum(axis=1, keepdims=True)


def drawn(n: int, prior: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=prior)
    return labels - 1 + 0.6 * rng.normal(size=n), labels


def test_a_correction_is_bayes_formula():
    x, labels = drawn(500, PRIOR, seed=0)
    wanted = posterior(x, PRIOR)
    of_probs = Predictions.from_probs(posterior(x, BALANCED), labels)
    of_logits = Predictions(3.0 + np.log(posterior(x, BALANCED)), labels)
    for balanced in (of_probs, of_logits):
        corrected = balanced.with_prior(PRIOR, trained=[1, 1, 1])
        np.testing.assert_allclose(corrected.probabilities().numpy(), wanted, atol=1e-12)
        back = corrected.with_prior(BALANCED, trained=PRIOR)
        np.testing.assert_allclose(back.probabilities().numpy(), balanced.probabilities().numpy(), atol=1e-12)


def test_a_fit_on_samples_drawn_by_class_is_right_for_the_prior_and_for_another_at_use(tmp_path):
    x, labels = drawn(6000, BALANCED, seed=1)
    sharper = Predictions(2.0 * np.log(posterior(x, BALANCED)), labels, split="val")
    seen, truth = drawn(6000, PRIOR, seed=2)
    test = Predictions(2.0 * np.log(posterior(seen, BALANCED)), truth)
    best = -np.log(posterior(seen, PRIOR)[np.arange(6000), truth]).mean()
    fitted = calibrators.fit("vector", sharper, prior=PRIOR)
    assert fitted.prior == pytest.approx(PRIOR)
    nll = float(confide.metrics.nll(fitted(test)))
    assert nll < best + 0.01
    assert float(confide.metrics.nll(calibrators.fit("vector", sharper)(test))) > best + 0.1
    # Fitted for the shares it was drawn with, corrected where it is used; saved and loaded.
    calibrators.fit("vector", sharper).save(tmp_path / "calibrator.json")
    balanced = calibrators.load(tmp_path / "calibrator.json")
    assert float(confide.metrics.nll(balanced(test, prior=PRIOR))) < best + 0.01


def test_metrics_of_samples_drawn_by_class_are_those_of_the_population():
    x, labels = drawn(9000, BALANCED, seed=3)
    predictions = Predictions.from_probs(posterior(x, PRIOR), labels, class_names=("a", "b", "c"))
    evaluation = confide.evaluate(predictions, ["accuracy", "ece"], prior=dict(zip("abc", PRIOR, strict=True)))
    wide, right = posterior(*drawn(200_000, PRIOR, seed=4)[:1], PRIOR), drawn(200_000, PRIOR, seed=4)[1]
    truth = float((wide.argmax(axis=1) == right).mean())
    accuracy = evaluation.find("accuracy", group=None)
    assert accuracy.low < truth < accuracy.high
    assert evaluation.find("ece", group=None).p_value > 0.01
    assert evaluation.about.weighted_by == "class"


@pytest.mark.parametrize("prior", [[0.5, 0.5], [1.0, 0.0, 0.0], {"0": 1.0}, {"0": 1, "1": 1, "cat": 1}, [1, 1, np.nan]])
def test_shares_that_are_none_get_one_line(prior):
    predictions = Predictions(torch.eye(3), [0, 1, 2])
    with pytest.raises(InputError, match=r"^prior must "):
        confide.evaluate(predictions, prior=prior)
    with pytest.raises(InputError, match="class 2 has none"):
        predictions.take([0, 1]).weighted_by_class([1, 1, 1])
