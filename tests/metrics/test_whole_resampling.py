"""Intervals, chance levels and paired tests of the errors that need all probabilities again for every resample."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, metrics
from confide.metrics import calibration_test, classwise_calibration, kernel_calibration
from confide.metrics.base import METRICS
from confide.metrics.view import MetricSamples
from confide.numerics.binning import bin_of, width_edges

FORMS = [
    ("kde_ece", {"of": "all"}),
    ("kde_ece", {"of": "top"}),
    ("kde_ece", {"of": "classes"}),
    ("kde_ece", {"of": "classes", "p": 2}),
    ("classwise_ece", {"binning": "mass"}),
    ("classwise_ece", {"binning": "mass", "edges": "order"}),
    ("classwise_ece", {"binning": "mass", "edges": "order", "classes": "present"}),
]


def simulated(n=300, seed=0, sharpness=1.0, num_classes=3):
    """Labels drawn from the probabilities of the logits; a sharpness of 1 is perfectly calibrated."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal((n, num_classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return Predictions(sharpness * logits, np.minimum(labels, num_classes - 1))


@pytest.mark.parametrize(("word", "options"), FORMS)
def test_whole_weights_of_one_give_the_value_itself(word, options):
    predictions = simulated(90)
    value = float(getattr(metrics, word)(predictions, **options))
    if word == "kde_ece":
        rows = kernel_calibration.KernelInputs.of(predictions, options["of"])
        found = kernel_calibration.errors_of(rows, rows.truth[None], np.ones((1, 90)), options)
    else:
        found = classwise_calibration.weighted_errors(predictions, np.ones((1, 90), dtype=np.float32), options)
    assert found[0] == pytest.approx(value, rel=1e-9)


def test_a_resample_in_equal_mass_bins_has_the_value_of_its_copies():
    predictions = simulated(61)
    weights = np.bincount(np.random.default_rng(3).integers(0, 61, 61), minlength=61)
    rows = np.repeat(np.arange(61), weights)
    copies = Predictions(predictions.logits[rows], predictions.labels[rows])
    # Copies of one sample are equal but for their label, which is equal too: no tie is cut otherwise.
    found = classwise_calibration.weighted_errors(predictions, weights[None].astype(np.float32), {})
    assert found[0] == pytest.approx(float(metrics.classwise_ece(copies, binning="mass")), abs=1e-9)


def test_copies_of_a_row_are_no_neighbours_of_it():
    rows = kernel_calibration.KernelInputs(np.array([0.3, 0.3, 0.8]), np.array([1, 0, 1]))
    twice = kernel_calibration.errors_of(rows, rows.truth[None], np.array([[2.0, 1.0, 0.0]]), {})
    # Row 0 sees only row 1 (a miss), row 1 only row 0 (a hit): gaps 0.3 (twice) and 0.7.
    assert twice[0] == pytest.approx((2 * 0.3 + 0.7) / 3)
    alone = kernel_calibration.errors_of(rows, rows.truth[None], np.array([[3.0, 0.0, 0.0]]), {})
    assert alone[0] == 0.0


@pytest.mark.parametrize(("word", "options"), FORMS)
def test_calibrated_and_sharpened_predictions_are_told_apart(word, options):
    good, sharp = simulated(), simulated(sharpness=3.0)
    calm = calibration_test(good, word, **options)
    alarm = calibration_test(sharp, word, **options)
    assert calm.p_value > 0.05
    assert alarm.p_value == 1 / (len(alarm.draws) + 1)
    found = getattr(metrics, word)(sharp, **options)
    assert 0 < found.low < found.high
    # The interval holds the error of a large sample of the same kind, less the noise of the kernel estimate.
    assert getattr(metrics, word)(good, **options).low < calm.high


@pytest.mark.parametrize("of", ["all", "top", "classes"])
def test_kernel_test_keeps_its_level(of):
    rejected = [
        calibration_test(simulated(60, seed), "kde_ece", of=of, bandwidth=0.1).p_value < 0.05 for seed in range(60)
    ]
    # 60 draws at level 0.04: more than 8 has probability below 0.002
    assert sum(rejected) <= 8


def test_kernel_intervals_cover_the_true_error():
    options = {"of": "top", "bandwidth": 0.1}
    true = float(metrics.kde_ece(simulated(6000, 999, sharpness=2.0), **options))
    covered = 0
    for seed in range(30):
        found = metrics.kde_ece(simulated(250, seed, sharpness=2.0), **options)
        covered += found.low <= true <= found.high
    # 30 draws at 0.95: fewer than 24 has probability below 0.001
    assert covered >= 24


def test_beyond_the_largest_size_a_part_is_resampled_and_the_note_says_so(monkeypatch):
    predictions = simulated(600, sharpness=2.0)
    whole = metrics.kde_ece(predictions, of="top")
    assert "interval" not in whole.note
    wide = whole.high - whole.low
    monkeypatch.setattr(kernel_calibration, "LARGEST", 300)
    method = METRICS.get("kde_ece")
    bounded = replace(method, spec=replace(method.spec, resampled_rows=300))
    monkeypatch.setitem(METRICS._methods, "kde_ece", bounded)
    part = metrics.kde_ece(predictions, of="top")
    assert part.note == "of top, interval from resamples of 300 of 600 rows"
    assert part.high - part.low == pytest.approx(wide, rel=0.5)
    row = confide.evaluate(predictions, ["kde_ece"]).measurements[0]
    assert row.note == "interval from resamples of 300 of 600 rows"


