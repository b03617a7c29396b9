"""Weighted samples beyond single metrics: shards, paired tests, promises, groups, curves and what is told of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import confide
from confide import Predictions
from confide.checks import InputError
from confide.report import render_report


def drawn(n: int, seed: int = 0, sharpness: float = 2.0) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(z, 1), 1, generator=generator).squeeze(1)
    weights = torch.exp(0.7 * torch.randn(n, generator=generator))
    return Predictions(sharpness * z, labels, columns={"importance": weights.numpy()})


def table(evaluation: confide.Evaluation) -> dict:
    return {(m.metric, m.group, m.score): (m.value, m.low, m.high) for m in evaluation.measurements}


def test_shards_of_weighted_samples_give_the_numbers_of_one_record():
    whole = drawn(400).weighted("importance")
    shards = [whole.take(np.arange(k, k + 100)) for k in range(0, 400, 100)]
    words = ["accuracy", "nll", "ece", "ece_mass", "classwise_ece", "aurc", "auroc"]
    ours, wanted = (table(confide.evaluate(p, words, intervals=False)) for p in (iter(shards), whole))
    assert ours.keys() == wanted.keys()
    for key, (value, *_) in wanted.items():
        assert ours[key][0] == pytest.approx(value, rel=1e-9), key
    with pytest.raises(InputError, match="all shards must have weights, or none"):
        confide.evaluate(iter([shards[0], drawn(100, seed=1)]), words)


def test_intervals_of_weighted_samples_are_those_of_the_bootstrap():
    predictions = drawn(600).weighted("importance")
    for word in ("accuracy", "nll", "aurc", "auroc"):
        theory = getattr(confide.metrics, word)(predictions)
        resampled = confide.evaluate(predictions, [word], "bootstrap", score="msp").find(word, group=None)
        assert theory.high - theory.low == pytest.approx(resampled.high - resampled.low, rel=0.2), word


def test_a_paired_test_takes_the_weights_of_the_first_and_refuses_others():
    a = drawn(400)
    b = a.with_logits(a.logits / 2)
    (weighted,) = confide.compare(a, b, metrics=["nll"], weights="importance")
    values = [float(confide.metrics.nll(p.weighted("importance"))) for p in (a, b)]
    assert weighted.difference == pytest.approx(values[1] - values[0])
    with pytest.raises(InputError, match="compare needs the same weights"):
        confide.compare(a.weighted("importance"), b.weighted(np.arange(1, 401)))


def test_a_promise_about_weighted_samples_is_kept_by_weight():
    predictions = drawn(2000, sharpness=1.0).weighted("importance")
    point = confide.operating_point(predictions, risk=0.2)
    seen = confide.evaluation.observed(point, predictions)
    assert point.threshold is not None
    assert seen.risk < point.bound <= 0.2
    assert point.coverage == pytest.approx(seen.coverage)
    assert point.largest_weight == pytest.approx(float(predictions.relative_weights.max()))
    named = confide.operating_point(predictions, risk={"error": 0.2, "accepted_error": 0.2})
    assert {risk.label for risk in named.risks} == {"error", "accepted_error"}
    with pytest.raises(InputError, match="a promise on average needs samples that all count alike"):
        confide.operating_point(predictions, risk={"accepted_error": 0.2}, promise="expectation")


def test_samples_of_weight_zero_are_absent_from_scores_groups_and_strata_too():
    predictions, rng = drawn(300), np.random.default_rng(0)
    weights = predictions.columns["importance"] * (rng.random(300) < 0.6)
    kept, score, site = weights > 0, rng.random(300), rng.integers(0, 2, 300)
    given = {"score": score, "by": {"site": site}, "strata": site}
    cut = {"score": score[kept], "by": {"site": site[kept]}, "strata": site[kept]}
    words = ["accuracy", "auroc", "ece"]
    ours = confide.evaluate(predictions, words, weights=weights, **given)
    wanted = confide.evaluate(predictions.take(kept), words, weights=weights[kept], **cut)
    assert table(ours) == table(wanted)
    np.testing.assert_equal([c.columns for c in ours.curves], [c.columns for c in wanted.curves])


def test_the_report_says_how_samples_were_weighted():
    evaluation = confide.evaluate(drawn(300), ["accuracy", "confidence_gap", "ece_mass"], weights="importance")
    page = render_report(evaluation)
    worth = f"{evaluation.about.effective_samples:.0f}"
    assert f"Samples are weighted by importance: they are worth {worth} samples of equal weight." in page
    assert "of 300 weighted samples" in page


def test_a_column_called_weight_counts_only_where_it_is_asked_for(tmp_path):
    """It may be that of a patient; `sample_weight` has one meaning."""
    rows = [f"{i % 2},{0.3 + 0.4 * (i % 3 == 0):.1f},{0.7 - 0.4 * (i % 3 == 0):.1f},{1 + i % 4}" for i in range(40)]
    for name in ("weight", "sample_weight"):
        (tmp_path / f"{name}.csv").write_text("\n".join([f"label,p0,p1,{name}", *rows]))
    kilograms = Predictions.load(tmp_path / "weight.csv")
    assert kilograms.weights is None
    assert "weight" in kilograms.columns
    asked = kilograms.weighted("weight")
    known = Predictions.load(tmp_path / "sample_weight.csv")
    assert np.array_equal(asked.weights, known.weights)
    known.save(tmp_path / "saved.npz")
    assert np.array_equal(Predictions.load(tmp_path / "saved.npz").weights, known.weights)
