"""Quantiles behind the intervals against scipy's, the shapes of intervals at their ends, and metrics batch by batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from confide import metrics
from confide.checks import InputError
from confide.metrics import METRICS
from confide.metrics.influence import (
    Folded,
    Spread,
    erf,
    error_interval,
    folded_mean,
    gamma_quantile,
    mean_interval,
    rare_interval,
    rate_interval,
    student_quantile,
    sum_without_noise,
)
from confide.predictions import Predictions


@pytest.mark.parametrize("shape", [0.01, 0.05, 0.3, 0.99, 1.0, 1.01, 3.0, 40.0, 999.0, 1000.0, 1001.0, 1e5])
@pytest.mark.parametrize("upper", [False, True])
def test_quantiles_of_the_gamma_law_are_scipys(shape, upper):
    exact = stats.gamma.ppf(0.975 if upper else 0.025, shape)
    assert gamma_quantile(shape, upper) == pytest.approx(exact, rel=1e-6 if shape <= 1000 else 1e-4, abs=1e-290)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 1000])
def test_quantiles_of_students_law_are_scipys(freedom):
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-5 if freedom > 20 else 1e-2)


def test_below_one_degree_of_freedom_is_one_and_between_two_lies_between():
    assert student_quantile(0.5) == student_quantile(1) == pytest.approx(12.7062)
    assert student_quantile(2) > student_quantile(2.5) > student_quantile(3)


def test_the_error_function_and_folded_means_are_those_of_the_integrals():
    values = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(erf(values), special.erf(values))
    for mean, variance in ((0.0, 1.0), (0.7, 0.25), (-2.0, 4.0), (5.0, 0.0)):
        folded = stats.foldnorm(abs(mean) / math.sqrt(variance), scale=math.sqrt(variance)).mean() if variance else mean
        assert float(folded_mean(np.array([mean]), np.array([variance]))[0]) == pytest.approx(folded)


def test_what_noise_adds_to_a_sum_of_absolute_values_is_taken_off():
    assert sum_without_noise(0.5, 0.5) == (0.0, 0.0)
    assert sum_without_noise(0.4, 0.5) == (0.0, 0.0)
    near, doubt = sum_without_noise(0.6, 0.5)
    assert 0 < near < 0.6
    assert 0 < doubt < near
    assert sum_without_noise(100.0, 0.5)[0] == pytest.approx(100, rel=1e-4)
    fixed = Folded.of(np.array([0.5, -0.25, 0.0]), np.zeros(3))
    assert fixed.slope.tolist() == [1, -1, 0]
    assert fixed.rest.tolist() == [0, 0, 0]
    assert fixed.without_noise == 0.75
    noisy = Folded.of(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    assert noisy.slope[0] == 0
    assert noisy.slope[1] == pytest.approx(special.erf(3 / math.sqrt(2)))
    assert noisy.rest[0] == pytest.approx(1 - 2 / math.pi)


def test_intervals_at_the_ends_of_their_range():
    wide, none = Spread(0.01, 30.0, 31), Spread(0.0, 30.0, 31)
    low, high = mean_interval(0.5, wide)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert high - low == pytest.approx(0.2 * wide.quantile)
    assert rate_interval(0.5, none, 31) == (0.5, 0.5)
    for end in (0.0, 1.0):
        low, high = rate_interval(end, none, 31)
        assert min(abs(low - end), abs(high - end)) < 1e-12
        assert high - low == pytest.approx(wide.quantile**2 / (31 + wide.quantile**2))
    low, high = rate_interval(0.5, wide, 31)
    assert 0 < low < 0.5 < high < 1
    assert rate_interval(0.5, wide, 31, 1.0)[0] > low
    assert rare_interval(0.0, none, 0.1)[0] == 0
    assert rare_interval(0.0, none, 0.1)[1] == pytest.approx(0.1 * stats.gamma.ppf(0.975, 1), rel=1e-6)
    assert rare_interval(0.5, none, 0.0) == (0.0, 0.5)
    low, high = rare_interval(0.5, wide, 0.0)
    assert low == pytest.approx(stats.gamma.ppf(0.025, 25) * 0.02, rel=1e-6)
    assert high == pytest.approx(stats.gamma.ppf(0.975, 25) * 0.02, rel=1e-6)


def test_a_calibration_error_is_zero_only_where_the_test_allows_it():
    wide = Spread(1e-4, 1e9, 100)
    assert error_interval(0.1, wide, 0.1, 0.1)[0] == 0
    low, high = error_interval(0.1, wide, 0.1, 0.05)
    assert low == pytest.approx(0.1 - 1.96 * 0.01, abs=1e-4)
    assert high == pytest.approx(0.1 + 1.96 * 0.01, abs=1e-4)
    low, high = error_interval(0.1, wide, 0.06, 0.05)
    assert low == pytest.approx(math.sqrt(0.0804**2 - 0.1**2 + 0.06**2) if 0.0804**2 > 0.0064 else 0, abs=1e-3)
    assert high == pytest.approx(math.sqrt(0.1196**2 - 0.1**2 + 0.06**2), abs=1e-4)
    assert error_interval(0.1, wide, 0.0, 0.05)[0] == pytest.approx(0.005)
    assert error_interval(0.1, wide, 0.0, 0.0999)[0] == pytest.approx(math.sqrt(0.1**2 - 0.0999**2))


def _drawn(n: int, weighted: bool) -> Predictions:
    draw = torch.Generator().manual_seed(n)
    logits = 2 * torch.randn(n, 3, generator=draw, dtype=torch.float64)
    labels = (torch.softmax(logits, dim=1).cumsum(dim=1) < torch.rand(n, 1, generator=draw)).sum(dim=1).clamp_max(2)
    weights = np.linspace(0, 2, n) if weighted else None
    return Predictions(logits, labels, weights=weights, trust=torch.rand(n, generator=draw))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METRICS, ids=lambda m: m.word)
def test_batches_measure_what_all_samples_at_once_do(method, weighted):
    whole = _drawn(60, weighted)
    for corner in ({}, *method.corners):
        try:
            expected = float(getattr(metrics, method.word)(whole, **corner))
        except InputError:
            continue
        batches = metrics.create(method.word, **corner)
        for rows in (range(0), range(25), range(25, 26), range(26, 60)):
            batches.update(whole.take(np.array(rows, dtype=int)))
        assert len(batches) == len(whole.counted())
        assert float(batches.compute()) == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), corner
