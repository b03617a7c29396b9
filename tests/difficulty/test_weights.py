import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError
from confide.records import Scores


@pytest.mark.parametrize("temperature", ["0.7", "5", "20"])
def test_golden_vector(golden, temperature):
    expected = golden(f"difficulty_weight_T{temperature}")
    values = difficulty.weights(expected["rmd"], temperature=float(temperature), c=1e-3)
    np.testing.assert_allclose(values, expected["s_stable"], rtol=1e-7, atol=1e-12)


def test_huge_scores_do_not_overflow():
    values = difficulty.weights(np.array([-1e6, 0.0, 1e6, 1e6]))
    assert values.tolist() == [0.0, 0.0, pytest.approx(1 / 1.001), pytest.approx(1 / 1.001)]


@pytest.mark.parametrize("normalize", ["none", "minmax", "standardize", "rank"])
def test_weights_lie_in_the_unit_interval_and_rise_with_difficulty(normalize):
    scores = np.random.default_rng(0).normal(scale=3, size=500)
    values = difficulty.weights(scores, normalize=normalize)
    assert values.min() >= 0
    assert values.max() == pytest.approx(1 / 1.001)
    assert (np.diff(values[np.argsort(scores)]) >= 0).all()


def test_minmax_at_the_papers_temperature_reaches_down_to_a_quarter():
    # exp(-1 / 0.7) / 1.001 = 0.2394
    assert difficulty.weights(np.array([0.0, 5.0, 10.0]), normalize="minmax").min() == pytest.approx(0.2394, abs=1e-4)


def test_rank_does_not_see_the_scale_and_shares_ties():
    values = difficulty.weights(np.array([1.0, 1.0, 1e9, -5.0]), normalize="rank", temperature=1.0, c=0.0)
    # ranks 1.5, 1.5, 3, 0 of 3
    np.testing.assert_allclose(values, np.exp([-0.5, -0.5, 0.0, -1.0]))


def test_equal_scores_make_equal_weights():
    for normalize in ("minmax", "standardize", "rank"):
        np.testing.assert_allclose(difficulty.weights(np.full(4, 7.0), normalize=normalize), 1 / 1.001)


def test_scores_record_is_taken():
    scores = Scores(np.arange(3), np.array([0.0, 1.0, 2.0]), "rmd")
    np.testing.assert_array_equal(difficulty.weights(scores), difficulty.weights(scores.values))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"temperature": 0.0}, "temperature"), ({"c": -1.0}, "c must"), ({"normalize": "log"}, "normalize")],
)
def test_bad_options_get_one_line(options, message):
    with pytest.raises(InputError, match=message):
        difficulty.weights(np.arange(3.0), **options)


def test_nan_scores_are_refused():
    with pytest.raises(InputError, match="got nan at sample 1 of 2"):
        difficulty.weights(np.array([0.0, np.nan]))
