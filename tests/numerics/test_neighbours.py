from types import SimpleNamespace

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


class RoughSearch(SimpleNamespace):
    """Stands for faiss: the nearest points by distances in float32 with few digits, NaN for no point."""

    asked: list[int]

    @staticmethod
    def omp_set_num_threads(count: int) -> None:
        assert count >= 1

    def knn(self, rows, points, k):
        assert rows.dtype == points.dtype == np.float32
        self.asked.append(k)
        table = ((rows[:, None] - points[None]) ** 2).sum(axis=2)
        rough = table * (1 + 1e-6 * np.random.default_rng(1).uniform(-1, 1, table.shape)).astype(np.float32)
        order = np.argsort(rough, axis=1, kind="stable")[:, :k]
        squared = np.take_along_axis(rough, order, axis=1)
        return squared, np.where(np.isnan(squared), -1, order)


@pytest.fixture(params=["installed", "stand-in"])
def large_search(request, monkeypatch):
    """faiss, or what stands for it, searches whatever is large."""
    if request.param == "installed":
        pytest.importorskip("faiss", reason="the search is our own without it")
        return None
    stand_in = RoughSearch(asked=[])
    monkeypatch.setattr(neighbours, "faiss", lambda: stand_in)
    return stand_in


@pytest.mark.parametrize("exclude_self", [True, False])
def test_faiss_gives_the_same_neighbours(exclude_self, large_search, monkeypatch):
    draw = np.random.default_rng(0)
    spread = draw.normal(size=(300, 8)).astype(np.float32)
    tight = (1000 * draw.normal(size=(5, 8))[draw.integers(0, 5, 300)] + draw.normal(size=(300, 8))).astype(np.float32)
    few = spread[:9]
    for points in (spread, tight, np.concatenate([spread, spread]), few, few[:7], few[:6]):
        monkeypatch.setattr(neighbours, "FAISS_WORK", 1 << 62)
        distances, indices = nearest_neighbours(points, points, 5, exclude_self=exclude_self)
        monkeypatch.setattr(neighbours, "FAISS_WORK", 1)
        assert neighbours.by_faiss(len(points), points)
        by_faiss = nearest_neighbours(points, points, 5, exclude_self=exclude_self)
        np.testing.assert_array_equal(by_faiss[0], distances)
        np.testing.assert_array_equal(by_faiss[1], indices)
        if large_search is not None:
            assert large_search.asked.pop() == min(9 + exclude_self, len(points))
            assert not large_search.asked


def test_faiss_searches_what_is_large_and_in_float32(monkeypatch):
    monkeypatch.setattr(neighbours, "faiss", lambda: RoughSearch(asked=[]))
    points = np.zeros((8, 4), dtype=np.float32)
    queries = neighbours.FAISS_WORK // points.size
    assert [neighbours.by_faiss(n, points) for n in (queries - 1, queries)] == [False, True]
    assert not neighbours.by_faiss(queries, points.astype(np.float64))
    monkeypatch.setattr(neighbours, "faiss", lambda: None)
    assert not neighbours.by_faiss(queries, points)


def test_the_closest_point_by_faiss_is_that_of_all_distances(large_search, monkeypatch):
    draw = np.random.default_rng(0)
    rows, points = (torch.from_numpy(draw.normal(size=(n, 4)).astype(np.float32)) for n in (90, 12))
    monkeypatch.setattr(neighbours, "FAISS_WORK", 1)
    expected = torch.cdist(rows, points).argmin(dim=1).numpy()
    np.testing.assert_array_equal(neighbours.closest_points(rows, points), expected)
    rows[3] = torch.nan  # no point is nearest to it: the search is our own
    own = neighbours.closest_points(rows, points)
    np.testing.assert_array_equal(np.delete(own, 3), np.delete(expected, 3))
    assert (own >= 0).all()


def test_rows_of_length_one_have_a_length_and_a_count():
    rows = neighbours.UnitRows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]]))
    assert len(rows) == 3
    assert rows[0:3].tolist() == [[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]]


def test_the_closest_point_is_that_of_all_distances(monkeypatch):
    draw = np.random.default_rng(0)
    rows, points = (torch.from_numpy(draw.normal(size=(n, 4)).astype(np.float32)) for n in (90, 12))
    expected = torch.cdist(rows, points).argmin(dim=1).numpy()
    for work in (1 << 62, 1):  # by products, and by faiss where it is installed
        monkeypatch.setattr(neighbours, "FAISS_WORK", work)
        np.testing.assert_array_equal(neighbours.closest_points(rows, points), expected)
