import numpy as np
import pytest
import torch

from confide.checks import InputError
from confide.numerics import neighbours
from confide.numerics.neighbours import nearest_neighbours, smallest_of_rows


def brute(queries, points, k):
    table = np.linalg.norm(queries[:, None] - points[None], axis=2)
    order = np.argsort(table, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(table, order, axis=1), order


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matches_all_distances(k, dtype, monkeypatch):
    monkeypatch.setattr(neighbours, "DISTANCE_BYTES", 1 << 10)
    draw = np.random.default_rng(0)
    queries, points = draw.normal(size=(70, 5)).astype(dtype) + 100, draw.normal(size=(50, 5)).astype(dtype) + 100
    distances, indices = nearest_neighbours(queries, points, k)
    expected, order = brute(queries.astype(np.float64), points.astype(np.float64), k)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    assert (indices == order).mean() > 0.99


def test_a_sample_is_no_neighbour_of_itself():
    points = np.random.default_rng(0).normal(size=(40, 3))
    distances, indices = nearest_neighbours(points, points, 1, exclude_self=True)
    assert (indices[:, 0] != np.arange(40)).all()
    assert (distances > 0).all()


def test_duplicates_are_at_distance_zero():
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) + 1000
    assert nearest_neighbours(points[:5], points, 1)[0].max() == 0.0


def test_more_neighbours_than_points_are_refused():
    with pytest.raises(InputError, match="at most the 3 points"):
        nearest_neighbours(np.eye(3), np.eye(3), 4)


def test_smallest_columns_of_every_row():
    table = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]])
    assert np.sort(smallest_of_rows(table, 2), axis=1).tolist() == [[1, 2], [0, 2]]


@pytest.mark.parametrize("exclude_self", [True, False])
def test_tight_clusters_far_apart_keep_their_neighbours(exclude_self):
    draw = np.random.default_rng(0)
    centres = 1000 * draw.normal(size=(5, 16))
    points = (centres[draw.integers(0, 5, 400)] + draw.normal(size=(400, 16))).astype(np.float32)
    distances, indices = nearest_neighbours(points, points, 4, exclude_self=exclude_self)
    expected, order = brute(points.astype(np.float64), points.astype(np.float64), 5)
    own = int(exclude_self)
    np.testing.assert_allclose(distances, expected[:, own : own + 4], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(indices, order[:, own : own + 4])


@pytest.mark.parametrize("exclude_self", [True, False])
def test_faiss_where_it_is_installed_gives_the_same_neighbours(exclude_self, monkeypatch):
    pytest.importorskip("faiss", reason="the search is our own without it")
    draw = np.random.default_rng(0)
    spread = draw.normal(size=(300, 8)).astype(np.float32)
    tight = (1000 * draw.normal(size=(5, 8))[draw.integers(0, 5, 300)] + draw.normal(size=(300, 8))).astype(np.float32)
    for points in (spread, tight, np.concatenate([spread, spread])):
        monkeypatch.setattr(neighbours, "FAISS_WORK", 1 << 62)
        distances, indices = nearest_neighbours(points, points, 5, exclude_self=exclude_self)
        monkeypatch.setattr(neighbours, "FAISS_WORK", 1)
        assert neighbours.by_faiss(len(points), points)
        by_faiss = nearest_neighbours(points, points, 5, exclude_self=exclude_self)
        np.testing.assert_array_equal(by_faiss[0], distances)
        np.testing.assert_array_equal(by_faiss[1], indices)


def test_the_closest_point_is_that_of_all_distances(monkeypatch):
    draw = np.random.default_rng(0)
    rows, points = (torch.from_numpy(draw.normal(size=(n, 4)).astype(np.float32)) for n in (90, 12))
    expected = torch.cdist(rows, points).argmin(dim=1).numpy()
    for work in (1 << 62, 1):  # by products, and by faiss where it is installed
        monkeypatch.setattr(neighbours, "FAISS_WORK", work)
        np.testing.assert_array_equal(neighbours.closest_points(rows, points), expected)
