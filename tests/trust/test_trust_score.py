"""TrustScore against the released code and the paper's formula."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import confide
from confide.checks import InputError
from confide.numerics.neighbours import smallest_of_rows
from confide.trust import fit
from confide.trust.distances import restore_trust_score

GOLDEN = Path(__file__).parents[1] / "golden"
TRAINING = np.load(GOLDEN / "inputs_F.npz")
CLASSES = int(TRAINING["labels"].max()) + 1


def predicted(classes):
    return confide.Predictions(torch.nn.functional.one_hot(torch.tensor(classes), CLASSES).double(), classes)


def scores(vector, **options):
    trust = fit("trust_score", predicted(TRAINING["labels"]), TRAINING["features"], **options)
    return trust(predicted(vector["test_pred"]), vector["test_x"]).numpy()


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("score_none_a0.0", {}),
        ("score_density_a0.1", {"filtering": "density", "alpha": 0.1}),
        ("score_uncertainty_a0.1", {"filtering": "uncertainty_released", "alpha": 0.1}),
    ],
)
def test_golden_vectors_of_the_released_code(key, options):
    vector = np.load(GOLDEN / "trustscore.npz")
    assert_allclose(scores(vector, neighbour=2, **options), vector[key], rtol=1e-9, atol=1e-12)


def test_golden_vector_of_the_paper():
    vector = np.load(GOLDEN / "trustscore_paper_nn1.npz")
    assert_allclose(scores(vector), vector["score"], rtol=1e-9, atol=1e-12)


def test_ratio_of_distances_on_a_line():
    # Class 0 at 0, class 1 at 10; the sample at 2 is called 0: 8 / 2, or 1: 2 / 8.
    trust = fit("trust_score", confide.Predictions([[1.0, 0.0], [0.0, 1.0]], [0, 1]), [[0.0], [10.0]])
    values = trust(confide.Predictions([[1.0, 0.0], [0.0, 1.0]], [0, 0]), [[2.0], [2.0]])
    assert_allclose(values.numpy(), [4.0, 0.25], rtol=1e-6)


def test_a_predicted_class_without_points_is_never_trusted():
    trust = fit("trust_score", confide.Predictions(torch.eye(3)[:2], [0, 1]), [[0.0], [10.0]])
    assert float(trust(confide.Predictions([[0.0, 0.0, 1.0]], [2]), [[2.0]])) == 0.0


def test_one_class_is_refused():
    with pytest.raises(InputError, match="two classes or more"):
        fit("trust_score", confide.Predictions(torch.eye(2), [0, 0]), [[0.0], [10.0]])


def test_float32_near_duplicates_keep_their_digits():
    generator = torch.Generator().manual_seed(0)
    points = 1000 + torch.randn(200, 16, generator=generator)
    labels = torch.arange(200) % 2
    trust = fit("trust_score", confide.Predictions(torch.eye(2)[labels], labels), points)
    moved = points[:20] + 1e-3
    got = trust(confide.Predictions(torch.eye(2)[labels[:20]], labels[:20]), moved)
    exact = torch.cdist(moved.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    other = torch.where(labels[None] != labels[:20, None], exact, torch.inf).min(dim=1).values
    own = torch.where(labels[None] == labels[:20, None], exact, torch.inf).min(dim=1).values
    torch.testing.assert_close(got.double(), other / own, rtol=2e-2, atol=0)


@pytest.mark.parametrize(("width", "k"), [(1, 1), (5, 2), (31, 3), (700, 1), (700, 2), (701, 5), (64, 70)])
def test_smallest_of_rows_are_the_smallest(width, k):
    table = np.random.default_rng(0).normal(size=(40, width)).astype(np.float32)
    columns = smallest_of_rows(table, k)
    assert_allclose(np.sort(np.take_along_axis(table, columns, axis=1), axis=1), np.sort(table, axis=1)[:, :k])


def test_neighbours_are_found_in_float32_where_classes_lie_far_apart():
    """Points a hundredth apart in classes a hundred apart: products about a common centre lose what tells them."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    points = (100 * rng.normal(size=(4, 32))[labels] + 0.01 * rng.normal(size=(400, 32))).astype(np.float32)
    rows = (points[:60] + 0.003 * rng.normal(size=(60, 32))).astype(np.float32)
    known, asked = (confide.Predictions(np.eye(4)[y], y) for y in (labels, labels[:60]))
    narrow, wide = (
        fit("trust_score", known, points.astype(kind))(asked, rows.astype(kind)) for kind in (np.float32, np.float64)
    )
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-3, atol=0)


def test_a_file_with_one_centre_for_all_classes_is_read(tmp_path):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 60)
    predictions, rows = confide.Predictions(np.eye(3)[labels], labels), rng.normal(size=(60, 4))
    trust = fit("trust_score", predictions, rows)
    scorer, shift = trust.scorer, rng.normal(size=4)
    state = {"points": scorer.points + scorer.centre[np.sort(labels)] - shift, "centre": shift, "bounds": scorer.bounds}
    again = restore_trust_score({"neighbour": 1}, {name: torch.from_numpy(array) for name, array in state.items()})
    moved = torch.from_numpy(rows + 0.1)
    torch.testing.assert_close(again(predictions, moved), trust(predictions, moved))


def test_a_filter_drops_the_farthest_points_and_no_other():
    # Class 0 lies at 0 ... 0.3 with a stray point at 10, class 1 at 20 ... 20.3 with one at 30; a fifth is dropped.
    rows = np.array([[0.0], [0.1], [0.2], [0.3], [10.0], [20.0], [20.1], [20.2], [20.3], [30.0]])
    labels = np.repeat([0, 1], 5)
    at_ten = confide.Predictions(torch.eye(2)[[0]], [0]), np.array([[10.5]])
    whole, dense = (
        fit("trust_score", confide.Predictions(torch.eye(2)[labels], labels), rows, k=2, **options)(*at_ten)
        for options in ({}, {"filtering": "density", "alpha": 0.2})
    )
    # With the stray point 9.5 / 0.5; without it the nearest of class 0 is at 0.3, and 20 is still there.
    assert_allclose([float(whole), float(dense)], [9.5 / 0.5, 9.5 / 10.2], rtol=1e-5)
