"""A second opinion: the best sum of logits and opinions, opinions that say nothing, kept classes, files, refusals."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from confide import Features, Predictions, calibrators, difficulty, trust
from confide.calibrators.base import log_odds, with_log_odds
from confide.calibrators.evidence import reference_of
from confide.calibrators.second_opinion import gaussian_difficulty, part_of
from confide.checks import InputError

CLASSES = 4
second_opinion = import_module("confide.calibrators.second_opinion")  # the package has the calibrator of this name


def task(n: int, seed: int, split: str, signal: float = 2.0):
    """Predictions and features whose errors are independent: classes as Gaussians around corners, two noisy views."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=n)
    logits = 3 * (np.eye(CLASSES)[labels] + draw.normal(size=(n, CLASSES)))
    rows = signal * np.eye(CLASSES, 6)[labels] + draw.normal(size=(n, 6))
    ids = np.array([f"{split}-{i}" for i in range(n)])
    return Predictions(logits, labels, ids, split), Features(rows, labels, ids, "view", split)


VAL, VAL_ROWS = task(1000, 1, "val")
TEST, TEST_ROWS = task(4000, 2, "test")
_, TRAIN_ROWS = task(1000, 3, "train")
RMD = difficulty.fit("rmd", TRAIN_ROWS)


def nll(predictions: Predictions) -> float:
    return float(predictions.facts.need("nll").mean())


def naive_posterior(rows: np.ndarray) -> np.ndarray:
    """Log class posterior of Gaussians with one covariance, by the formula."""
    x, y = np.asarray(TRAIN_ROWS.values), TRAIN_ROWS.labels
    means = np.stack([x[y == k].mean(axis=0) for k in range(CLASSES)])
    covariance = (x - means[y]).T @ (x - means[y]) / len(x)
    gaps = rows[:, None] - means
    distance = np.einsum("nkd,de,nke->nk", gaps, np.linalg.inv(covariance), gaps)
    scores = -distance / 2 + np.log(np.bincount(y) / len(y))
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def test_weights_are_those_of_the_smallest_likelihood():
    posterior, logits, labels = naive_posterior(VAL_ROWS.values), VAL.logits.numpy(), VAL.labels.numpy()

    def loss(weights):
        joined = weights[0] * logits + weights[1] * posterior
        return float((np.log(np.exp(joined).sum(axis=1)) - joined[np.arange(len(labels)), labels]).mean())

    best = minimize(loss, [0.3, 1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}).x
    fitted = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD)
    assert fitted.strength > 0.9
    found = [fitted.network, float(fitted.weights[0] * fitted.scales[0])]
    np.testing.assert_allclose(found, best, rtol=2e-2)  # the strength may leave a little shrinkage
    assert float(fitted.scales[0]) == pytest.approx(-10 / posterior.min(axis=1).mean())


@pytest.mark.parametrize("opinion", ["gaussian", "logistic", "knn", "gaussian,knn"])
def test_an_independent_opinion_helps_whoever_gives_it(opinion):
    reference = RMD if opinion == "gaussian" else TRAIN_ROWS
    fitted = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=reference, opinion=opinion)
    after, alone = fitted(TEST, TEST_ROWS), calibrators.fit("temperature", VAL)(TEST)
    assert nll(after) < nll(alone) - 0.2
    assert after.facts.correct.double().mean() > alone.facts.correct.double().mean() + 0.08


def test_the_opinion_of_another_model_needs_no_features():
    others = [
        Predictions(naive_posterior(rows.values), p.labels, p.ids) for p, rows in ((VAL, VAL_ROWS), (TEST, TEST_ROWS))
    ]
    fitted = calibrators.fit("second_opinion", VAL, opinions={"other": others[0]})
    by_rows = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD)
    shuffled = others[1].take(np.random.default_rng(0).permutation(len(TEST)))
    torch.testing.assert_close(fitted(TEST, opinions={"other": shuffled}).logits, by_rows(TEST, TEST_ROWS).logits)
    assert calibrators.opinion_names(fitted) == ("other",)
    with pytest.raises(InputError, match="but other is missing"):
        fitted(TEST)


