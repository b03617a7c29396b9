"""The combined predictor: worked numbers, honesty of cross-fitting, contributions that add up."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import confide
from confide.checks import InputError
from confide.trust import fit, load
from confide.trust.combined import (
    cross_fitted,
    fact_signal,
    fit_boosted,
    fit_logistic,
    negative_log_likelihood,
    platt_targets,
)

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "inputs_T.npz")


def worked():
    predictions = confide.Predictions(GOLDEN["logits"], GOLDEN["labels"])
    facts = [fact_signal(name, predictions) for name in ("confidence", "entropy")]
    return np.stack([GOLDEN["oracle_z"], *facts], axis=1), GOLDEN["correct"].astype(bool)


def test_worked_numbers():
    signals, correct = worked()
    regression = fit_logistic(signals, correct)
    assert_allclose(regression.weight, [1.45709, 1.40690, -0.02588], atol=1e-5)
    assert regression.bias == pytest.approx(0.65327, abs=1e-5)
    inside = regression.contributions(signals)[0].sum(axis=1)
    assert roc_auc_score(correct, inside) == pytest.approx(0.893176, abs=1e-6)
    honest = cross_fitted(signals, correct, np.arange(300) % 5, "logistic", 1.0)
    assert roc_auc_score(correct, honest) == pytest.approx(0.888615, abs=1e-6)
    assert negative_log_likelihood(honest, correct) == pytest.approx(0.413388, abs=1e-6)


def test_separated_signals_keep_finite_weights_and_constant_ones_get_none():
    correct = np.arange(40) < 30
    regression = fit_logistic(np.stack([np.where(correct, 1.0, -1.0), np.ones(40)], axis=1), correct)
    assert 1 < regression.weight[0] < 10
    assert regression.weight[1] == 0
    # 30 right: 31/32; 10 wrong: 1/12
    assert_allclose(np.unique(platt_targets(correct)), [1 / 12, 31 / 32])


def test_boosted_trees_learn_what_no_line_can():
    generator = np.random.default_rng(0)
    signals = generator.normal(size=(3000, 4))
    correct = generator.random(3000) < expit(3 * signals[:, 0] * signals[:, 1])
    train, test = slice(0, 2000), slice(2000, 3000)

    def area(fitter):
        return roc_auc_score(
            correct[test], fitter(signals[train], correct[train]).contributions(signals[test])[0].sum(axis=1)
        )

    peer = HistGradientBoostingClassifier(max_iter=60, max_depth=3, early_stopping=False)
    theirs = roc_auc_score(correct[test], peer.fit(signals[train], correct[train]).decision_function(signals[test]))
    assert area(fit_logistic) < 0.6
    assert area(partial(fit_boosted, depth=3)) > theirs - 0.02


def sample(n, seed, split="val"):
    """Errors that show in the softmax, in the features, and in a column."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=generator)
    centres = 2 * torch.randn(4, 6, generator=torch.Generator().manual_seed(9))
    features = centres[labels] + torch.randn(n, 6, generator=generator)
    logits = -torch.cdist(features[:, :2], centres[:, :2]).square() / 2
    return confide.Predictions(logits, labels, [f"{split}{seed}-{i}" for i in range(n)], split), features


def reference(n=400):
    predictions, features = sample(n, 7, "train")
    return confide.Features(features.numpy(), predictions.labels.numpy(), predictions.ids, "made")


@pytest.mark.parametrize("options", [{}, {"reference": reference()}, {"model": "boosted", "reference": reference()}])
def test_it_beats_max_softmax_and_its_probabilities_are_calibrated(options):
    val, features = sample(800, 0)
    test, rows = sample(2000, 1, "test")
    trust = fit("combined", val, features, **options)
    values, correct = trust(test, rows).numpy(), test.facts.correct.numpy()
    assert roc_auc_score(correct, values) > roc_auc_score(correct, test.facts.confidence.numpy()) + 0.05
    assert abs(values.mean() - correct.mean()) < 0.05
    honest = roc_auc_score(val.facts.correct.numpy(), trust.out_of_fold.numpy())
    assert abs(honest - roc_auc_score(correct, values)) < 0.05


