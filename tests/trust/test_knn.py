"""Distance to neighbours on a line."""

import pytest
import torch

import confide
from confide.trust import fit

POINTS = [[0.0], [1.0], [3.0]]
PREDICTIONS = confide.Predictions(torch.eye(3), [0, 1, 2])


@pytest.mark.parametrize(("k", "expected"), [(1, -2.0), (2, -4.0), (3, -5.0), (9, -5.0)])
def test_the_kth_neighbour_counts_and_k_stops_at_the_number_of_points(k, expected):
    trust = fit("knn", PREDICTIONS, POINTS, k=k)
    assert float(trust(PREDICTIONS.take([0]), [[5.0]])) == pytest.approx(expected)
