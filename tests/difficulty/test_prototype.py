import numpy as np

from confide import difficulty


def test_golden_vector(golden):
    inputs, expected = golden("inputs_F"), golden("kmeans_prototype")
    scores = difficulty.score("prototype", inputs["features"], inputs["labels"])
    np.testing.assert_allclose(scores.values, expected["supervised_prototype"], rtol=1e-9)


def test_cosine_does_not_see_lengths(clusters):
    rows, labels, _ = clusters()
    fitted = difficulty.fit("prototype", rows, labels, distance="cosine")
    scale = np.random.default_rng(0).uniform(0.1, 10, size=(len(rows), 1))
    np.testing.assert_allclose(fitted.score(rows * scale, labels).values, fitted.score(rows, labels).values, atol=1e-12)


def test_nearest_prototype_is_never_farther_than_the_own(clusters):
    rows, labels, _ = clusters()
    fitted = difficulty.fit("prototype", rows, labels)
    assert (fitted.score(rows, "min").values <= fitted.score(rows, labels).values + 1e-12).all()
