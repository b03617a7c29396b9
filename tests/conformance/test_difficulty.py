"""Every word of the difficulty family, one way of testing."""

import inspect

import numpy as np
import pytest

from confide import difficulty
from confide.checks import OptionError
from confide.difficulty import DIFFICULTY
from confide.records import Scores

WORDS = ("rmd", "md", "kmeans", "prototype", "combined", "confusion", "loss", "correctness", "entropy")
CASES = [(m.word, dict(corner)) for m in DIFFICULTY for corner in ({}, *m.corners)]


def inputs(word, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 4, 200)
    if DIFFICULTY.get(word).spec.source == "log":
        return draw.dirichlet(np.ones(4), size=(2, 3, 200)), labels
    return draw.normal(size=(200, 6)) + 3 * draw.normal(size=(4, 6))[labels], labels


def test_the_words_are_those_of_the_public_surface():
    assert set(difficulty.names()) == set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_word_is_a_function_of_the_package_and_is_explained(word):
    method = DIFFICULTY.get(word)
    assert method.function is getattr(difficulty, word)
    assert method.paper
    assert method.summary.endswith(".")
    documented = inspect.getdoc(method.function) or ""
    assert all(f"{option}:" in documented for option in method.options)


@pytest.mark.parametrize(("word", "options"), CASES)
def test_one_finite_value_per_sample(word, options):
    source, labels = inputs(word)
    scores = difficulty.score(word, source, labels, **options)
    assert isinstance(scores, Scores)
    assert scores.method == word
    assert scores.values.shape == (200,)
    assert scores.values.dtype == np.float64
    assert np.isfinite(scores.values).all()
    assert len(scores.ids) == 200


@pytest.mark.parametrize("word", WORDS)
def test_the_order_of_samples_does_not_matter(word):
    source, labels = inputs(word)
    order = np.random.default_rng(1).permutation(200)
    moved = source[..., order, :]
    plain, shuffled = (difficulty.score(word, s, y).values for s, y in ((source, labels), (moved, labels[order])))
    if word == "kmeans":  # the first centres depend on the order; well separated clusters are found all the same
        assert np.corrcoef(shuffled, plain[order])[0, 1] > 0.5
    else:
        np.testing.assert_allclose(shuffled, plain[order], atol=1e-8)


@pytest.mark.parametrize("word", WORDS)
def test_it_is_deterministic(word):
    source, labels = inputs(word)
    np.testing.assert_array_equal(
        difficulty.score(word, source, labels).values, difficulty.score(word, source, labels).values
    )


@pytest.mark.parametrize("word", WORDS)
def test_unknown_options_are_refused(word):
    source, labels = inputs(word)
    with pytest.raises(OptionError, match=f"difficulty '{word}' has no option 'nonsense'"):
        difficulty.score(word, source, labels, nonsense=1)


@pytest.mark.parametrize("word", WORDS)
def test_scores_are_written_and_read_back(word, tmp_path):
    source, labels = inputs(word)
    scores = difficulty.score(word, source, labels)
    scores.save(tmp_path / "scores.parquet")
    again = Scores.load(tmp_path / "scores.parquet")
    np.testing.assert_array_equal(again.values, scores.values)
    assert again.method == word


@pytest.mark.parametrize("word", WORDS)
def test_high_is_hard(word):
    """A sample far from its class, or that a model gets wrong and is unsure of, scores above the median."""
    source, labels = inputs(word)
    if DIFFICULTY.get(word).spec.source == "log":
        source = np.tile(np.eye(4)[labels] * 0.96 + 0.01, (2, 3, 1, 1))
        source[:, :, 0] = np.roll([0.4, 0.3, 0.2, 0.1], labels[0] + 1)
    else:
        source = source.copy()
        source[0] += 40 * np.random.default_rng(5).normal(size=6)
    fitted_on = source if DIFFICULTY.get(word).spec.source == "log" else None
    if fitted_on is not None:
        values = difficulty.score(word, source, labels).values
    else:
        values = difficulty.fit(word, source[1:], labels[1:]).score(source, labels).values
    assert values[0] == values.max()
