"""Factors of matrices, by LAPACK on the host and by torch where the rows were ("cpu:0" takes torch's way)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.checks import InputError
from confide.numerics.blocks import cholesky, eigh, solve_lower
from confide.numerics.gaussians import ThinGaussians, fit_gaussians, gaussians_from, moments_of, shrunk

DEVICES = ("cpu", "cpu:0")
DRAW = np.random.default_rng(0)
FACTOR = np.tril(DRAW.normal(size=(6, 6))) + 4 * np.eye(6)
MATRIX = FACTOR @ FACTOR.T


@pytest.mark.parametrize("device", DEVICES)
def test_a_factor_is_found_or_refused(device):
    np.testing.assert_allclose(cholesky(MATRIX, device), FACTOR, atol=1e-12)
    assert cholesky(MATRIX - 100 * np.eye(6), device) is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("transposed", [False, True])
def test_triangles_are_solved(device, transposed):
    columns = DRAW.normal(size=(6, 3))
    left = FACTOR.T if transposed else FACTOR
    found = solve_lower(FACTOR, left @ columns, transposed=transposed, device=device)
    np.testing.assert_allclose(found, columns, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_eigenvectors_rebuild_the_matrix(device):
    values, vectors = eigh(MATRIX, device)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(vectors * values @ vectors.T, MATRIX, atol=1e-10)


@pytest.mark.parametrize(("classes", "shrinkage"), [(3, "auto"), (30, "auto"), (3, "ledoit_wolf"), (3, 0.1)])
def test_projections_do_not_depend_on_where_they_are_made(classes, shrinkage):
    rows, labels = DRAW.normal(size=(400, 12)), np.arange(400) % classes

    def squares(device):
        moments = replace(moments_of(rows, labels, classes), device=device)
        found = gaussians_from(moments, lambda centres, by_class: 200.0, shrinkage=shrinkage).relative()
        return ((rows - found.origin) @ found.matrix) ** 2 @ (1 - found.inverse_total)

    np.testing.assert_allclose(squares("cpu:0"), squares("cpu"), rtol=1e-9, atol=1e-9)


def test_too_little_shrinkage_is_told():
    rows = DRAW.normal(size=(8, 12))
    with pytest.raises(InputError, match="a shrinkage of 0 leaves the shared covariance without full rank"):
        fit_gaussians(rows, np.arange(8) % 2, 2, shrinkage=0.0)


@pytest.mark.parametrize("shrinkage", ["auto", "oas", 0.3])
def test_fewer_rows_than_columns_give_the_distances_of_the_whole_covariances(shrinkage):
    draw = np.random.default_rng(1)
    labels = np.arange(30) % 3
    rows = draw.normal(size=(30, 50)) * draw.uniform(0.1, 3.0, 50) + 5 + draw.normal(size=(3, 50))[labels]
    rows[:, 7] = 2.0
    fitted = fit_gaussians(rows, labels, 3, shrinkage=shrinkage)
    assert isinstance(fitted, ThinGaussians)
    others = draw.normal(size=(20, 50)) + 5
    others[:, 7] = 2.0
    keep, moments = np.arange(50) != 7, fitted.moments
    for covariance, share, centres, weights in (
        (moments.within(), fitted.intensity[0], moments.means, np.ones(200)),
        (moments.total(), fitted.intensity[1], moments.mean[None], fitted.whitening().inverse_total),
    ):
        whole = shrunk(covariance[np.ix_(keep, keep)], share)
        gaps = (others - centres[0])[:, keep]
        projection = fitted.whitening()
        moved = (others - projection.origin) @ projection.matrix
        at = projection.centres[0] if len(centres) == 3 else 0.0
        expected = np.einsum("nd,nd->n", gaps @ np.linalg.inv(whole), gaps)
        np.testing.assert_allclose((moved - at) ** 2 @ weights[: moved.shape[1]], expected, rtol=1e-8)
