"""Slices: claimed rarely where confidence is right, found where it is not, and shown as a filter, a row and JSON."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import find_slices, slices
from confide.evaluation.evaluate import SampleGroups
from confide.numerics.binomial import right_tails
from confide.report import render_report


def drawn(seed: int, n: int, planted: float = 0.0) -> confide.Predictions:
    """Calibrated predictions with columns; in site 7 (2 % of the rows) accuracy is lower by `planted`."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(n, 6))
    probs = np.exp(logits)
    probs /= probs.sum(1, keepdims=True)
    labels = (rng.random((n, 1)) > probs.cumsum(1)).sum(1)
    site = rng.integers(0, 50, n)
    right = labels == probs.argmax(1)
    wronged = (site == 7) & right & (rng.random(n) < planted / right.mean())
    labels = np.where(wronged, (labels + 1) % 6, labels)
    return confide.Predictions(
        logits, labels, columns={"site": site, "camera": rng.choice(list("ab"), n), "age": rng.normal(size=n)}
    )


def test_calibrated_data_have_no_slices_in_95_of_100_draws():
    claims = sum(bool(find_slices(drawn(seed, 1500)).slices) for seed in range(60))
    assert claims <= 8  # 3 expected; more than 8 come once in 250 such tests


def test_a_planted_slice_is_found():
    found = [find_slices(drawn(seed, 50_000, planted=0.1)).slices for seed in range(3)]
    named = [[s.name for s in slices] for slices in found]
    assert sum(any("site=7" in name for name in names) for names in named) >= 2
    first = next(s for slices in found for s in slices if s.name == "site=7")
    assert 0.03 < first.gap < 0.17
    assert first.low <= first.gap <= first.high
    assert first.share == pytest.approx(0.02, abs=0.003)


def test_a_pair_is_told_where_neither_value_alone_is_wrong():
    rng = np.random.default_rng(0)
    n = 20_000
    a, b = rng.choice(["x", "y", "z"], n), rng.choice(["u", "v", "w"], n)
    confidence = rng.uniform(0.6, 1, n)
    right = rng.random(n) < confidence - 0.3 * ((a == "x") & (b == "u"))
    found = find_slices(confide.Predictions.from_pairs(right, confidence, a=a, b=b)).slices
    assert found[0].conditions == (("a", "x"), ("b", "u"))
    assert len(found) == 1  # its parts tell the same thing less clearly


def test_difficulty_verdicts_and_clusters_are_slices_too():
    rng = np.random.default_rng(1)
    n = 6000
    hard = np.arange(n) % 5 == 0
    confidence = rng.uniform(0.6, 1, n)
    p = confide.Predictions.from_pairs(rng.random(n) < confidence - 0.25 * hard, confidence)
    verdict = np.where(hard, "ambiguous", "typical")
    scores = confide.Scores(p.ids, hard + 0.1 * rng.random(n), "mine", columns={"verdict": verdict})
    assert find_slices(p, scores=scores, by=["difficulty"]).slices[0].name == "difficulty=hardest fifth"
    assert find_slices(p, scores=scores, by=["verdict"]).slices[0].name == "verdict=ambiguous"
    rows = rng.normal(size=(n, 3)) + 20 * hard[:, None]
    features = confide.Features(rows, np.zeros(n, dtype=np.int64), p.ids, "mine")
    clustered = find_slices(p, features=features)
    assert clustered.attributes == ("cluster",)
    assert clustered.slices
    assert all(s.gap > 0.1 for s in clustered.slices)


def test_the_halves_do_not_depend_on_the_order_of_samples():
    p = drawn(3, 20_000, planted=0.2)
    turned = p.take(np.arange(len(p))[::-1].copy())
    assert [s.name for s in find_slices(p).slices] == [s.name for s in find_slices(turned).slices]


def test_what_cannot_be_sliced_is_one_line():
    rng = np.random.default_rng(0)
    pairs = confide.Predictions.from_pairs(rng.random(100) < 0.8, rng.uniform(0.5, 1, 100))
    with pytest.raises(InputError, match="nothing to slice by"):
        find_slices(pairs)
    with pytest.raises(InputError, match="'weather' is not there"):
        find_slices(drawn(0, 100), by=["weather"])


@pytest.mark.parametrize(("n", "p"), [(200, 0.97), (40, 0.5), (3000, 0.9), (1, 0.3)])
def test_tails_of_the_number_right_are_those_of_the_binomial(n, p):
    for quantile in (0.001, 0.05, 0.5, 0.95, 0.999):
        right = int(stats.binom.ppf(quantile, n, p))
        below, above = right_tails(right, np.full(n, p))
        assert below == pytest.approx(stats.binom.cdf(right, n, p), rel=0.05)
        assert above == pytest.approx(stats.binom.sf(right - 1, n, p), rel=0.05)


def test_tails_of_unequal_chances_are_those_of_simulated_counts():
    rng = np.random.default_rng(0)
    for chances in (rng.uniform(0.8, 1, 100), rng.uniform(0.2, 1, 2000)):
        counts = (rng.random((4000, len(chances))) < chances).sum(1)
        for quantile in (0.02, 0.5, 0.98):
            right = int(np.quantile(counts, quantile))
            below, above = right_tails(right, chances)
            assert below == pytest.approx((counts <= right).mean(), abs=0.025)
            assert above == pytest.approx((counts >= right).mean(), abs=0.025)