def test_beyond_the_largest_size_the_probabilities_resampled_in_mass_bins_are_bounded(monkeypatch):
    predictions = simulated(600, sharpness=2.0)
    whole, _ = classwise_calibration.bootstrap_draws(MetricSamples(predictions), {"binning": "mass"}, 0)
    monkeypatch.setattr(classwise_calibration, "MASS_ELEMENTS", 900)
    part, factor = classwise_calibration.bootstrap_draws(MetricSamples(predictions), {"binning": "mass"}, 0)
    assert factor == pytest.approx(math.sqrt(0.5))
    assert part.std() * factor == pytest.approx(whole.std(), rel=0.5)


def test_evaluation_shows_interval_chance_and_test():
    rows = confide.evaluate(simulated(), ["kde_ece", "classwise_ece_mass"]).measurements[:2]
    assert [row.metric for row in rows] == ["kde_ece", "classwise_ece_mass"]
    for row in rows:
        assert row.low <= row.high
        assert 0 < row.chance < row.chance_high
        assert 0 < row.p_value <= 1


@pytest.mark.parametrize("word", ["kde_ece", "classwise_ece_mass"])
def test_paired_tests(word):
    good, sharp, same = simulated(800), simulated(800, sharpness=4.0), simulated(800, sharpness=1.01)
    found = confide.compare(good, sharp, metrics=[word])[0]
    assert found.better == "a"
    assert found.low > 0
    assert confide.compare(good, same, metrics=[word])[0].better is None


def test_one_sample_has_an_error_of_zero_and_no_spread():
    found = metrics.kde_ece(simulated(1))
    assert (float(found), found.low, found.high) == (0.0, 0.0, 0.0)


def test_top_label_form_needs_no_other_probabilities():
    full = simulated(150, sharpness=2.0)
    top = Predictions.from_top1(full.labels, full.facts.prediction, full.facts.confidence)
    assert metrics.kde_ece(top, of="top").low == pytest.approx(metrics.kde_ece(full, of="top").low, rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"binning": "mass"}, {"binning": "mass", "edges": "order"}])
@pytest.mark.parametrize("classes", ["present", "to_largest"])
def test_classes_left_out_are_left_out_of_intervals_and_chance(options, classes):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((400, 6))
    labels = rng.choice([0, 1, 3, 4], 400)
    predictions, options = Predictions(logits, labels), {**options, "classes": classes}
    found = metrics.classwise_ece(predictions, **options)
    mean, kept = float(found), {"present": 4, "to_largest": 5}[classes]
    table = metrics.classwise_ece(predictions, **{k: v for k, v in options.items() if k != "classes"})
    # What a class without labels adds is its mean probability, however it is binned.
    gone = [2, 5] if classes == "present" else [5]
    absent = torch.softmax(predictions.logits, dim=1)[:, gone].mean(dim=0).sum()
    assert mean == pytest.approx((6 * float(table) - float(absent)) / kept)
    assert found.low < mean
    assert metrics.calibration_test(predictions, "classwise_ece", **options).p_value == 1 / 1001


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_class_wise_intervals_beyond_the_largest_size_are_as_wide_as_those_of_all_rows(monkeypatch, binning):
    predictions = simulated(900, sharpness=2.0)
    whole = metrics.classwise_ece(predictions, binning=binning)
    monkeypatch.setattr(classwise_calibration, "LARGEST", 900)
    at_the_limit = metrics.classwise_ece(predictions, binning=binning)
    assert (at_the_limit.low, at_the_limit.high) == (whole.low, whole.high)
    monkeypatch.setattr(classwise_calibration, "LARGEST", 100)
    part = metrics.classwise_ece(predictions, binning=binning)
    # Nine times fewer rows spread three times as far.
    assert 0.6 < (part.high - part.low) / (whole.high - whole.low) < 1.6


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("bins", [1, 2, 15])
def test_sums_of_classes_and_bins_are_those_of_every_sample_under_its_weight(bins, closed, monkeypatch):
    predictions, draws = simulated(25), np.random.default_rng(0)
    weights = draws.integers(0, 4, (3, 25)).astype(np.float32)
    probs, labels = predictions.probabilities().double().numpy(), predictions.labels.numpy()
    edges = width_edges(bins)
    wanted = np.zeros((3, 3, bins))
    for row, own in enumerate(weights):
        for sample in range(25):
            for k in range(3):
                place = bin_of(probs[sample, k : k + 1], edges, closed)[0]
                wanted[row, k, place] += own[sample] * (probs[sample, k] - (labels[sample] == k))
    for rows in (25, 7):
        monkeypatch.setattr(classwise_calibration, "rows_in", lambda *_, rows=rows: rows)
        found = classwise_calibration.cell_sums(predictions, weights, bins, closed)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    errors = classwise_calibration.errors_of(found, weights.sum(axis=1))
    for row, own in enumerate(weights):
        copies = np.repeat(np.arange(25), own.astype(int))
        copied = Predictions(predictions.logits[copies], predictions.labels[copies])
        assert errors[row] == pytest.approx(float(metrics.classwise_ece(copied, bins=bins, closed=closed)), abs=1e-5)
