"""The pull chosen by cross-validation: strong where the map is the identity, weak where it is not, in any order."""

from __future__ import annotations

import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators.linear_maps import STRENGTH_FOLDS, STRENGTHS, feature_folds


def test_a_plain_temperature_gets_a_strong_pull(made):
    logits, labels = made(1500, 8, seed=1)
    assert calibrators.fit("dirichlet", Predictions(2 * logits, labels)).strength >= 1000


def test_a_map_with_strong_pairs_gets_a_weak_pull_and_predicts_better(made):
    logits, _ = made(6000, 4, seed=2)
    weights = torch.tensor([[1.0, 0.8, 0, 0], [-0.6, 1, 0, 0], [0, 0, 1, 0.7], [0, 0.5, -0.9, 1]]).double()
    probs = torch.softmax(torch.log_softmax(logits, dim=1) @ weights.T, dim=1)
    labels = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(3)).squeeze(1)
    val, fresh = Predictions(logits[:3000], labels[:3000]), Predictions(logits[3000:], labels[3000:])
    chosen = calibrators.fit("dirichlet", val)
    strong = calibrators.fit("dirichlet", val, reg_lambda=1.0, reg_mu=1.0, reference_row=False)
    assert chosen.strength <= 30
    losses = [float(c(fresh).facts.need("nll").mean()) for c in (chosen, strong)]
    assert losses[0] < losses[1] - 0.01


def test_the_chosen_strength_is_the_best_of_a_full_search(made):
    logits, labels = made(900, 5, seed=4, spread=1.0)
    labels[:200] = (labels[:200] + 1) % 5
    fold = feature_folds(labels, logits)

    def held_out(strength: float) -> float:
        total = 0.0
        for k in range(STRENGTH_FOLDS):
            pull = strength / int((fold != k).sum())
            train, held = (Predictions(logits[m], labels[m]) for m in (fold != k, fold == k))
            fitted = calibrators.fit("dirichlet", train, reg_lambda=pull, reg_mu=pull, reference_row=False)
            total += float(fitted(held).facts.need("nll").sum())
        return total

    chosen = calibrators.fit("dirichlet", Predictions(logits, labels)).strength
    assert held_out(chosen) <= min(map(held_out, STRENGTHS)) * (1 + 2e-4)


def test_folds_are_balanced_and_do_not_depend_on_the_order(made):
    logits, labels = made(500, 6, seed=5)
    fold, turn = feature_folds(labels, logits), torch.randperm(500, generator=torch.Generator().manual_seed(0))
    assert torch.equal(feature_folds(labels[turn], logits[turn]), fold[turn])
    for label in range(6):
        counts = torch.bincount(fold[labels == label], minlength=STRENGTH_FOLDS)
        assert int(counts.max() - counts.min()) <= 1


def test_a_given_pull_is_not_searched_for(made):
    logits, labels = made(300, 3, seed=6)
    calibrator = calibrators.fit("dirichlet", Predictions(logits, labels), reg_lambda=0.01)
    with pytest.raises(AttributeError, match="strength"):
        _ = calibrator.strength
