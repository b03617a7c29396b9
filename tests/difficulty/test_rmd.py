import numpy as np
import pytest
import torch

from confide import difficulty
from confide.checks import InputError, OptionError
from confide.records import Features


def test_golden_vector(golden):
    inputs, expected = golden("inputs_F"), golden("rmd")
    scores = difficulty.score("rmd", inputs["features"], inputs["labels"])
    np.testing.assert_allclose(scores.values, expected["rmd"], rtol=1e-8, atol=1e-9)
    flipped = inputs["flipped"]
    assert scores.values[flipped].mean() == pytest.approx(float(expected["mean_rmd_flipped"]))


def test_mean_is_zero_on_the_fitting_data(clusters):
    rows, labels, _ = clusters()
    assert abs(difficulty.score("rmd", rows, labels).values.mean()) < 1e-10


def test_mean_is_zero_when_there_are_more_classes_than_columns(clusters):
    rows, labels, _ = clusters(n=900, dim=6, classes=40)
    assert abs(difficulty.score("rmd", rows, labels).values.mean()) < 1e-10


@pytest.mark.parametrize("classes", [3, 30])
def test_invariant_to_affine_maps(clusters, classes):
    rows, labels, _ = clusters(classes=classes)
    draw = np.random.default_rng(1)
    moved = rows @ (draw.normal(size=(8, 8)) + 3 * np.eye(8)) + 1000 * draw.normal(size=8)
    np.testing.assert_allclose(
        difficulty.score("rmd", moved, labels).values, difficulty.score("rmd", rows, labels).values, atol=1e-6
    )


@pytest.mark.parametrize(("n", "dim", "classes"), [(3000, 32, 10), (3000, 16, 50), (40, 6, 3)])
def test_matches_the_formula_of_the_paper(clusters, n, dim, classes):
    rows, labels, _ = clusters(n=n, dim=dim, classes=classes)
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(classes)])
    within, total = rows - means[labels], rows - rows.mean(axis=0)
    own = np.einsum("ni,ij,nj->n", within, np.linalg.inv(within.T @ within / n), within)
    all_data = np.einsum("ni,ij,nj->n", total, np.linalg.inv(total.T @ total / n), total)
    np.testing.assert_allclose(difficulty.score("rmd", rows, labels).values, own - all_data, rtol=1e-8, atol=1e-8)


def test_float32_keeps_one_millionth_per_dimension():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 100, 5000)
    # An offset and far apart classes would cost digits in products that are not centred.
    rows = draw.normal(size=(5000, 64)) + 30 * draw.normal(size=(100, 64))[labels] + 100
    exact = difficulty.score("rmd", rows.astype(np.float32).astype(np.float64), labels).values
    single = difficulty.score("rmd", rows.astype(np.float32), labels).values
    assert np.abs(single - exact).max() < 1e-6 * 64


def test_flipped_labels_are_hard(clusters):
    rows, labels, flipped = clusters()
    values = difficulty.score("rmd", rows, labels).values
    assert values[flipped].mean() > values[~flipped].mean() + 5


def test_fit_on_one_split_and_score_another_by_labels_likeliest_and_nearest_class(clusters):
    rows, labels, flipped = clusters(n=1200)
    fitted = difficulty.fit("rmd", rows[:800], labels[:800])
    own = fitted.score(rows[800:], labels[800:]).values
    nearest = fitted.score(rows[800:], "min").values
    likeliest = fitted.score(rows[800:], "predicted").values
    assert (nearest <= own + 1e-9).all()
    assert (nearest <= likeliest + 1e-9).all()
    agree = np.isclose(own, nearest)
    assert agree[~flipped[800:]].mean() > 0.9
    assert not agree[flipped[800:]].all()


def test_ids_follow_the_samples(clusters):
    rows, labels, _ = clusters()
    ids = np.array([f"s{i}" for i in range(len(labels))])
    scores = difficulty.score("rmd", Features(rows, labels, ids, "made"))
    np.testing.assert_array_equal(scores.ids, ids)
    np.testing.assert_array_equal(scores.labels, labels)
    assert scores.of(ids[[7, 3]]).tolist() == scores.values[[7, 3]].tolist()


def test_tensors_and_half_precision_rows_are_taken(clusters):
    rows, labels, _ = clusters(dtype=np.float32)
    expected = difficulty.score("rmd", rows, labels).values
    np.testing.assert_allclose(
        difficulty.score("rmd", torch.from_numpy(rows), torch.from_numpy(labels)).values, expected, rtol=1e-6
    )
    half = difficulty.score("rmd", rows.astype(np.float16), labels).values
    np.testing.assert_allclose(half, expected, atol=0.2)


