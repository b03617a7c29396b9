import numpy as np
import pytest
import torch

from confide.checks import InputError
from confide.numerics.gaussians import class_means, fourth_moment, moments_of


def sample(n=900, dim=6, classes=4, seed=0, dtype=np.float64):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, n)
    rows = draw.normal(size=(n, dim)) + 5 * draw.normal(size=(classes, dim))[labels]
    return rows.astype(dtype), labels


def test_covariances_are_those_of_numpy():
    rows, labels = sample()
    moments = moments_of(rows, labels, 4)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    np.testing.assert_allclose(moments.total(), np.cov(rows.T, bias=True), rtol=1e-10)
    within = rows - np.stack([rows[labels == k].mean(axis=0) for k in range(4)])[labels]
    np.testing.assert_allclose(moments.within(), within.T @ within / len(rows), rtol=1e-9, atol=1e-12)


def test_merged_parts_are_the_whole_in_any_order_and_with_any_pilots():
    rows, labels = sample()
    whole = moments_of(rows, labels, 4)
    parts = [moments_of(rows[i::3], labels[i::3], 4) for i in range(3)]
    for order in ([0, 1, 2], [2, 0, 1]):
        merged = parts[order[0]].merge(parts[order[1]]).merge(parts[order[2]])
        np.testing.assert_allclose(merged.within(), whole.within(), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(merged.total(), whole.total(), rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(merged.counts, whole.counts)


def test_a_part_that_has_not_met_a_class_merges():
    rows, labels = sample()
    early, late = moments_of(rows[:500], np.minimum(labels[:500], 1), 2), moments_of(rows[500:], labels[500:], 4)
    merged = early.merge(late)
    whole = moments_of(rows, np.concatenate([np.minimum(labels[:500], 1), labels[500:]]), 4)
    np.testing.assert_allclose(merged.within(), whole.within(), rtol=1e-9, atol=1e-11)


def test_blocks_do_not_change_the_sum():
    rows, labels = sample(n=7000, dim=3)
    whole = moments_of(rows, labels, 4)
    np.testing.assert_allclose(whole.total(), np.cov(rows.T, bias=True), rtol=1e-10)


def test_a_huge_offset_in_float32_costs_no_digits():
    rows, labels = sample(n=4000, dtype=np.float32)
    shifted = rows + np.float32(1024.0)
    exact = moments_of(shifted.astype(np.float64), labels, 4).within()
    np.testing.assert_allclose(moments_of(shifted, labels, 4).within(), exact, atol=1e-6)


def test_integer_rows_and_read_only_memory_maps(tmp_path):
    rows = np.random.default_rng(0).integers(0, 255, (100, 4)).astype(np.uint8)
    labels = np.arange(100) % 3
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    np.testing.assert_allclose(moments_of(mapped, labels, 3).total(), np.cov(rows.T, bias=True), rtol=1e-5)


def test_tensors_are_taken_where_they_are():
    rows, labels = sample()
    np.testing.assert_allclose(
        moments_of(torch.from_numpy(rows), labels, 4).within(), moments_of(rows, labels, 4).within()
    )


def test_overflow_gets_one_line():
    with pytest.raises(InputError, match="rescale them"):
        moments_of(np.array([[1e30, 0], [-1e30, 1], [5e29, 3]], dtype=np.float32), np.array([0, 0, 1]), 2)


def test_class_means_and_empty_classes():
    rows, labels = sample()
    means, counts = class_means(rows, labels, 5)
    np.testing.assert_allclose(means[2], rows[labels == 2].mean(axis=0))
    assert counts[4] == 0
    assert means[4].tolist() == [0.0] * 6


def test_fourth_moment_by_class_and_overall():
    rows, labels = sample()
    means, _ = class_means(rows, labels, 4)
    by_class = (((rows - means[labels]) ** 2).sum(axis=1) ** 2).mean()
    assert fourth_moment(rows, labels, means) == pytest.approx(by_class)
    overall = (((rows - rows.mean(axis=0)) ** 2).sum(axis=1) ** 2).mean()
    assert fourth_moment(rows, None, rows.mean(axis=0)[None]) == pytest.approx(overall)
