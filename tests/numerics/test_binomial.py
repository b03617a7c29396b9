"""Exact bounds of a rate at the ends, where all or none are events."""

import pytest

from confide.numerics.binomial import clopper_pearson, lower_bound, upper_bound


def test_the_bounds_at_all_and_at_none_are_one_and_zero():
    assert (upper_bound(5, 5, 0.05), lower_bound(0, 5, 0.05)) == (1.0, 0.0)
    # (1 - b)^5 = 0.05 and b^5 = 0.05.
    assert upper_bound(0, 5, 0.05) == pytest.approx(1 - 0.05**0.2)
    assert lower_bound(5, 5, 0.05) == pytest.approx(0.05**0.2)


def test_the_interval_leaves_half_of_its_error_on_either_side():
    assert clopper_pearson(2, 9, 0.05) == pytest.approx((lower_bound(2, 9, 0.025), upper_bound(2, 9, 0.025)))
