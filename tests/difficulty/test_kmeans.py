import numpy as np
import pytest
from sklearn.cluster import KMeans

from confide import difficulty
from confide.checks import InputError
from confide.difficulty.from_features import Centres
from confide.numerics.neighbours import nearest_centre


def test_golden_distances_to_given_centroids(golden):
    inputs, expected = golden("inputs_F"), golden("kmeans_prototype")
    distance, index = nearest_centre(inputs["features"], inputs["centroids"])
    np.testing.assert_allclose(distance, expected["nearest_dist"], rtol=1e-9)
    np.testing.assert_array_equal(index, expected["assign"])
    cosine, _ = nearest_centre(inputs["features"], inputs["centroids"], distance="cosine")
    np.testing.assert_allclose(cosine, expected["cosine_dist"], rtol=1e-9)
    fitted = Centres(expected["kmeans_centroids"], 0.0, "l2")
    np.testing.assert_allclose(fitted.values_of(inputs["features"], None), expected["kmeans_dist"], rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inertia_is_that_of_scikit_learn_within_one_percent(dtype):
    draw = np.random.default_rng(0)
    centres = 10 * draw.normal(size=(8, 12))
    rows = (draw.normal(size=(4000, 12)) + centres[draw.integers(0, 8, 4000)]).astype(dtype)
    ours = difficulty.kmeans(rows, None, k=8, iterations=50)
    theirs = KMeans(8, n_init=3, random_state=0).fit(rows)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=0.01)


def test_labels_only_give_the_number_of_centres(clusters):
    rows, labels, _ = clusters()
    scores = difficulty.score("kmeans", rows, labels)
    np.testing.assert_array_equal(scores.values, difficulty.score("kmeans", rows, k=5).values)
    assert (scores.values >= 0).all()


def test_an_outlier_is_hard(clusters):
    rows, labels, _ = clusters()
    rows = np.concatenate([rows, [rows[labels == 0].mean(axis=0) + 30]])
    scores = difficulty.fit("kmeans", rows[:-1], k=5).score(rows)
    assert scores.values.argmax() == 600


def test_repeated_rows_and_empty_clusters_stay_finite():
    rows = np.repeat(np.arange(3.0)[:, None], 20, axis=0) @ np.ones((1, 2))
    scores = difficulty.score("kmeans", rows, k=10)
    assert np.isfinite(scores.values).all()


def test_more_centres_than_samples_are_refused():
    with pytest.raises(InputError, match="at most the 3 samples"):
        difficulty.score("kmeans", np.eye(3), k=4)


def test_nan_is_named(clusters):
    rows, _, _ = clusters(n=5000)
    rows[4321, 2] = np.nan
    with pytest.raises(InputError, match="got nan at sample 4321 of 5000"):
        difficulty.score("kmeans", rows, k=3)


@pytest.mark.parametrize("word", ["kmeans", "prototype"])
def test_features_whose_distances_overflow_are_one_line(word):
    rows = (1e30 * np.random.default_rng(0).normal(size=(60, 4))).astype(np.float32)
    with pytest.raises(InputError, match="small enough for distances"):
        difficulty.score(word, rows, np.arange(60) % 3)


def test_centres_beyond_one_block_are_those_of_one_block(monkeypatch):
    from confide.difficulty import from_features
    from confide.numerics import neighbours

    draw = np.random.default_rng(3)
    rows = draw.normal(size=(101, 4)) + 8 * draw.integers(0, 3, 101)[:, None]
    labels = np.zeros(101, dtype=int)
    whole = difficulty.score("kmeans", rows, labels, k=3)
    monkeypatch.setattr(from_features, "cache_rows", lambda *_: 7)
    monkeypatch.setattr(neighbours, "cache_rows", lambda *_: 7)
    np.testing.assert_allclose(difficulty.score("kmeans", rows, labels, k=3).values, whole.values, rtol=1e-6)
