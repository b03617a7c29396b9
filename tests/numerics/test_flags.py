"""Flags of a block: found and counted as numpy does it."""

import numpy as np
import pytest

from confide.numerics.blocks import places_of, row_counts


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1003])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_flags_are_found_where_numpy_finds_them(size, share):
    flags = np.random.default_rng(size).random(size) < share
    np.testing.assert_array_equal(places_of(flags), np.flatnonzero(flags))
    np.testing.assert_array_equal(places_of(np.append(flags, True).reshape(1, -1)), np.flatnonzero([*flags, True]))


@pytest.mark.parametrize("classes", [1, 300, 70_000])
def test_flags_are_counted_by_row(classes):
    flags = np.random.default_rng(classes).random((3, classes)) < [[0.0], [0.5], [1.0]]
    np.testing.assert_array_equal(row_counts(flags), np.count_nonzero(flags, axis=1))
    np.testing.assert_array_equal(row_counts(flags[:, ::2]), np.count_nonzero(flags[:, ::2], axis=1))


@pytest.mark.parametrize("every", [8, 16, 40])
@pytest.mark.parametrize("place", range(8))
def test_few_flags_at_one_place_of_their_eight_are_found(every, place):
    flags = np.arange(160) % every == place
    assert places_of(flags).tolist() == list(range(place, 160, every))
