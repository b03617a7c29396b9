import numpy as np

from confide import difficulty


def test_golden_vector(golden):
    inputs, expected = golden("inputs_F"), golden("rmd")
    scores = difficulty.score("md", inputs["features"], inputs["labels"])
    np.testing.assert_allclose(scores.values, expected["md"], rtol=1e-8, atol=1e-9)


def test_mean_is_the_number_of_dimensions_on_the_fitting_data(clusters):
    rows, labels, _ = clusters()
    assert abs(difficulty.score("md", rows, labels).values.mean() - 8) < 1e-10


def test_ledoit_wolf_worked_number(golden):
    inputs = golden("inputs_F")
    scores = difficulty.score("md", inputs["features"], inputs["labels"], shrinkage="ledoit_wolf")
    assert abs(scores.values.mean() - 5.7512) < 1e-4


def test_minimum_over_classes_is_the_smallest_distance(clusters):
    rows, labels, _ = clusters()
    fitted = difficulty.fit("md", rows, labels)
    by_class = np.stack([fitted.score(rows, np.full(len(rows), k)).values for k in range(5)])
    np.testing.assert_allclose(fitted.score(rows, "min").values, by_class.min(axis=0), atol=1e-8)


def test_rmd_subtracts_the_same_from_md_for_every_class(clusters):
    """One code fits both: between two classes of a row they differ by the same amount."""
    rows, labels, _ = clusters(n=100)
    between = []
    for word in difficulty.from_features.GAUSSIAN_WORDS:
        fitted = difficulty.fit(word, rows, labels, shrinkage=0.2)
        own, other = (fitted.score(rows, chosen).values for chosen in (labels, (labels + 1) % 5))
        between.append(other - own)
    np.testing.assert_allclose(*between, rtol=1e-9, atol=1e-9)
