"""Intervals and the calibration test: worked numbers, level and coverage by simulation."""

import math

import numpy as np
import pytest
from test_golden_vectors import load

import confide
from confide import Predictions, metrics
from confide.checks import InputError
from confide.metrics import calibration_test, classwise_calibration
from confide.metrics.base import METRICS, value_of
from confide.metrics.calibration import ece_chance
from confide.metrics.resampling import bootstrap, null_draws
from confide.metrics.view import MetricSamples, View
from confide.numerics.binomial import wilson_interval
from confide.results import Z


def calibrated(n, seed, gap=0.0):
    """Top-1 predictions whose accuracy lies `gap` below the confidence, everywhere."""
    rng = np.random.default_rng(seed)
    confidence = 0.3 + 0.7 * rng.beta(3, 1.2, size=n)
    correct = rng.random(n) < np.clip(confidence - gap, 0, 1)
    labels = rng.integers(0, 3, size=n)
    return Predictions.from_top1(labels, np.where(correct, labels, (labels + 1) % 3), confidence)


def test_worked_numbers_of_the_calibration_test():
    data = load("inputs_A")
    found = calibration_test(Predictions(data["logits"], data["labels"]), resamples=4000)
    assert found.mean == pytest.approx(0.185, abs=0.002)
    assert found.high == pytest.approx(0.242, abs=0.004)
    assert found.p_value == pytest.approx(0.67, abs=0.03)
    data = load("inputs_C")
    found = calibration_test(Predictions(data["logits"], data["labels"]))
    assert found.mean == pytest.approx(0.0443, abs=0.001)
    assert found.high == pytest.approx(0.0598, abs=0.002)
    assert found.p_value == 1 / 1001


def test_sure_predictions_are_rejected_by_a_single_error():
    right = Predictions.from_top1([0] * 20, [0] * 20, np.ones(20))
    wrong = Predictions.from_top1([0] * 20, [1] + [0] * 19, np.ones(20))
    assert calibration_test(right, resamples=99).p_value == 1.0
    assert calibration_test(wrong, resamples=99).p_value == 1 / 100


def test_the_calibration_test_keeps_its_level():
    rejected = [calibration_test(calibrated(150, seed), resamples=99).p_value < 0.05 for seed in range(150)]
    # 150 draws at level .04 (4 of 100): more than 14 has probability below 0.003
    assert sum(rejected) <= 14


def test_a_gap_is_found():
    assert calibration_test(calibrated(2000, 0, gap=0.1), resamples=99).p_value == 1 / 100


def test_resamples_are_the_same_for_the_same_seed_and_differ_for_another():
    base = MetricSamples(calibrated(200, 0))
    first = bootstrap(base, [lambda view: view.mean("correct")], resamples=60, seed=1)
    again = bootstrap(base, [lambda view: view.mean("correct")], resamples=60, seed=1)
    other = bootstrap(base, [lambda view: view.mean("correct")], resamples=60, seed=2)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("word", ["ece", "ece_mass", "aurc", "auroc", "augrc", "fpr95", "nll_free"])
def test_a_resample_has_the_value_of_its_copies(word):
    """Weights on sorted samples give what the metric says of the drawn rows themselves."""
    predictions = calibrated(60, 4)
    base = MetricSamples(predictions, resampled=True)
    rng = np.random.default_rng(0)
    weights = np.bincount(rng.integers(0, 60, 60), minlength=60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    copied = predictions.take(np.arange(60))
    copies = Predictions.from_top1(copied.labels[rows], copied.facts.prediction[rows], copied.facts.confidence[rows])
    if word == "nll_free":
        assert View(base, weights).mean("correct") == pytest.approx(View(MetricSamples(copies)).mean("correct"))
        return
    from confide.metrics.base import parse_metric, value_of

    method, options = parse_metric(word)
    assert value_of(method, View(base, weights), options) == pytest.approx(
        value_of(method, View(MetricSamples(copies)), options), abs=1e-9
    )


@pytest.mark.parametrize("word", ["accuracy", "aurc", "auroc", "fpr95", "aupr_error"])
def test_intervals_cover_the_true_value(word):
    true = float(getattr(metrics, word)(calibrated(200_000, 999)))
    found = [getattr(metrics, word)(calibrated(300, seed)) for seed in range(60)]
    # 60 draws at 0.95: fewer than 50 has probability below 1e-4
    assert sum(m.low <= true <= m.high for m in found) >= 50


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.15])
def test_calibration_intervals_cover_small_and_large_errors(gap):
    true = float(metrics.ece(calibrated(400_000, 999, gap), binning="mass"))
    found = [metrics.ece(calibrated(400, seed, gap), binning="mass") for seed in range(40)]
    assert sum(m.low - 0.002 <= true <= m.high for m in found) >= 33


