"""Bins: edges, ties, ranks, and the quick way for many values."""

import numpy as np
import pytest

from confide.numerics.binning import (
    bin_of,
    mass_bin_of_rank,
    mass_starts,
    ranks_of_weights,
    split_edges,
    width_bin_of,
    width_edges,
)


def test_edges_belong_to_the_lower_bin_and_zero_to_the_first():
    edges = width_edges(4)
    np.testing.assert_array_equal(bin_of(np.array([0.0, 0.25, 0.26, 0.5, 1.0]), edges), [0, 0, 1, 1, 3])
    np.testing.assert_array_equal(bin_of(np.array([0.0, 0.25, 0.26, 0.5, 1.0]), edges, "left"), [0, 1, 1, 2, 3])


def test_float32_values_are_compared_with_float32_edges():
    assert bin_of(np.array([0.6], dtype=np.float32), width_edges(15))[0] == 8


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("bins", [1, 2, 7, 15, 1000, 3000])
def test_the_quick_way_gives_the_same_bins(kind, closed, bins):
    rng = np.random.default_rng(0)
    edges = width_edges(bins).astype(kind)
    near = np.concatenate([edges, np.nextafter(edges, kind(2)), np.nextafter(edges, kind(-1))]).clip(0, 1)
    values = np.concatenate([rng.random(5000).astype(kind), near])
    np.testing.assert_array_equal(width_bin_of(values, bins, closed), bin_of(values, width_edges(bins), closed))


@pytest.mark.parametrize("n", [1, 5, 14, 15, 16, 1001])
@pytest.mark.parametrize("bins", [1, 3, 15])
def test_bins_by_rank_hold_equal_counts(n, bins):
    index, starts = mass_bin_of_rank(n, bins), mass_starts(n, bins)
    np.testing.assert_array_equal(np.repeat(np.arange(bins), np.diff(starts)), index)
    assert np.diff(starts).max() - np.diff(starts).min() <= 1


def test_split_edges_lie_between_neighbours_and_merge_when_equal():
    np.testing.assert_allclose(split_edges(np.array([0.4, 0.1, 0.2, 0.3]), 2), [0.0, 0.25, 1.0])
    np.testing.assert_allclose(split_edges(np.full(9, 0.5), 3), [0.0, 0.5, 1.0])


def test_equal_weights_rank_as_none_whatever_their_sums_round_to():
    for weight in (0.1, 1 / 3, 7e-9):
        assert ranks_of_weights(np.full(1000, weight)).tolist() == list(range(1000))
