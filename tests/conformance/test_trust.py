"""Every trust predictor keeps the family's promises; a new one is covered before its author writes a line."""

import numpy as np
import pytest
import torch

import confide
from confide.checks import InputError, OptionError
from confide.trust import TRUST, fit, load, names

CASES = [(m.word, corner) for m in TRUST for corner in ({}, *m.corners)]
FAST = {"epochs": 2, "folds": 2}


def made(n=160, c=4, d=6, seed=0, split="val"):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(c, (n,), generator=generator)
    centres = 2 * torch.randn(c, d, generator=torch.Generator().manual_seed(99))
    features = centres[labels] + torch.randn(n, d, generator=generator)
    logits = -torch.cdist(features, centres).square() / 2 + torch.randn(n, c, generator=generator)
    return confide.Predictions(logits, labels, split=split), features


def evidence(word, predictions, features):
    if TRUST.get(word).spec.wants != "members":
        return features
    noise = torch.randn(3, *predictions.logits.shape, generator=torch.Generator().manual_seed(5))
    return predictions.logits + noise


def fitted(word, predictions, features, **options):
    known = TRUST.get(word).options
    return fit(
        word,
        predictions,
        evidence(word, predictions, features),
        **{k: v for k, v in FAST.items() if k in known} | options,
    )


@pytest.mark.parametrize(("word", "options"), CASES, ids=[f"{w}-{o}" for w, o in CASES])
def test_one_finite_value_per_sample_that_survives_the_files(word, options, tmp_path):
    predictions, features = made()
    other, rows = made(70, seed=1, split="test")
    trust = fitted(word, predictions, features, **options)
    values = trust(other, evidence(word, other, rows))
    assert values.shape == (70,)
    assert torch.isfinite(values).all()
    again = load(trust.save(tmp_path / "trust.json"))
    assert torch.equal(again(other, evidence(word, other, rows)), values)
    assert (again.word, again.threshold, again.scale) == (word, trust.threshold, trust.scale)


@pytest.mark.parametrize("word", names())
def test_the_order_of_samples_does_not_matter_and_fits_are_reproducible(word):
    predictions, features = made()
    turned = torch.arange(159, -1, -1)
    first, second = fitted(word, predictions, features), fitted(word, predictions, features)
    values = first(predictions, evidence(word, predictions, features))
    assert torch.equal(values, second(predictions, evidence(word, predictions, features)))
    wanted = evidence(word, predictions, features)
    moved = wanted[:, turned] if wanted.ndim == 3 else wanted[turned]
    torch.testing.assert_close(first(predictions.take(turned.numpy()), moved), values[turned], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("word", names())
def test_the_test_split_is_refused(word):
    predictions, features = made(split="test")
    with pytest.raises(InputError, match="must not be fitted on the test split"):
        fitted(word, predictions, features)


@pytest.mark.parametrize("word", names())
def test_word_is_a_function_of_the_package_and_paper_is_given(word):
    method = TRUST.get(word)
    assert getattr(confide.trust, word) is method.function
    assert method.paper
    assert method.summary.endswith((".", ":")) or "," in method.summary


@pytest.mark.parametrize("word", names())
def test_an_unknown_option_names_the_nearest(word):
    predictions, features = made()
    with pytest.raises(OptionError, match="has no option 'sead'"):
        fitted(word, predictions, features, sead=1)


@pytest.mark.parametrize("word", [m.word for m in TRUST if m.spec.trained])
def test_another_number_of_classes_is_one_clear_line(word):
    predictions, features = made()
    other, rows = made(c=5)
    with pytest.raises(InputError, match="was fitted for 4 classes, got predictions of 5"):
        fitted(word, predictions, features)(other, rows)


@pytest.mark.parametrize("word", [m.word for m in TRUST if m.spec.trained and m.spec.wants != "nothing"])
def test_other_features_are_one_clear_line(word):
    predictions, features = made()
    trust = fitted(word, predictions, features)
    with pytest.raises(InputError, match="was fitted on 6 features a sample, got 5"):
        trust(predictions, features[:, :5])
    with pytest.raises(InputError, match="features"):
        trust(predictions)
    with pytest.raises(InputError, match="one row per prediction"):
        trust(predictions, features[:-1])


@pytest.mark.parametrize("word", [m.word for m in TRUST if m.spec.learns_errors])
@pytest.mark.parametrize("right", [True, False])
def test_only_right_or_only_wrong_predictions_are_refused(word, right):
    predictions, features = made()
    rows = np.flatnonzero(predictions.facts.correct.numpy() == right)
    with pytest.raises(InputError, match="needs right and wrong predictions"):
        fitted(word, predictions.take(rows), features[rows])


# Distance alone need not rank errors.
@pytest.mark.parametrize("word", [word for word in names() if word != "knn"])
def test_trust_is_higher_where_the_classifier_is_right(word):
    predictions, features = made(1200)
    other, rows = made(1200, seed=1)
    values = fitted(word, predictions, features)(other, evidence(word, other, rows))
    correct = other.facts.correct
    chance = (values[correct][:, None] > values[~correct][None]).double().mean()
    assert chance > 0.55