def test_a_model_that_always_says_the_majority_class_has_the_interval_of_its_accuracy():
    """Resampling within labels gave it no width at all: every class was wholly right or wholly wrong."""
    covered = []
    for seed in range(60):
        labels = (np.random.default_rng(seed).random(500) >= 0.9).astype(int)
        found = metrics.accuracy(Predictions.from_top1(labels, np.zeros(500, int), np.full(500, 0.9)))
        covered.append(found.low <= 0.9 <= found.high)
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.09 / 500), rel=0.2)
    # 60 draws at 0.95: fewer than 50 has probability below 1e-4
    assert sum(covered) >= 50


def test_class_counts_fixed_by_design_are_strata():
    labels = (np.arange(500) >= 450).astype(int)
    p = Predictions.from_top1(labels, np.zeros(500, int), np.full(500, 0.9), columns={"site": labels})
    for strata in ("class", "site", labels):
        found = confide.evaluate(p, ["accuracy"], strata=strata).measurements[0]
        assert (found.low, found.value, found.high) == (0.9, 0.9, 0.9)
    with pytest.raises(InputError, match="no strata named 'sites'; did you mean 'site'"):
        confide.evaluate(p, ["accuracy"], strata="sites")
    with pytest.raises(InputError, match="must have 500 values"):
        confide.evaluate(p, ["accuracy"], strata=labels[:10])


def test_all_correct_has_an_interval_of_some_width():
    found = metrics.accuracy(Predictions.from_top1([0] * 20, [0] * 20, np.full(20, 0.9)))
    assert found.high == 1.0
    assert found.low == pytest.approx(wilson_interval(1.0, 20, Z)[0])
    assert 0.8 < found.low < 0.9


def test_the_law_of_bins_agrees_with_single_draws():
    base = MetricSamples(calibrated(3000, 5))
    for options in ({"binning": "width"}, {"binning": "mass"}, {"norm": 2}):
        exact = null_draws(METRICS.get("ece"), base, options, 400, 0)
        quick = ece_chance(View(base), 1000, np.random.default_rng(0), **options)
        assert quick.mean() == pytest.approx(exact.mean(), rel=0.05)
        assert np.quantile(quick, 0.95) == pytest.approx(np.quantile(exact, 0.95), rel=0.08)


def test_class_wise_chance_and_interval():
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((500, 4))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    good = Predictions(logits, np.array([rng.choice(4, p=p) for p in probs]))
    drawn = classwise_calibration.draw_labels(probs, 200, rng).T
    exact = np.array([float(metrics.classwise_ece(Predictions(logits, labels))) for labels in drawn])
    chance = calibration_test(good, "classwise_ece")
    assert chance.mean == pytest.approx(exact.mean(), rel=0.02)
    assert chance.draws.std() == pytest.approx(exact.std(), rel=0.2)
    assert chance.p_value > 0.05
    assert metrics.classwise_ece(good).low == 0.0
    assert metrics.classwise_ece(Predictions(3 * logits, good.labels)).low > 0.03


def test_undefined_values_have_undefined_intervals():
    found = metrics.auroc(Predictions.from_top1([0, 0], [0, 0], np.array([0.8, 0.9])))
    assert math.isnan(float(found))
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_a_resample_that_leaves_nothing_behind_a_tie_is_no_division_by_zero():
    # The two least sure samples tie; weight 0 on both leaves no sample there.
    said = Predictions.from_top1([0, 0, 0, 0], [0, 1, 1, 0], [0.9, 0.8, 0.4, 0.4])
    view = View(MetricSamples(said, resampled=True), np.array([1.0, 1.0, 0.0, 0.0]))
    # One error, ranked first of the two left: average precision 1.
    assert value_of(METRICS.get("aupr_error"), view, {}) == pytest.approx(1.0)