def test_the_command_line_tells_slices_and_draws_them(tmp_path, capsys):
    p = drawn(4, 20_000, planted=0.25)
    p.save(tmp_path / "test.parquet")
    assert main(["slices", str(tmp_path / "test.parquet"), "--by", "site", "--report", str(tmp_path / "out")]) == 0
    assert "site=7: says" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "One slice of samples whose confidence is wrong beyond chance" in page
    assert main(["slices", str(tmp_path / "test.parquet"), "--by", "site", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slices"][0]["conditions"] == {"site": "7"}


def test_a_report_without_slices_has_no_such_section():
    page = render_report(confide.evaluate(drawn(5, 200), ["accuracy"], intervals=False))
    assert 'id="slices"' not in page


def test_what_looked_at_the_label_makes_no_slice_of_a_calibrated_model_unless_it_is_named():
    """Labels are drawn from the model's own probabilities: by RMD, which looks at them, the hardest are wrong."""
    rng, n = np.random.default_rng(0), 3000
    centres = np.eye(5) * 2.2
    rows = centres[rng.integers(0, 5, 2 * n)] + rng.normal(size=(2 * n, 5))
    logits = rows @ centres.T
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (chances.cumsum(1) < rng.random((2 * n, 1))).sum(1)
    p = confide.Predictions(logits[n:], labels[n:])
    scores = confide.difficulty.fit("rmd", rows[:n], labels[:n]).score(rows[n:], labels[n:], ids=p.ids)
    scores = replace(scores, columns={"verdict": np.where(p.facts.correct.numpy(), "typical", "wrong label")})
    found = find_slices(p, scores=scores)
    assert found.slices == ()
    assert found.attributes == ("predicted",)
    assert "Left out, because a calibrated model too has gaps" in str(found)
    asked = find_slices(p, scores=scores, by=["difficulty"])
    assert asked.slices[0].name == "difficulty=hardest fifth"
    assert "Mind that difficulty looked at the label" in str(asked)


def test_candidates_are_all_values_and_pairs_with_enough_samples_in_the_proposing_half():
    draws = np.random.default_rng(0)
    n = 4 * slices.FEWEST
    first = SampleGroups("a", ("x", "y"), np.repeat([0, 1], [slices.FEWEST, n - slices.FEWEST]))
    second = SampleGroups("b", ("u", "v", "w"), np.repeat([0, 1, 2], [slices.FEWEST - 1, slices.FEWEST + 1, n // 2]))
    gaps, rows = draws.normal(size=n), np.ones(n, dtype=bool)
    rows[-1] = False  # of the half that tests
    found = {(c.attributes, c.values): (c.n, c.gap) for c in slices._candidates([first, second], gaps, rows)}
    expected = {}
    for chosen in ((first,), (second,), (first, second)):
        for values in itertools.product(*(range(len(a.names)) for a in chosen)):
            member = rows & np.logical_and.reduce([a.index == v for a, v in zip(chosen, values, strict=True)])
            if member.sum() >= slices.FEWEST:
                place = tuple(0 if a is first else 1 for a in chosen)
                expected[place, values] = (member.sum(), pytest.approx(gaps[member].mean()))
    assert found == expected
    assert ((0,), (0,)) in found  # exactly enough
    assert ((1,), (0,)) not in found  # one too few


@pytest.mark.parametrize(("shared", "told"), [(50, 2), (51, 1)])
def test_slices_that_share_more_than_half_are_told_once(shared, told):
    index = [np.zeros(300, dtype=int), np.zeros(300, dtype=int)]
    index[0][:100], index[1][100 - shared : 200 - shared] = 1, 1
    attributes = [SampleGroups(name, ("no", "yes"), own) for name, own in zip("ab", index, strict=True)]
    candidates = [slices._Candidate((k,), (1,), 100, gap) for k, gap in ((0, 0.5), (1, 0.4))]
    chosen = slices._propose(candidates, attributes, np.full(300, 0.01), np.ones(300, dtype=bool), 5)
    assert [names for names, _ in chosen] == [(("a", "yes"),), (("b", "yes"),)][:told]
    assert len(slices._propose(candidates, attributes, np.full(300, 0.01), np.ones(300, dtype=bool), 1)) == 1


def test_a_pair_is_told_as_the_single_value_that_explains_it():
    index = [np.repeat([1, 0], [200, 200]), np.tile([1, 0], 200)]
    attributes = [SampleGroups(name, ("no", "yes"), own) for name, own in zip("ab", index, strict=True)]
    single, rows = slices._Candidate((0,), (1,), 200, 0.3), np.ones(400, dtype=bool)

    def told(gap, spread=0.1):
        pair = slices._Candidate((0, 1), (1, 1), 100, gap)
        return slices._propose([pair, single], attributes, np.full(400, spread**2), rows, 9)[0][0]

    wider = slices.APART * 0.1 * np.sqrt(1 / 100 - 1 / 200)
    assert told(0.3 + wider * 0.99) == (("a", "yes"),)
    assert told(0.3 + wider * 1.01) == (("a", "yes"), ("b", "yes"))


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_a_slice_is_tested_on_the_other_half_alone(n):
    draws = np.random.default_rng(n)
    confidence, right = draws.uniform(0.5, 1, 60), (draws.random(60) < 0.7).astype(float)
    members, testing = np.arange(60) < n + 5, np.arange(60) >= 5
    found = slices._test((("a", "x"),), members, testing, confidence, right)
    if not n:
        assert found is None
        return
    rows = slice(5, n + 5)
    gap = confidence[rows].mean() - right[rows].mean()
    half = 1.959963985 * (confidence - right)[rows].std(ddof=1) / np.sqrt(n) if n > 1 else np.inf
    assert (found.n, found.low, found.high) == (n, pytest.approx(gap - half), pytest.approx(gap + half))
    assert (found.confidence, found.accuracy) == pytest.approx((confidence[rows].mean(), right[rows].mean()))
    assert found.p_value == pytest.approx(min(1, 2 * min(right_tails(int(right[rows].sum()), confidence[rows]))))
    assert found.share == pytest.approx((n + 5) / 60)
