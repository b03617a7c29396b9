"""Trust predictors side by side: paired tests that say what is so, and decisions counted by hand."""

import numpy as np
import pytest
import torch

import confide
from confide.checks import InputError
from confide.evaluation.compare import compare
from confide.evaluation.trust import (
    TrustValues,
    compare_trust,
    decision_tests,
    rates_at_same_tpr,
    separation_words,
    trust_verdict,
)
from confide.metrics import table_words
from confide.report import render_report
from confide.results import ComparedRow, Comparison, Evaluation


def made(n=800, seed=0):
    """A classifier with weak confidence, a predictor that knows more, and one that knows nothing."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator)
    right = torch.rand(n, generator=generator) < 0.4 + 0.5 * torch.softmax(logits, dim=1).max(dim=1).values
    labels = torch.where(right, logits.argmax(dim=1), (logits.argmax(dim=1) + 1) % 4)
    predictions = confide.Predictions(logits, labels, split="test")
    knows = right.double() + torch.randn(n, generator=generator, dtype=torch.float64)
    guess = torch.randn(n, generator=generator, dtype=torch.float64)
    scores = {
        "mcp": TrustValues.of(predictions.facts.confidence, 0.5, "probability"),
        "knows": TrustValues.of(2 * knows - 1, 0.0, "logit"),
        "guess": TrustValues.of(guess, None, "score"),
    }
    return predictions, scores


@pytest.fixture(scope="module")
def found():
    """All three compared."""
    return compare_trust(*made())


def test_a_better_predictor_is_found_and_a_guess_is_not(found):
    judged = {(one.metric, one.b.score.removeprefix("trust:")): one.better for one in found.comparisons}
    assert judged["auroc", "knows"] == "b"
    assert judged["auroc", "guess"] in (None, "a")
    assert found.about.verdict.startswith(
        "Better than max-softmax by AUROC or AURC (paired tests, Holm, p < 0.05): knows."
    )
    one = found.find("tnr", score="trust:knows")
    assert one.low < one.value < one.high


def test_the_report_names_a_trust_score_that_beats_confidence(found):
    """The tests named predictors by bare words, the report looked for "model/stage/score" and never found one."""
    predictions, scores = made()
    assert "<code>knows</code> tells right from wrong better than confidence" in render_report(found)
    pair = compare_trust(predictions, {name: scores[name] for name in ("mcp", "knows")})
    assert "<code>knows</code> tells right from wrong best" in render_report(pair)
    rows = found.to_dict()
    assert {row["b"] for row in rows["comparisons"]} == {"model/raw/trust:knows", "model/raw/trust:guess"}
    for row in rows["comparisons"]:  # as they were written before
        row |= {key: row[key].split("/")[-1].removeprefix("trust:").replace("msp", "mcp") for key in ("a", "b")}
    assert Evaluation.from_dict(rows).comparisons == found.comparisons


def test_a_name_with_a_comma_is_quoted_in_the_verdict():
    sides = (ComparedRow("model", "raw", score) for score in ("msp", "trust:rmd, second"))
    one = Comparison("auroc", *sides, 0.1, 0.05, 0.15, 0.01, 0.01, "b")
    assert trust_verdict([one]).endswith("p < 0.05): 'rmd, second'.")


def test_it_says_plainly_that_nothing_is_better(tmp_path):
    predictions, scores = made(300)
    found = compare_trust(predictions, {k: v for k, v in scores.items() if k != "knows"})
    assert "No predictor beats max-softmax" in found.about.verdict
    found.save(tmp_path / "evaluation.json")
    assert Evaluation.load(tmp_path / "evaluation.json").about.verdict == found.about.verdict


def test_a_monotone_change_of_scale_is_no_difference():
    predictions, scores = made(200)
    twin = TrustValues(np.exp(3 * scores["mcp"].values), None)
    found = compare_trust(predictions, {"mcp": scores["mcp"], "twin": twin})
    ranking = [one for one in found.comparisons if one.metric in table_words("trust")]
    assert {one.metric for one in ranking} == set(table_words("trust"))
    assert all(one.p_value == 1.0 and one.difference == 0 for one in ranking)


def test_separability_is_tested_against_the_baseline(found):
    for metric in separation_words():
        tests = {one.b.score.removeprefix("trust:"): one for one in found.comparisons if one.metric == metric}
        expected = found.value(metric, score="trust:knows") - found.value(metric, score="msp")
        assert tests["knows"].difference == pytest.approx(expected)
        assert tests["knows"].better == "b"
        assert 0 < tests["knows"].low < expected < tests["knows"].high
        # A guess separates nothing, the weak confidence little: worse at most.
        assert tests["guess"].better in (None, "a")


def test_a_stretch_of_the_scale_does_not_separate_better():
    predictions, scores = made()
    mcp = scores["mcp"].values
    twin, constant = TrustValues(1000 * mcp - 7, None), TrustValues(np.full(len(mcp), 0.3), None)
    found = compare_trust(predictions, {"mcp": scores["mcp"], "twin": twin, "constant": constant})
    tests = {
        (one.metric, one.b.score.removeprefix("trust:")): one
        for one in found.comparisons
        if one.metric in separation_words()
    }
    assert all(tests[metric, "twin"].p_value == 1.0 for metric in separation_words())
    assert all(abs(tests[metric, "twin"].difference) < 1e-9 for metric in separation_words())
    assert all(np.isnan(tests[metric, "constant"].p_value) for metric in separation_words())


def test_chance_finds_no_separability_where_there_is_none():
    """Two guesses of equal worth: the p-values are those of chance."""
    p_values = []
    for seed in range(12):
        predictions, rng = made(300, seed)[0], np.random.default_rng(seed)
        guesses = {"mcp": rng.normal(size=300), "other": 5 * rng.normal(size=300) + 2}
        sides = {name: predictions.replace(trust=torch.tensor(values)) for name, values in guesses.items()}
        p_values += [
            one.p_value for one in compare(sides, metrics=separation_words()[:1], score="trust", resamples=200)
        ]
    assert sum(p < 0.1 for p in p_values) <= 4
    assert max(p_values) > 0.5


def test_the_baseline_must_be_there_and_values_alone_are_quick():
    predictions, scores = made(100)
    with pytest.raises(InputError, match="baseline 'mcp' must be among"):
        compare_trust(predictions, {"knows": scores["knows"]})
    found = compare_trust(predictions, scores, intervals=False)
    assert not found.comparisons
    assert trust_verdict(()) == "Nothing was compared with max-softmax."


def test_mcnemar_by_hand():
    correct = np.array([True] * 6 + [False] * 4)
    a = TrustValues(np.array([1, 1, 1, 1, 0, 0, 1, 1, 1, 1.0]), 0.5)
    b = TrustValues(np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0.0]), 0.5)
    positive, negative = decision_tests(correct, a, b, ("a", "b"))
    # One right sample gained of six; of four wrong ones b catches all, a none: p = 2 / 2^4.
    assert positive.difference == pytest.approx(1 / 6)
    assert positive.p_value == 1.0
    assert negative.difference == 1.0
    assert negative.p_value == pytest.approx(2 / 16)
    assert rates_at_same_tpr(
        confide.Predictions(torch.eye(2)[(~correct).astype(int)], [0] * 10), b, a
    ) == pytest.approx((5 / 6, 1.0, 0.0))


def test_outcomes_of_the_histogram_add_up_to_all_samples():
    predictions, scores = made()
    curves = [c for c in compare_trust(predictions, scores, intervals=False).curves if c.kind == "trust_outcomes"]
    assert [c.score for c in curves] == ["msp", "trust:knows"]
    for curve in curves:
        assert sum(sum(curve.columns[k]) for k in ("tp", "fp", "tn", "fn")) == 800
        # No bin mixes trusted and not trusted.
        for trusted, other in zip(
            *(np.add(curve.columns[a], curve.columns[b]) for a, b in (("tp", "fp"), ("tn", "fn"))), strict=True
        ):
            assert trusted == 0 or other == 0


def test_a_ratio_of_a_duplicate_does_not_spoil_separability():
    values = TrustValues.of(torch.tensor([0.5, 1.0, 1e12]), 1.0, "ratio")
    np.testing.assert_allclose(values.values, [1 / 3, 1 / 2, 1.0])
    assert values.threshold == 0.5


def test_logits_that_the_sigmoid_rounds_to_one_are_still_ranked():
    """A network with far logits once had an AUROC of one half: all its values had become 1."""
    predictions, scores = made(400)
    knows = torch.from_numpy(scores["knows"].values).logit()
    far = {"mcp": scores["mcp"], "knows": TrustValues.of(knows + 60, 0.0, "logit")}
    assert len(np.unique(far["knows"].values)) < 100
    found = compare_trust(predictions, far)
    bounded = {"mcp": scores["mcp"], "knows": TrustValues.of(knows, 0.0, "logit")}
    near = compare_trust(predictions, bounded, intervals=False)
    for metric in table_words("trust"):
        assert found.value(metric, score="trust:knows") == near.value(metric, score="trust:knows")
    judged = {(one.metric, one.b.score.removeprefix("trust:")): one for one in found.comparisons}
    assert judged["auroc", "knows"].better == "b"
    assert found.value("tpr", score="trust:knows") == 1.0


def test_the_baseline_is_held_to_exactly_the_same_rate():
    """7 of 100 is 7.000000000000001 % of 100 in floating point: an eighth sample must not slip in."""
    correct = np.arange(200) < 100
    predictions = confide.Predictions(torch.eye(2)[(~correct).astype(int)], [0] * 200)
    baseline = TrustValues(np.concatenate([np.arange(100, 0, -1.0), np.full(100, 93.5)]), 0.0)
    for kept, caught in ((7, 1.0), (8, 0.0), (0, 1.0), (100, 0.0)):
        values = np.concatenate([np.arange(100) < kept, np.zeros(100, bool)]).astype(float)
        assert rates_at_same_tpr(predictions, TrustValues(values, 0.5), baseline) == (kept / 100, 1.0, caught)


@pytest.mark.parametrize("right", [True, False])
def test_predictions_all_right_or_all_wrong_are_no_contest(right):
    predictions, scores = made(60)
    labels = predictions.facts.prediction if right else (predictions.facts.prediction + 1) % 4
    plain = confide.Predictions(predictions.logits, labels)
    found = compare_trust(plain, scores)
    assert "the test predictions are all right, or all wrong" in found.about.verdict
    rates = rates_at_same_tpr(plain, scores["knows"], scores["mcp"])
    assert [np.isnan(one) for one in rates] == [not right, right, True]


def test_values_all_on_the_line_are_counted():
    predictions, _ = made(50)
    found = compare_trust(predictions, {"mcp": TrustValues(np.full(50, 0.5), 0.5)}, intervals=False)
    curve = next(c for c in found.curves if c.kind == "trust_outcomes")
    assert sum(curve.columns["tp"]) + sum(curve.columns["fp"]) == 50


def test_what_the_bounded_values_rank_as_well_is_shown_by_them():
    """Thresholds and histograms of the report stay in [0, 1] where nothing is lost by it."""
    near = TrustValues.of(torch.tensor([-2.0, 0.0, 3.0]), 0.0, "logit")
    assert near.order is None
    assert near.ranking is near.values
    far = TrustValues.of(torch.tensor([40.0, 50.0]), 0.0, "logit")
    assert far.ranking.tolist() == [40.0, 50.0]
    assert TrustValues.of(torch.tensor([1e17, 1e18], dtype=torch.float64), 1.0, "ratio").ranking.tolist() == [
        1e17,
        1e18,
    ]
