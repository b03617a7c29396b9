import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError
from confide.difficulty.harden import distinct_rows
from confide.records import Features, Scores


@pytest.fixture
def scores():
    draw = np.random.default_rng(0)
    ids = np.array([f"s{i}" for i in range(200)])
    labels = np.repeat(np.arange(4), 50)
    return Scores(ids, draw.normal(size=200) + labels, "rmd", {"shrinkage": "auto"}, labels)


def test_the_hardest_fraction_hardest_first(scores):
    hard = difficulty.harden(scores, fraction=0.1)
    assert len(hard.rows) == 20
    np.testing.assert_array_equal(np.sort(hard.rows), np.sort(np.argsort(scores.values)[-20:]))
    assert (np.diff(scores.values[hard.rows]) <= 0).all()


def test_stratified_takes_the_same_share_of_every_class(scores):
    hard = difficulty.harden(scores, fraction=0.1, stratify=True)
    assert np.bincount(scores.labels[hard.rows]).tolist() == [5, 5, 5, 5]


def test_near_duplicates_make_room_for_the_next(scores):
    rows = np.random.default_rng(1).normal(size=(200, 16))
    order = np.argsort(-scores.values)
    rows[order[1]] = rows[order[0]] + 1e-3
    rows[order[7]] = rows[order[3]] * 1.001
    shuffled = np.random.default_rng(2).permutation(200)
    features = Features(rows[shuffled], scores.labels[shuffled], scores.ids[shuffled], "made")
    hard = difficulty.harden(scores, fraction=0.1, features=features, similarity=0.99)
    assert len(hard.rows) == 20
    assert hard.left_out == 2
    expected = [r for r in order[:22] if r not in (order[1], order[7])]
    np.testing.assert_array_equal(hard.rows, expected)


def test_distinct_rows_across_chunks(monkeypatch):
    monkeypatch.setitem(distinct_rows.__globals__, "COMPARED_ROWS", 4)
    rows = np.repeat(np.eye(5), 3, axis=0)
    assert distinct_rows(rows, np.arange(15), 10, 0.9).tolist() == [0, 3, 6, 9, 12]


def test_the_card_says_how_it_was_made(scores):
    card = difficulty.harden(scores, fraction=0.1, stratify=True).card("my data", class_names=["a", "b", "c", "d"])
    assert "hardest 10 % by `rmd`, the same share of every class: 20 of 200" in card
    assert "near-duplicates left out: not looked for" in card
    assert "- a: 5" in card
    assert "keep its licence" in card


def test_stratifying_needs_labels(scores):
    with pytest.raises(InputError, match="needs labels"):
        difficulty.harden(Scores(scores.ids, scores.values, "kmeans"), stratify=True)


def test_bad_fraction_gets_one_line(scores):
    with pytest.raises(InputError, match="fraction must lie in"):
        difficulty.harden(scores, fraction=0.0)
