from pathlib import Path

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf_shrinkage

from confide.numerics.gaussians import fit_gaussians, ledoit_wolf_intensity, oas_intensity, shrunk

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def features():
    with np.load(GOLDEN / "inputs_F.npz") as archive:
        return archive["features"], archive["labels"]


def fourth(rows):
    return float(((rows**2).sum(axis=1) ** 2).mean())


def test_worked_numbers_of_the_within_class_rows(features):
    rows, labels = features
    gaussians = fit_gaussians(rows, labels, 4, shrinkage="ledoit_wolf")
    assert gaussians.intensity[0] == pytest.approx(0.03949605, abs=1e-8)
    assert fit_gaussians(rows, labels, 4, shrinkage="oas").intensity[0] == pytest.approx(0.02692446, abs=1e-8)


def test_worked_numbers_of_five_rows_in_six_dimensions(features):
    rows = features[0][:5] - features[0][:5].mean(axis=0)
    covariance = rows.T @ rows / 5
    intensity = ledoit_wolf_intensity(covariance, 5, fourth(rows))
    assert intensity == pytest.approx(0.39836365, abs=1e-8)
    assert np.linalg.eigvalsh(shrunk(covariance, intensity))[0] == pytest.approx(3.1589, abs=1e-4)
    assert oas_intensity(covariance, 5) == pytest.approx(0.50580296, abs=1e-8)


def test_ledoit_wolf_is_that_of_scikit_learn():
    rows = np.random.default_rng(0).normal(size=(30, 12)) * np.arange(1, 13)
    covariance = rows.T @ rows / 30
    expected = ledoit_wolf_shrinkage(rows, assume_centered=True)
    assert ledoit_wolf_intensity(covariance, 30, fourth(rows)) == pytest.approx(expected, abs=1e-12)


def test_a_multiple_of_the_identity_needs_no_shrinkage():
    assert ledoit_wolf_intensity(2 * np.eye(3), 10, 100.0) == 0.0
    assert oas_intensity(2 * np.eye(3), 10) == 0.0


def test_full_shrinkage_is_the_scaled_identity():
    np.testing.assert_allclose(shrunk(np.diag([1.0, 3.0]), 1.0), 2 * np.eye(2))
