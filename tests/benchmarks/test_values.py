"""Means, spreads, intervals and paired tests over seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.lib.values import Value, paired, spread_of, summaries


def test_the_paired_test_is_students():
    first, second = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.5, 1: 1.0, 2: 2.0}
    found = paired(first, second)
    assert found.p_value == pytest.approx(stats.ttest_rel([1, 2, 4], [0.5, 1, 2]).pvalue)
    assert found.difference == pytest.approx(3.5 / 3)


def test_only_seeds_that_both_have_are_compared():
    found = paired({0: 1.0, 1: 5.0, 7: 100.0}, {0: 0.0, 1: 4.0, 8: -100.0})
    assert (found.seeds, found.difference) == (2, 1.0)
    # The same difference at every seed: a t-test has nothing to measure it by.
    assert math.isnan(found.p_value)


def test_one_seed_has_a_difference_but_no_test():
    found = paired({3: 1.0}, {3: 0.25})
    assert found.difference == 0.75
    assert math.isnan(found.p_value)
    assert math.isnan(paired({0: 1.0}, {1: 1.0}).difference)


def test_the_interval_is_students():
    numbers = np.array([1.0, 2.0, 4.0])
    mean, deviation, low, high = spread_of(numbers)
    expected = stats.t.interval(0.95, 2, loc=numbers.mean(), scale=stats.sem(numbers))
    assert (low, high) == pytest.approx(expected)
    assert deviation == pytest.approx(numbers.std(ddof=1))
    assert mean == pytest.approx(7 / 3)


def test_p_values_are_corrected_over_the_methods():
    values = [
        Value("data", method, "ece", seed, base + 0.01 * seed * sign)
        for method, base, sign in (("plain", 1.0, 1), ("good", 0.5, -1), ("other", 0.9, 2))
        for seed in range(4)
    ]
    rows = {row.method: row for row in summaries(values, "plain")}
    assert math.isnan(rows["plain"].p_value)
    assert rows["good"].baseline == "plain"
    assert rows["good"].p_holm == pytest.approx(2 * rows["good"].p_value)
    assert rows["other"].p_holm >= rows["other"].p_value
    assert rows["good"].seeds == 4
    # Another column is another family.
    wider = summaries([*values, *(Value("data", one.method, "nll", one.seed, one.value) for one in values)], "plain")
    assert {row.method: row.p_holm for row in wider if row.quantity == "ece"} == pytest.approx(
        {row.method: row.p_holm for row in rows.values()}, nan_ok=True
    )


def test_differences_that_cancel_leave_no_sign_of_rounding():
    first, second = {0: 98.3, 1: 98.1, 2: 98.2}, {0: 98.2, 1: 98.2, 2: 98.2}
    assert sum(first[k] - second[k] for k in first) != 0.0
    test = paired(first, second)
    assert test.difference == 0.0
    assert test.p_value == 1.0


def test_the_same_difference_at_every_seed_but_for_rounding_has_no_test():
    first, second = {k: 0.1 * k + 0.3 for k in range(4)}, {k: 0.1 * k for k in range(4)}
    assert len({first[k] - second[k] for k in first}) > 1
    assert math.isnan(paired(first, second).p_value)
