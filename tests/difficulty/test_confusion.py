import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError


def test_golden_vector(golden):
    probs, expected = golden("inputs_G")["probs"], golden("confusion_score")
    np.testing.assert_allclose(difficulty.score("confusion", probs).values, expected["score"], rtol=1e-9)
    np.testing.assert_allclose(difficulty.score("confusion", probs, base=2).values, expected["score_base2"], rtol=1e-9)


def test_one_epoch_is_the_golden_of_that_epoch(golden):
    probs, expected = golden("inputs_G")["probs"], golden("confusion_score")
    np.testing.assert_allclose(difficulty.score("confusion", probs, epochs=2).values, expected["s_t"][2], rtol=1e-9)


def test_it_is_the_entropy_of_the_mean_not_the_mean_of_entropies():
    probs = np.array([[[[1.0, 0.0]]], [[[0.0, 1.0]]]])  # two sure members that disagree
    assert difficulty.score("confusion", probs).values[0] == pytest.approx(np.log(2))


def test_certain_predictions_have_no_entropy():
    assert difficulty.score("confusion", np.eye(3)).values.tolist() == [0.0, 0.0, 0.0]


def test_many_rows_cross_blocks():
    draw = np.random.default_rng(0)
    probs = draw.dirichlet(np.ones(10), size=(2, 3, 20_000))
    mean = probs.mean(axis=0)
    expected = -(mean * np.log(mean)).sum(axis=2).mean(axis=0)
    np.testing.assert_allclose(difficulty.score("confusion", probs).values, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("probs", "options", "message"),
    [
        (np.ones(4), {}, "n x c"),
        (np.full((3, 4), 2.0), {}, "are these logits"),
        (np.full((3, 4), 0.25), {"epochs": (5,)}, "among the recorded 0 to 0"),
        (np.full((3, 4), 0.25), {"base": 1}, "base must lie in"),
        (np.full((3, 4), np.nan), {}, "finite"),
    ],
)
def test_bad_input_gets_one_line(probs, options, message):
    with pytest.raises(InputError, match=message):
        difficulty.score("confusion", probs, **options)


def test_it_is_not_fitted_on_features():
    with pytest.raises(InputError, match="read from a training log"):
        difficulty.fit("confusion", np.ones((3, 2)), [0, 1, 0])