def test_fewer_samples_than_dimensions_are_shrunk_and_it_is_said(clusters):
    rows, labels, _ = clusters(n=40, dim=64)
    scores = difficulty.score("rmd", rows, labels)
    assert np.isfinite(scores.values).all()
    assert np.ptp(scores.values) > 0.1
    assert any("Ledoit-Wolf" in note for note in scores.notes)


def test_without_shrinkage_a_rank_deficient_fit_is_refused(clusters):
    rows, labels, _ = clusters(n=40, dim=64)
    with pytest.raises(InputError, match="full rank"):
        difficulty.score("rmd", rows, labels, shrinkage="none")


def test_a_repeated_column_is_rank_deficient_and_shrunk(clusters):
    rows, labels, _ = clusters(dtype=np.float32)
    scores = difficulty.score("rmd", np.concatenate([rows, rows[:, :1] * 2], axis=1), labels)
    assert any("Ledoit-Wolf" in note for note in scores.notes)


def test_constant_columns_are_left_out_and_it_is_said(clusters):
    rows, labels, _ = clusters()
    wide = np.insert(rows, 3, 1234.5, axis=1)
    scores = difficulty.score("rmd", wide, labels)
    np.testing.assert_allclose(scores.values, difficulty.score("rmd", rows, labels).values, atol=1e-9)
    assert any("1 of 9 feature columns are constant" in note for note in scores.notes)


def test_classes_with_one_or_no_sample(clusters):
    rows, labels, _ = clusters()
    labels = np.where(labels == 4, 6, labels)
    labels[0] = 5
    scores = difficulty.score("rmd", rows, labels)
    assert np.isfinite(scores.values).all()
    assert any("1 classes have one sample" in note for note in scores.notes)
    fitted = difficulty.fit("rmd", rows, labels)
    with pytest.raises(InputError, match=r"class 4 .* has none"):
        fitted.score(rows[:3], np.array([0, 4, 1]))
    with pytest.raises(InputError, match=r"labels must lie in \[0, 7\), got 9"):
        fitted.score(rows[:3], np.array([0, 9, 1]))


def test_augmented_runs_fit_the_gaussians_and_plain_features_are_scored(clusters):
    rows, labels, _ = clusters()
    draw = np.random.default_rng(3)
    runs = [rows + 0.1 * draw.normal(size=rows.shape) for _ in range(5)]
    scores = difficulty.score("rmd", rows, labels, augmented=runs)
    stacked = difficulty.fit("rmd", np.concatenate(runs), np.tile(labels, 5)).score(rows, labels)
    np.testing.assert_allclose(scores.values, stacked.values, atol=1e-8)
    assert scores.options["augmented"] == "5 given"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(np.arange(len(x))[:, None] == 17, np.nan, x), y), "got nan at sample 17 of 600"),
        (lambda x, y: (np.ones_like(x), y), "features must vary"),
        (lambda x, y: (x, y[:-1]), "labels must be 600 class indices"),
        (lambda x, y: (x, y - 1), "labels must lie in"),
        (lambda x, y: (x, np.array(["cow", "dog", "cat"])[y % 3]), "got words such as '.*'; number them once"),
        (lambda x, y: (x[:, 0], y), "n x d"),
        (lambda x, y: (x[:0], y[:0]), "at least one row"),
        (lambda x, y: (x.astype(str), y), "features must be numbers"),
        (lambda x, y: (x, None), "labels must be given"),
        (lambda x, y: (x[:5], np.arange(5)), "every sample equals its class mean"),
    ],
)
def test_bad_input_gets_one_line(clusters, change, message):
    rows, labels, _ = clusters()
    with pytest.raises(InputError, match=message) as caught:
        difficulty.score("rmd", *change(rows, labels))
    assert "\n" not in str(caught.value)


def test_unknown_option_is_refused(clusters):
    rows, labels, _ = clusters()
    with pytest.raises(OptionError, match="shrinkage"):
        difficulty.score("rmd", rows, labels, shrinkag="none")


def test_other_columns_than_the_fit_are_refused(clusters):
    rows, labels, _ = clusters()
    with pytest.raises(InputError, match="8 columns of the fit, got 5"):
        difficulty.fit("rmd", rows, labels).score(rows[:, :5], labels)
