"""A second opinion: RMD and TrustScore in another extractor's space among the signals of the combined predictor."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import logit
from sklearn.metrics import roc_auc_score

import confide
from confide.checks import InputError
from confide.trust import fit, load


def made(n, seed, split):
    """Own features that hold no more than the logits, and features of another extractor that tell the classes well."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=generator)
    drawn = torch.Generator().manual_seed(9)
    own_centres, centres = (spread * torch.randn(4, d, generator=drawn) for spread, d in ((1.0, 3), (2.0, 6)))
    own = own_centres[labels] + torch.randn(n, 3, generator=generator)
    other = centres[labels] + torch.randn(n, 6, generator=generator)
    ids = np.array([f"{split}-{i}" for i in range(n)])
    predictions = confide.Predictions(-torch.cdist(own, own_centres).square() / 2, labels, ids, split)
    return predictions, *(
        confide.Features(rows.numpy(), labels.numpy(), ids, name, split)
        for rows, name in ((own, "own"), (other, "other"))
    )


@pytest.fixture(scope="module")
def splits():
    return {
        split: made(n, seed, split) for seed, (split, n) in enumerate((("train", 300), ("val", 400), ("test", 800)))
    }


@pytest.fixture(scope="module")
def informed(splits):
    (val, own, other), (_, reference, second_reference) = splits["val"], splits["train"]
    return fit("combined", val, own, reference=reference, second=other, second_reference=second_reference)


def area(predictions, values):
    return roc_auc_score(predictions.facts.correct.numpy(), values.numpy())


@pytest.mark.parametrize("with_reference", [True, False])
@pytest.mark.parametrize("with_own", [True, False])
def test_it_tells_what_the_classifier_cannot_know(splits, with_reference, with_own):
    (val, own, other), (test, own_rows, rows) = splits["val"], splits["test"]
    second_reference = splits["train"][2] if with_reference else None
    features = (own, own_rows) if with_own else (None, None)
    alone = fit("combined", val, features[0])
    trust = fit("combined", val, features[0], second=other, second_reference=second_reference)
    assert area(test, trust(test, features[1], rows)) > area(test, alone(test, features[1])) + 0.1
    # Fitted fold by fold, the values on the fitting data are as honest as those of other samples.
    assert abs(area(val, trust.out_of_fold) - area(test, trust(test, features[1], rows))) < 0.06


def test_its_signals_are_those_of_the_words_fitted_on_the_other_features(splits, informed):
    train, (test, own, other) = splits["train"], splits["test"]
    names = informed.scorer.signals.names
    assert names[-2:] == ("second_rmd", "second_trust_score")
    values = informed.scorer.signals(test, torch.from_numpy(own.values), torch.from_numpy(other.values))
    rmd, ratio = (fit(word, train[0], train[2])(test, other).double().numpy() for word in ("rmd", "trust_score"))
    assert_allclose(values[:, -2], rmd, rtol=1e-6)
    assert_allclose(values[:, -1], np.clip(np.log(ratio), -10, 10), atol=1e-5)


def test_contributions_name_it_and_one_file_holds_all(splits, informed, tmp_path):
    test, own, other = splits["test"]
    parts = informed.contributions(test, own, other)
    assert {"second_rmd", "second_trust_score", "rmd", "trust_score", "base"} <= set(parts)
    assert_allclose(sum(parts.values()).numpy(), logit(informed(test, own, other).numpy()), atol=1e-8)
    loss = informed.scorer.loss
    assert loss["second_rmd"] + loss["second_trust_score"] > 2 * loss["all"]
    again = load(informed.save(tmp_path))
    assert torch.equal(again(test, own, other), informed(test, own, other))
    assert again.second_dim == 6
    assert again.about.second_extractor == "other"
    assert torch.equal(again.add_to(test, own, second=other).trust, informed(test, own, other))


def test_rows_are_matched_by_id(splits, informed):
    test, own, other = splits["test"]
    turned = confide.Features(other.values[::-1].copy(), other.labels[::-1], other.ids[::-1], "other")
    assert torch.equal(informed(test, own, turned), informed(test, own, other))


def test_files_of_before_load_without_it(splits, tmp_path):
    val, own, _ = splits["val"]
    path = fit("combined", val, own, oracle="none").save(tmp_path)
    record = json.loads(path.read_text())
    del record["second_dim"]
    path.write_text(json.dumps(record))
    assert load(path).second_dim is None


def test_bad_input_is_one_clear_line(splits, informed):
    (val, own, other), (test, rows, opinion), reference = splits["val"], splits["test"], splits["train"][2]
    needs = r"fitted with a second opinion \(features of 'other', 6 a sample\) and needs it here too"
    with pytest.raises(InputError, match=needs):
        informed(test, rows)
    with pytest.raises(InputError, match=needs):
        informed.contributions(test, rows)
    with pytest.raises(InputError, match="got 3 features a sample; use the same extractor"):
        informed(test, rows, rows)
    with pytest.raises(InputError, match="second features must have every id asked for"):
        informed(test, rows, confide.Features(opinion.values, opinion.labels, np.arange(800), "other"))
    with pytest.raises(InputError, match="second features must be 800 x d"):
        informed(test, rows, opinion.values[:7])
    with pytest.raises(InputError, match="fitted without a second opinion; leave it out"):
        fit("combined", val, own)(test, rows, opinion)
    with pytest.raises(InputError, match=r"second_reference has 6 features a sample, but .* with no second features"):
        fit("combined", val, own, second_reference=reference)
    with pytest.raises(InputError, match=r"second_reference has 6 features a sample, but .* with 3 second features"):
        fit("combined", val, own, second=own, second_reference=reference)
    unlabelled = confide.Features(reference.values, np.full(300, -1), reference.ids, "other")
    with pytest.raises(InputError, match="second_reference has label -1, but there are 4 classes"):
        fit("combined", val, own, second=other, second_reference=unlabelled)
