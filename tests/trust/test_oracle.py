"""Trained oracles: what they learn, that their out-of-fold values are honest, that options do what they say."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import confide
from confide.core.door import InputError
from confide.trust import fit
from confide.trust.class_balanced import balanced_weights
from confide.trust.folds import stratified_folds


def hidden_errors(n=1500, seed=0, split="val"):
    """A classifier whose softmax says nothing about its errors, and a feature that says all."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, 4, generator=generator)
    signal = torch.randn(n, generator=generator)
    wrong = (torch.randn(n, generator=generator) * 0.3 + signal) > 1.2
    labels = torch.where(wrong, (logits.argmax(dim=1) + 1) % 4, logits.argmax(dim=1))
    noise = torch.randn(n, 7, generator=generator)
    return confide.Predictions(logits, labels, split=split), torch.cat([signal[:, None], noise], dim=1)


def area(predictions, values):
    return roc_auc_score(predictions.facts.correct.numpy(), values.numpy())


@pytest.mark.parametrize("word", ["steep_slope", "tcp", "binary_cross_entropy", "binary_focal", "class_balanced"])
def test_an_oracle_finds_errors_that_softmax_cannot_see(word):
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    trust = fit(word, val, features, epochs=40, learning_rate=3e-2)
    assert area(test, fit("mcp")(test)) < 0.6
    assert area(test, trust(test, rows)) > 0.8
    assert abs(area(val, trust.out_of_fold) - area(test, trust(test, rows))) < 0.05


def test_steep_slope_separates_at_its_own_threshold():
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    z = fit("steep_slope", val, features, epochs=40, learning_rate=3e-2)(test, rows)
    correct = test.facts.correct
    assert float((z[correct] > 0).float().mean()) > 0.8
    assert float((z[~correct] <= 0).float().mean()) > 0.5


def test_a_larger_alpha_neg_catches_more_errors():
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    wrong = ~test.facts.correct
    caught = [
        float((fit("steep_slope", val, features, epochs=20, alpha_neg=a)(test, rows)[wrong] <= 0).float().mean())
        for a in (0.5, 2.0, 6.0)
    ]
    assert caught[0] < caught[1] < caught[2]


def test_out_of_fold_values_are_chance_where_there_is_nothing_to_learn():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(800, 3, generator=generator)
    labels = torch.randint(3, (800,), generator=generator)
    features = torch.randn(800, 200, generator=generator)
    predictions = confide.Predictions(logits, labels)
    trust = fit("binary_cross_entropy", predictions, features, inputs="features", hidden=32, learning_rate=1e-2)
    assert area(predictions, trust(predictions, features)) > 0.8
    assert 0.43 < area(predictions, trust.out_of_fold) < 0.57


def test_the_released_form_trusts_everything():
    val, features = hidden_errors()
    test, rows = hidden_errors(seed=1, split="test")
    z = fit("binary_cross_entropy", val, features, epochs=40, learning_rate=3e-2, form="released")(test, rows)
    assert float((z > 0).float().mean()) > 0.99


def test_tcp_learns_the_probability_of_the_true_class():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    predictions = confide.Predictions(logits, labels)
    z = fit("tcp", predictions, epochs=60, learning_rate=3e-2)(predictions)
    assert float((torch.sigmoid(z) - predictions.facts.p_true).square().mean()) < 0.1


def test_seeds_change_the_members_and_the_same_seed_does_not():
    val, features = hidden_errors(300)
    first, same, other = (fit("steep_slope", val, features, epochs=2, hidden=8, seed=s) for s in (0, 0, 1))
    assert torch.equal(first(val, features), same(val, features))
    assert not torch.equal(first(val, features), other(val, features))


def test_features_are_not_needed():
    val, _ = hidden_errors(300)
    trust = fit("steep_slope", val, epochs=2)
    assert trust(val).shape == (300,)
    with pytest.raises(InputError, match="needs features"):
        fit("steep_slope", val, inputs="features")


def test_folds_are_stratified_and_follow_the_id():
    val, _ = hidden_errors(401)
    folds = stratified_folds(val, 5)
    correct = val.facts.correct.numpy()
    assert np.ptp(np.bincount(folds)) <= 1
    assert np.ptp(np.bincount(folds[~correct], minlength=5)) <= 1
    turned = np.arange(400, -1, -1)
    assert (stratified_folds(val.take(turned), 5) == folds[turned]).all()


def test_balanced_weights():
    # beta = 0.5, counts 1 and 2: 0.5 / 0.5 = 1 and 0.5 / 0.75 = 2/3; rescaled to sum 2: 1.2 and 0.8
    weights = balanced_weights(torch.tensor([1, 2]), 0.5)
    torch.testing.assert_close(weights, torch.tensor([1.2, 0.8], dtype=torch.float64))
    torch.testing.assert_close(balanced_weights(torch.tensor([3, 900]), 0.0), torch.ones(2, dtype=torch.float64))
