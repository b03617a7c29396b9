"""Exact bounds of a rate at the ends, where all or none are events."""

import numpy as np
import pytest

from confide.numerics.binomial import clopper_pearson, lower_bound, upper_bound


def test_the_bounds_at_all_and_at_none_are_one_and_zero():
    assert (upper_bound(5, 5, 0.05), lower_bound(0, 5, 0.05)) == (1.0, 0.0)
    # (1 - b)^5 = 0.05 and b^5 = 0.05.
    assert upper_bound(0, 5, 0.05) == pytest.approx(1 - 0.05**0.2)
    assert lower_bound(5, 5, 0.05) == pytest.approx(0.05**0.2)


def test_the_interval_leaves_half_of_its_error_on_either_side():
    assert clopper_pearson(2, 9, 0.05) == pytest.approx((lower_bound(2, 9, 0.025), upper_bound(2, 9, 0.025)))


def test_quantiles_of_counts_are_scipys():
    from scipy.stats import binom

    from confide.numerics.binomial import binomial_quantiles

    rng = np.random.default_rng(0)
    trials, chance = rng.integers(1, 400, 300), rng.random(300)
    chance[:60] *= 0.01
    chance[:4], chance[4:8] = 0.0, 1.0
    levels = (0.025, 0.5, 0.975)
    expected = [binom.ppf(level, trials, chance) for level in levels]
    np.testing.assert_array_equal(binomial_quantiles(trials, chance, levels), expected)
