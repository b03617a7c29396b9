"""Classes within a limit and the scores of labels, against the definition: every row sorted, class by class."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from confide.predictions import Predictions
from confide.sets.base import SETS, ClassRows, SetScore, sample_draws

OPTIONS = {
    "lac": ({},),
    "aps": ({"randomized": True}, {"randomized": False}),
    "raps": ({"penalty": 0.1, "k_reg": 2, "randomized": True}, {"penalty": 0.0, "k_reg": 1, "randomized": False}),
    "saps": ({"weight": 0.1, "randomized": True}, {"weight": 0.0, "randomized": False}),
    "top_k": ({"randomized": True}, {"randomized": False}),
}
CASES = [(word, options) for word, all_ in OPTIONS.items() for options in all_]


def rows_of(classes: int, dtype: type) -> np.ndarray:
    """Sharp and flat rows, ties, certainty, and zeros behind."""
    draws = np.random.default_rng(classes)
    rows = [draws.dirichlet(np.full(classes, a), 6) for a in (0.05, 0.5, 50.0)]
    rows += [np.eye(classes)[[0, classes - 1]], np.full((1, classes), 1 / classes)]
    tied = np.zeros((2, classes))
    tied[0, :2], tied[1, -2:] = 0.5, 0.5
    return np.concatenate([*rows, tied]).astype(dtype)


def defined(score: SetScore, predictions: Predictions) -> np.ndarray:
    """The score of every class: those of a row in falling order, of equals the lower class first."""
    probs = predictions.probabilities().numpy()
    draws = sample_draws(predictions, score.seed)
    scores = np.empty(probs.shape)
    for k, row in enumerate(probs):
        order = np.array(sorted(range(len(row)), key=lambda c: (-row[c], c)))
        scores[k, order] = score.method.function(
            ClassRows(row[order][None].astype(np.float64), draws[k].reshape(1, 1)), **score.options
        )[0]
    return scores


@pytest.mark.parametrize("classes", [2, 3, 8, 17, 24, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_sets_and_scores_are_those_of_the_definition(word, options, dtype, classes):
    predictions = Predictions.from_probs(torch.from_numpy(rows_of(classes, dtype)))
    score, n = SetScore(SETS.get(word), options, seed=3), len(predictions)
    scores, top = defined(score, predictions), predictions.probabilities().numpy().argmax(axis=1)
    labels = np.arange(n) % classes
    np.testing.assert_allclose(score.of_labels(predictions, torch.from_numpy(labels)), scores[np.arange(n), labels])
    spread = np.quantile(scores, (0.0, 0.1, 0.5, 0.9, 1.0))
    by_class = np.resize([spread[2] + 1e-9, np.inf, spread[1] + 1e-9, -1.0], (1, classes))
    by_sample = np.resize([spread[3] + 1e-9, -1.0, spread[1] + 1e-9, np.inf, spread[0] + 1e-9], (n, 1))
    first_alone, first_two = (np.sort(scores, axis=1)[:, [k]] + 1e-9 for k in (0, 1))
    for limits in (
        np.array([[spread[2] + 1e-9]]),
        np.array([[np.inf]]),
        np.array([[-1.0]]),
        by_class,
        by_sample,
        first_alone,
        first_two,
    ):
        for always in (False, True):
            inside = np.concatenate([block for _, block in score.admitted(predictions, limits, always)])
            expected = scores <= limits
            if always:
                expected[np.arange(n), top] = True
            np.testing.assert_array_equal(inside, expected, err_msg=f"{limits[:3]}")


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_a_score_exactly_at_the_limit_is_inside(word, options):
    predictions = Predictions.from_probs([[0.5, 0.25, 0.125, 0.125]] * 3)
    score = SetScore(SETS.get(word), options, seed=1)
    scores = score.of_labels(predictions, torch.tensor([1, 1, 1]))
    limits = scores[:, None]
    for shape, taken in ((limits, [0, 1, 2]), (limits[:1], [0])):
        inside = np.concatenate([block for _, block in score.admitted(predictions, shape, False)])
        assert all(inside[k, 1] for k in taken)
        below = np.concatenate([block for _, block in score.admitted(predictions, shape - 1e-9, False)])
        assert not any(below[k, 1] for k in taken)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lac_compares_probabilities_as_it_would_compare_their_scores(dtype):
    predictions = Predictions.from_probs(torch.from_numpy(rows_of(17, dtype)))
    score = SetScore(SETS.get("lac"), {})
    scores = 1 - predictions.probabilities().numpy().astype(np.float64)
    for limit in np.unique(scores)[::7]:
        # At a score itself, and at its neighbours, where rounding would let one in or out.
        for at in (np.nextafter(limit, -1), limit, np.nextafter(limit, 2)):
            inside = np.concatenate([block for _, block in score.admitted(predictions, np.array([[at]]), False)])
            np.testing.assert_array_equal(inside, scores <= at)


def test_small_blocks_give_the_same_sets(monkeypatch):
    predictions = Predictions.from_probs(torch.from_numpy(rows_of(24, np.float64)))
    whole = {}
    for size, (word, options) in itertools.product((1 << 20, 100), CASES):
        monkeypatch.setattr("confide.predictions.record.CACHED_FLOAT64", size)
        score = SetScore(SETS.get(word), options)
        limits = np.resize([0.3, 0.6, np.inf], (1, 24))
        inside = np.concatenate([block for _, block in score.admitted(predictions, limits, True)])
        np.testing.assert_array_equal(inside, whole.setdefault((word, str(options)), inside))