def test_an_opinion_that_says_nothing_changes_nothing():
    plain = calibrators.fit("temperature", VAL)(TEST)
    harm = []
    for seed in range(3):
        draw = np.random.default_rng(seed)
        noise = [
            Features(draw.normal(size=(len(r), 6)), r.labels, r.ids, "noise", r.split)
            for r in (TRAIN_ROWS, VAL_ROWS, TEST_ROWS)
        ]
        fitted = calibrators.fit("second_opinion", VAL, features=noise[1], fitted=noise[0])
        harm.append(nll(fitted(TEST, noise[2])) - nll(plain))
        assert fitted.strength == 0
        assert any("gets no weight" in note for note in fitted.notes)
    np.testing.assert_allclose(harm, 0, atol=1e-7)


def test_kept_classes_stay_and_their_confidence_follows_the_opinion():
    fitted = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD, classes="kept")
    after, alone = fitted(TEST, TEST_ROWS), calibrators.fit("temperature", VAL)(TEST)
    assert torch.equal(after.facts.prediction, TEST.facts.prediction)
    assert fitted.keeps_argmax
    right = TEST.facts.correct

    def loss(predictions):
        confidence = predictions.facts.confidence
        return float(-torch.where(right, confidence, 1 - confidence).log().mean())

    assert loss(after) < loss(alone) - 0.05
    hard = difficulty.fit("rmd", TRAIN_ROWS).score(TEST_ROWS, "predicted").values
    found = gaussian_difficulty(part_of(fitted.values, "gaussian"), torch.from_numpy(TEST_ROWS.values))
    np.testing.assert_allclose(found.numpy(), hard, rtol=1e-9)


def test_the_lead_keeps_its_class_and_gets_its_odds():
    logits = torch.tensor([[3.0, 2.9, -1.0], [1.0, 0.9, 0.8], [5.0, 0.0, 0.0]], dtype=torch.float64)
    lead = torch.zeros(3, dtype=torch.int64)
    odds = torch.tensor([-0.4, -5.0, 2.0], dtype=torch.float64)
    after = torch.softmax(with_log_odds(logits, lead, odds), dim=1)
    assert after.argmax(dim=1).tolist() == [0, 0, 0]
    # Odds of -0.4 are a probability of .401; no class can lead among three with less than a third.
    torch.testing.assert_close(after[:, 0], torch.sigmoid(odds.clamp_min(-np.log(2))), atol=2e-6, rtol=0)
    torch.testing.assert_close(after[2, 1], after[2, 2])
    torch.testing.assert_close(log_odds(logits, lead)[2:], torch.tensor([5 - np.log(2)], dtype=torch.float64))


def test_a_saved_one_scores_new_samples_by_itself(tmp_path):
    for classes in ("free", "kept"):
        fitted = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD, classes=classes)
        fitted.save(tmp_path / "opinion.json")
        again = calibrators.load(tmp_path / "opinion.json")
        assert torch.equal(again(TEST, TEST_ROWS).logits, fitted(TEST, TEST_ROWS).logits)
        assert again.source.extractor == "view"
        assert again.strength == fitted.strength


def test_what_is_missing_is_one_line():
    fitted = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD)
    with pytest.raises(InputError, match=r"was fitted with features \(6 a sample\) and needs them here too"):
        fitted(TEST)
    with pytest.raises(InputError, match="use the same extractor"):
        fitted(TEST, TEST_ROWS.values[:, :3])
    with pytest.raises(InputError, match="needs an opinion"):
        calibrators.fit("second_opinion", VAL)
    with pytest.raises(InputError, match="pass fitted on the training split too"):
        calibrators.fit("second_opinion", VAL, features=VAL_ROWS)
    with pytest.raises(InputError, match="needs training features as `fitted`"):
        calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=RMD, opinion="knn")
    with pytest.raises(InputError, match="cannot be fitted by group"):
        calibrators.fit("second_opinion", VAL.with_column("site", np.arange(len(VAL)) % 2), by="site")
    with pytest.raises(InputError, match="has no module of logits alone"):
        fitted.module()
    index = trust.fit("trust_score", VAL.take(np.arange(100)), VAL_ROWS.values[:100])
    by_trust = calibrators.fit("second_opinion", VAL, features=VAL_ROWS, fitted=index, opinion="knn", neighbours=5)
    assert by_trust.feature_dim == 6


