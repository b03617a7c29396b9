"""Sample weights, over all metrics and calibrators: ones count as none, zeros as absent, units make no difference,
whole numbers as so many copies."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import confide
from confide import Features, Predictions, calibrators
from confide.calibrators import per_sample
from confide.checks import InputError
from confide.metrics.base import METRICS

CALIBRATOR_CASES = [
    (m.word, dict(options))
    for m in calibrators.CALIBRATORS
    for options in ({}, *(m.corners if m.word != "second_opinion" else ()))
]
METRIC_CASES = [(m.word, dict(options)) for m in METRICS for options in ({}, *m.corners)]
RNG = np.random.default_rng(5)
N = 90
WEIGHTS = RNG.integers(1, 4, N).astype(float)
WITH_ZEROS = WEIGHTS * (RNG.random(N) < 0.7)
COPIES = np.repeat(np.arange(N), WEIGHTS.astype(int))


def drawn(n: int, seed: int) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return Predictions(2 * logits, labels, split="val")


def rows(predictions: Predictions) -> Features:
    """Features that know something of the logits."""
    values = torch.tanh(predictions.logits).numpy()
    return Features(values, predictions.labels.numpy(), predictions.ids, "drawn")


def copies(predictions: Predictions) -> Predictions:
    """Every sample as often as its weight says."""
    return Predictions(predictions.logits[COPIES], predictions.labels[COPIES], split="val")


PREDICTIONS = drawn(N, seed=0)

COUNT_ROWS = {
    # What these give depends on how many samples there are, and weights do not say that: 1 / k over ranks k, bins of
    # equally many, n - 1, the noise of n samples, neighbours other than oneself.
    *("aurc", "eaurc", "risk_at_coverage", "separability_kl", "separability_bhattacharyya"),
    *("debiased_ece", "sweep_ece", "kde_ece"),
}
FIT_COUNTS_ROWS = {
    # Likewise: penalties that fall with n, Platt's targets, ranks, a new point beside n others, drawn rows, folds.
    *("dirichlet", "structured_vector", "structured_matrix", "second_opinion", "platt", "venn_abers", "spline"),
    *("metamis", "parameterised_temperature", "isotonic"),
}
NO_WEIGHTS = {"metaacc", "procal", "travelling"}


def measured(predictions: Predictions, word: str, options: dict) -> confide.Measurement:
    return getattr(confide.metrics, word)(predictions, **options)


def by_mass(options: dict) -> bool:
    return options.get("binning") == "mass"


@pytest.mark.parametrize(("word", "options"), METRIC_CASES)
def test_a_metric_of_weighted_samples(word, options):
    plain, weighted = (measured(p, word, options) for p in (PREDICTIONS, PREDICTIONS.weighted(WEIGHTS)))
    equal = measured(PREDICTIONS.weighted(np.full(N, 2.5)), word, options)
    np.testing.assert_equal(float(equal), float(plain))
    in_other_units = measured(PREDICTIONS.weighted(0.37 * WEIGHTS), word, options)
    np.testing.assert_allclose(float(in_other_units), float(weighted), rtol=1e-9, atol=1e-12)
    kept = np.flatnonzero(WITH_ZEROS)
    absent = measured(PREDICTIONS.take(kept).weighted(WITH_ZEROS[kept]), word, options)
    np.testing.assert_equal(float(measured(PREDICTIONS.weighted(WITH_ZEROS), word, options)), float(absent))
    copied = measured(copies(PREDICTIONS), word, options)
    exact = word not in COUNT_ROWS and not by_mass(options)
    if exact:
        np.testing.assert_allclose(float(weighted), float(copied), rtol=1e-9, atol=1e-12)
    if not options and word != "kde_ece":
        for other in (plain, weighted, in_other_units, absent):
            assert np.isnan(float(other)) or np.isnan(other.low) == (word == "mce")
            assert np.isnan(float(other)) or np.isnan(other.low) or other.low <= float(other) <= other.high
        np.testing.assert_equal((equal.low, equal.high), (plain.low, plain.high))
        bounds = [(m.low, m.high) for m in (in_other_units, weighted)]
        np.testing.assert_allclose(*bounds, rtol=1e-6, atol=1e-9)


FITTED_ON, SEEN = drawn(N, seed=1), drawn(40, seed=2)
TRAIN = rows(drawn(200, seed=99))


def calibrated(word: str, predictions: Predictions, options: dict) -> np.ndarray:
    needs = calibrators.CALIBRATORS.get(word).spec.wants != "nothing"
    beside = {"features": rows(predictions), "fitted": TRAIN} if needs else {}
    calibrator = calibrators.fit(word, predictions, **beside, **options)
    return calibrator(SEEN, features=rows(SEEN) if needs else None).probabilities().numpy()


@pytest.mark.parametrize(("word", "options"), CALIBRATOR_CASES)
def test_a_calibrator_fitted_on_weighted_samples(word, options, monkeypatch):
    monkeypatch.setattr(per_sample, "STEPS", 5)
    if word in NO_WEIGHTS:
        with pytest.raises(InputError, match=f"calibrator '{word}' needs samples that all count alike"):
            calibrated(word, FITTED_ON.weighted(WEIGHTS), options)
        return
    plain, equal = (calibrated(word, p, options) for p in (FITTED_ON, FITTED_ON.weighted(np.full(N, 2.5))))
    np.testing.assert_array_equal(equal, plain)
    weighted = calibrated(word, FITTED_ON.weighted(WEIGHTS), options)
    in_other_units = calibrated(word, FITTED_ON.weighted(0.37 * WEIGHTS), options)
    np.testing.assert_allclose(in_other_units, weighted, atol=1e-6)
    kept = np.flatnonzero(WITH_ZEROS)
    absent = calibrated(word, FITTED_ON.take(kept).weighted(WITH_ZEROS[kept]), options)
    np.testing.assert_array_equal(calibrated(word, FITTED_ON.weighted(WITH_ZEROS), options), absent)
    if word not in FIT_COUNTS_ROWS and not by_mass(options) and options.get("method") not in ("platt", "venn_abers"):
        np.testing.assert_allclose(weighted, calibrated(word, copies(FITTED_ON), options), atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, -1.0], "weights must be finite numbers of 0 or more, got -1.0 at sample 1 of 2"),
        ([1.0, float("nan")], "weights must be finite numbers of 0 or more, got nan at sample 1 of 2"),
        ([0.0, 0.0], "weights must have one above 0, got 2 of 0"),
        ([1.0], "weights must be 2 numbers, one per sample, got shape (1,)"),
        ("missing", "no weights named 'missing'"),
    ],
)
def test_weights_that_are_none_get_one_clear_line(weights, words):
    predictions = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    for use in (confide.evaluate, confide.operating_point, partial(calibrators.fit, "temperature")):
        with pytest.raises(InputError) as caught:
            use(predictions, weights=weights)
        assert str(caught.value).startswith(words)
        assert "\n" not in str(caught.value)
