"""Trained oracles: what they learn, that their out-of-fold values are honest, that options do what they say."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import confide
from confide.checks import InputError
from confide.trust import fit
from confide.trust.cross_fitting import stratified_folds


def area(predictions, values):
    return roc_auc_score(predictions.facts.correct.numpy(), values.numpy())


@pytest.mark.parametrize("word", ["steep_slope", "tcp", "binary_cross_entropy", "binary_focal", "class_balanced"])
def test_an_oracle_finds_errors_that_softmax_cannot_see(hidden_errors, word):
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    trust = fit(word, val, features, epochs=40, learning_rate=3e-2)
    assert area(test, fit("mcp")(test)) < 0.6
    assert area(test, trust(test, rows)) > 0.8
    assert abs(area(val, trust.out_of_fold) - area(test, trust(test, rows))) < 0.05


def test_out_of_fold_values_are_chance_where_there_is_nothing_to_learn():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(800, 3, generator=generator)
    labels = torch.randint(3, (800,), generator=generator)
    features = torch.randn(800, 200, generator=generator)
    predictions = confide.Predictions(logits, labels)
    trust = fit("binary_cross_entropy", predictions, features, inputs="features", hidden=32, learning_rate=1e-2)
    assert area(predictions, trust(predictions, features)) > 0.8
    assert 0.43 < area(predictions, trust.out_of_fold) < 0.57


def test_seeds_change_the_members_and_the_same_seed_does_not(hidden_errors):
    val, features = hidden_errors(300)
    first, same, other = (fit("steep_slope", val, features, epochs=2, hidden=8, seed=s) for s in (0, 0, 1))
    assert torch.equal(first(val, features), same(val, features))
    assert not torch.equal(first(val, features), other(val, features))


def test_features_are_not_needed(hidden_errors):
    val, _ = hidden_errors(300)
    trust = fit("steep_slope", val, epochs=2)
    assert trust(val).shape == (300,)
    with pytest.raises(InputError, match="needs features"):
        fit("steep_slope", val, inputs="features")


def test_folds_are_stratified_and_follow_the_id(hidden_errors):
    val, _ = hidden_errors(401)
    folds = stratified_folds(val, 5)
    correct = val.facts.correct.numpy()
    assert np.ptp(np.bincount(folds)) <= 1
    assert np.ptp(np.bincount(folds[~correct], minlength=5)) <= 1
    turned = np.arange(400, -1, -1)
    assert (stratified_folds(val.take(turned), 5) == folds[turned]).all()


def test_what_float32_cannot_hold_is_refused(hidden_errors):
    val, features = hidden_errors(200)
    trust = fit("steep_slope", val, features, epochs=1)
    far = features.double()
    far[5, 2] = 1e39
    for call in (lambda: trust(val, far), lambda: fit("steep_slope", val, far, epochs=1)):
        with pytest.raises(InputError, match="inputs in float32 must be finite, got inf at sample 5 of 200"):
            call()