@pytest.mark.parametrize("opinion", ["logistic", "gaussian", "knn"])
def test_a_choice_fits_the_opinion_once_for_all_folds(opinion, monkeypatch):
    function, posterior = second_opinion.OPINIONS[opinion]
    fits = []
    counted = {opinion: (lambda *given: fits.append(opinion) or function(*given), posterior)}
    monkeypatch.setattr(second_opinion, "OPINIONS", {**second_opinion.OPINIONS, **counted})
    part = VAL.take(range(200))
    rows = Features(VAL_ROWS.values[:200], VAL_ROWS.labels[:200], VAL_ROWS.ids[:200], "view", "val")
    options, train = {"second_opinion": {"opinion": opinion}}, replace(TRAIN_ROWS)
    calibrators.choose(part, ["second_opinion"], features=rows, fitted=train, options=options, folds=5)
    assert fits == [opinion]


def test_it_is_one_of_the_candidates_to_choose_from():
    choice = calibrators.choose(
        VAL,
        ["temperature", "second_opinion"],
        features=VAL_ROWS,
        fitted=TRAIN_ROWS,
        options={"second_opinion": {"opinion": "knn"}},
    )
    assert choice.word == "second_opinion"
    assert calibrators.opinion_names(choice.calibrator) == ("knn",)


@pytest.mark.parametrize("n", [58, 73, 147])
def test_the_names_of_classes_do_not_matter(n):
    labels, draw = np.arange(n) % 5, np.random.default_rng(3)
    own, other = (draw.normal(size=(n, 5)) + 1.5 * np.eye(5)[labels] for _ in range(2))
    turned = np.array([3, 0, 4, 1, 2])  # class k is called turned[k]
    back = np.argsort(turned)

    def joined(own, other, labels):
        val, opinion = (Predictions(logits, labels, split="val") for logits in (own, other))
        after = calibrators.fit("second_opinion", val, opinions={"b": opinion})(val, opinions={"b": opinion})
        return torch.softmax(after.logits, dim=1)

    first = joined(own, other, labels)
    again = joined(own[:, back], other[:, back], turned[labels])
    assert torch.allclose(first, again[:, turned], atol=1e-6)


def test_a_trust_score_holds_the_rows_that_it_was_fitted_on():
    rows = VAL_ROWS.values[:100] + 5.0  # far from 0: what it keeps is measured from the means of the classes
    fit_on = VAL.take(np.arange(100))
    reference = reference_of("dac", trust.fit("trust_score", fit_on, rows), fit_on.num_classes)
    kept = sorted(map(tuple, np.round(reference.training_rows, 4).tolist()))
    # Samples far from their class may have been filtered out; all that are kept were there, with their label.
    known = {tuple(row): int(label) for row, label in zip(np.round(rows, 4).tolist(), fit_on.labels, strict=True)}
    assert len(kept) > 50
    assert set(kept) <= set(known)
    rows_kept, labels = reference.labelled_rows
    assert all(known[tuple(row)] == label for row, label in zip(np.round(rows_kept, 4).tolist(), labels, strict=True))


def test_of_fits_that_beat_the_last_one_by_more_than_noise_the_best_is_taken():
    safest = import_module("confide.calibrators.second_opinion").safest
    gain = import_module("confide.calibrators.second_opinion").CLEAR_GAIN
    counts, base = np.ones(100), np.zeros(100)
    noisy = np.where(np.arange(100) < 50, -1.0, 1.0)  # a standard error of about a tenth
    error = np.sqrt((noisy**2).mean() / 99)
    for mean, taken in ((gain * error * 1.02, 0), (gain * error * 0.98, 1), (0.0, 1), (-1.0, 1)):
        assert safest(np.stack([base - mean - noisy, base]), counts) == taken
    assert safest(np.stack([base - 0.5, base - 0.7, base - 0.2, base]), counts) == 1
    assert safest(np.stack([base, base]), counts) == 1  # no gain at all
    half = np.append(np.full(50, 2.0), np.zeros(50))  # as if the samples that lose by it were not there
    assert safest(np.stack([base - noisy - 0.1, base]), 3 * half) == 1
    assert safest(np.stack([base - noisy - 0.1, base]), 3 * half[::-1]) == 0
