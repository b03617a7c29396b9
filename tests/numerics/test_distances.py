import numpy as np
import pytest
import torch

from confide.numerics.gaussians import class_fit, distance_tables, fit_gaussians, own_distances


@pytest.fixture
def data():
    draw = np.random.default_rng(0)
    labels = np.concatenate([np.arange(4), draw.integers(0, 4, 76)])
    rows = draw.normal(size=(80, 5)) @ draw.normal(size=(5, 5)) + 2 * draw.normal(size=(4, 5))[labels]
    return rows, labels


def table_of(gaussians, rows, **options):
    return torch.cat([table for _, table, _ in distance_tables(gaussians, rows, **options)]).numpy()


def test_the_table_holds_the_own_distances(data):
    rows, labels = data
    gaussians = fit_gaussians(rows, labels, 4)
    own = own_distances(gaussians, rows, labels, relative=False)
    np.testing.assert_allclose(table_of(gaussians, rows)[np.arange(80), labels], own, rtol=1e-9)


def test_leaving_a_row_out_equals_the_fit_without_it(data):
    rows, labels = data
    left_out = table_of(fit_gaussians(rows, labels, 4), rows, fitted_labels=labels)
    for i in (0, 17, 79):
        others = np.arange(80) != i
        refit = fit_gaussians(rows[others], labels[others], 4)
        np.testing.assert_allclose(left_out[i], table_of(refit, rows[i : i + 1])[0], rtol=1e-8)


def test_the_only_sample_of_a_class_is_infinitely_far_from_it(data):
    rows, labels = data
    labels = np.where(labels == 3, 2, labels)
    labels[5] = 3
    left_out = table_of(fit_gaussians(rows, labels, 4), rows, fitted_labels=labels)
    assert np.isinf(left_out[5, 3])
    assert np.isfinite(left_out[5, :3]).all()


def test_a_class_without_samples_is_infinitely_far(data):
    rows, labels = data
    table = table_of(fit_gaussians(rows, np.where(labels == 1, 0, labels), 4), rows)
    assert np.isinf(table[:, 1]).all()


def test_nearest_and_likeliest_class(data):
    rows, labels = data
    gaussians = fit_gaussians(rows, labels, 4)
    table = table_of(gaussians, rows)
    found = class_fit(gaussians, rows)
    np.testing.assert_array_equal(found.nearest, table.argmin(axis=1))
    posterior = table / 2 - np.log(np.bincount(labels) / 80)
    np.testing.assert_array_equal(found.likeliest, posterior.argmin(axis=1))
    relative = own_distances(gaussians, rows, labels, relative=True)
    own = own_distances(gaussians, rows, labels, relative=False)
    np.testing.assert_allclose(found.agnostic, own - relative, rtol=1e-8)
