import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError
from confide.records import Features, Scores


@pytest.fixture
def night_and_day():
    """Two classes in a space whose second axis is 'dark': hard samples of class 0 are dark ones."""
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50)
    hard = np.tile(np.arange(50) >= 40, 2)
    rows = 0.05 * draw.normal(size=(100, 4))
    rows[:, 0] += 1
    rows[hard & (labels == 0), 1] += 1
    rows[hard & (labels == 1), 2] += 1
    ids = np.arange(100)
    return Features(rows, labels, ids, "made"), Scores(ids, hard + 0.01 * draw.normal(size=100), "rmd")


def test_words_the_hard_samples_are_closer_to(night_and_day):
    features, scores = night_and_day
    vocabulary = ("animal", "dark", "blurry", "nothing")
    found = difficulty.explain(features, scores, vocabulary, np.eye(4), each=1)
    assert [(f.label, f.hard[0]) for f in found] == [(0, "dark"), (1, "blurry")]
    assert found[0].easy == ("animal",)
    assert found[0].hard_lean[0] > 0.3


def test_words_of_another_space_are_refused(night_and_day):
    features, scores = night_and_day
    with pytest.raises(InputError, match="use the extractor that made the features"):
        difficulty.explain(features, scores, ("a",), np.ones((1, 3)))


def test_a_vocabulary_has_a_word_a_line(tmp_path):
    (tmp_path / "words.txt").write_text("dark\n\nblurry\ndark\n")
    assert difficulty.read_vocabulary(tmp_path / "words.txt") == ("dark", "blurry")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="at least one word"):
        difficulty.read_vocabulary(tmp_path / "empty.txt")
    with pytest.raises(InputError, match="does not exist"):
        difficulty.read_vocabulary(tmp_path / "none.txt")