@pytest.mark.parametrize("model", ["logistic", "boosted"])
def test_contributions_add_up_to_the_logit(model, tmp_path):
    val, features = sample(500, 0)
    trust = fit("combined", val, features, model=model, reference=reference())
    parts = trust.contributions(val, features)
    assert set(parts) == {
        "confidence",
        "entropy",
        "margin",
        "energy",
        "oracle",
        "rmd",
        "trust_score",
        "neighbours",
        "base",
    }
    assert_allclose(sum(parts.values()).numpy(), logit(trust(val, features).numpy()), atol=1e-9)
    again = load(trust.save(tmp_path))
    assert torch.equal(again(val, features), trust(val, features))
    assert again.scorer.loss == trust.scorer.loss


def test_what_a_signal_is_worth_is_told():
    val, features = sample(800, 0)
    loss = fit("combined", val, features, reference=reference()).scorer.loss
    assert loss["trust_score"] + loss["rmd"] > 2 * loss["all"]


def test_nothing_to_learn_stays_at_chance_out_of_fold():
    generator = torch.Generator().manual_seed(0)
    predictions = confide.Predictions(
        torch.randn(600, 3, generator=generator), torch.randint(3, (600,), generator=generator)
    )
    trust = fit("combined", predictions, torch.randn(600, 50, generator=generator))
    area = roc_auc_score(predictions.facts.correct.numpy(), trust.out_of_fold.numpy())
    assert 0.42 < area < 0.58


def test_a_column_of_hardness_is_a_signal():
    val, _ = sample(500, 0)
    hard = confide.Predictions(
        val.logits, val.labels, val.ids, "val", columns={"confusion": (~val.facts.correct).numpy() + 0.0}
    )
    trust = fit("combined", hard, columns="confusion", oracle="none")
    assert roc_auc_score(val.facts.correct.numpy(), trust.out_of_fold.numpy()) > 0.99
    with pytest.raises(InputError, match="needs the column 'confusion'"):
        trust(val)


def test_bad_signals_and_references_are_named():
    val, features = sample(300, 0)
    broken = np.zeros(300)
    broken[4] = np.inf
    hard = confide.Predictions(val.logits, val.labels, val.ids, "val", columns={"hardness": broken})
    with pytest.raises(InputError, match="signal 'hardness' must be finite, got -inf at sample 4"):
        fit("combined", hard, columns="hardness", oracle="none")
    with pytest.raises(InputError, match="reference has 6 features"):
        fit("combined", val, features[:, :5], reference=reference())
    with pytest.raises(InputError, match="must be a Features record"):
        fit("combined", val, features, reference=features)
    with pytest.raises(InputError, match="not made of parts"):
        fit("mcp").contributions(val)


@pytest.mark.parametrize("counted", [False, True])
def test_a_reference_of_the_same_samples_would_give_the_answers_away(counted):
    """A sample lies at distance 0 of itself, in the class of its label."""
    val, features = sample(200, 1)
    ids = np.arange(200) if counted else np.array([f"s{i}" for i in range(200)])
    own = confide.Predictions(val.logits, val.labels, ids, "val")
    same = confide.Features(features.numpy().astype(np.float16), val.labels.numpy(), ids, "made", "val")
    for options in ({"reference": same}, {"second": features, "second_reference": same}):
        with pytest.raises(InputError, match="must hold other samples than the predictions, but 200 are in both"):
            fit("combined", own, features, oracle="none", **options)
    other = confide.Features(features.numpy() + 1.0, val.labels.numpy(), ids, "made", "train")
    fit("combined", own, features, oracle="none", reference=other)
    test = confide.Features(features.numpy() + 1.0, val.labels.numpy(), ids, "made", "test")
    with pytest.raises(InputError, match="reference must not be the test split"):
        fit("combined", own, features, oracle="none", reference=test)


def test_a_split_may_leave_the_first_bin_alone_and_is_none_where_nothing_is_gained():
    from confide.trust.combined import _best_split

    # Bin 0 pulls down, all others up; an uninformative signal stands before it.
    binned = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]])
    pull = np.array([-1.0, -1.0, 1.0, 1.0, 1.0, 1.0])
    edges = [np.array([0.5]), np.array([0.5, 1.5])]
    assert _best_split(binned, pull, np.full(6, 0.25), 1.0, edges) == (1, 0)
    assert _best_split(binned, np.zeros(6), np.full(6, 0.25), 1.0, edges) == (0, -1)
    twins = binned[:, [1, 1]]
    assert _best_split(twins, pull, np.full(6, 0.25), 1.0, [edges[1], edges[1]]) == (0, 0)
