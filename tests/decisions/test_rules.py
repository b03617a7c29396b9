"""Decisions by cost against sums written out, the threshold of two classes, capacity, and what is warned of."""

import math

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, decisions
from confide.checks import InputError
from confide.decisions import ASK
from confide.decisions.rules import POINTS, _break_even


def drawn(n, num_classes, seed, sharp=1.0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, num_classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Predictions(sharp * logits, labels)


def test_actions_and_costs_are_those_of_the_sums():
    costs, abstain = np.array([[-1.0, 2.0, 5.0], [1.0, -2.0, 1.0], [9.0, 3.0, 0.0]]), np.array([0.5, 0.1, 0.8])
    p = drawn(60, 3, 1)
    decided = decisions.decide(p, costs, abstain)
    probs = p.probabilities().numpy()
    for i in range(60):
        expected = [sum(probs[i, k] * costs[k, a] for k in range(3)) for a in range(3)]
        asking = sum(probs[i, k] * abstain[k] for k in range(3))
        best = int(np.argmin(expected))
        action = ASK if asking < expected[best] else best
        assert int(decided.actions[i]) == action
        assert float(decided.costs[i]) == pytest.approx(min(asking, expected[best]))
    labels, actions = p.labels.numpy(), decided.actions.numpy()
    real = np.where(actions == ASK, abstain[labels], costs[labels, actions])
    assert decided.measured_cost.value == pytest.approx(real.mean())
    half = 2.0009953 * real.std(ddof=1) / 60**0.5  # Student's 97.5 % point of 59 degrees of freedom
    assert decided.measured_cost.high - decided.measured_cost.value == pytest.approx(half, rel=1e-6)
    likeliest = costs[labels, probs.argmax(axis=1)]
    assert decided.result.saved.value == pytest.approx((likeliest - real).mean())
    assert sum(decided.result.shares.values()) == pytest.approx(1)


def test_decisions_and_the_error_of_bad_input_are_at_hand():
    p = Predictions.from_probs([[0.9, 0.1], [0.4, 0.6]], [0, 1])
    assert repr(decisions.decide(p, [[0, 1], [5, 0]], 0.4)).startswith("<Decisions: 2 samples, 1 of them to ask about;")
    with pytest.raises(confide.InputError, match="costs"):
        decisions.decide(p, [[0, 1, 2]])


def test_a_threshold_counts_what_the_right_decisions_gain():
    p = Predictions.from_probs([[0.8, 0.2], [0.7, 0.3]])
    decided = decisions.decide(p, [[-1.0, 2.0], [5.0, -3.0]])
    assert decided.result.threshold == pytest.approx(3 / 11)
    assert decided.actions.tolist() == [0, 1]


def test_two_classes_have_a_threshold():
    # A miss costs 20, a false alarm 1: class 1 from 1 / 21 on.
    p = Predictions.from_probs(np.array([0.0, 0.04, 1 / 21, 0.05, 0.9]))
    decided = decisions.decide(p, {"miss": 20, "false_alarm": 1})
    assert decided.result.threshold == pytest.approx(1 / 21)
    assert decided.actions.tolist() == [0, 0, 0, 1, 1]
    assert torch.equal(decided.actions, decisions.decide(p, [[0, 1], [20, 0]]).actions)
    assert torch.equal(decided.actions, decisions.decide(p, [1, 20]).actions)


def test_capacity_asks_where_it_saves_most():
    p = Predictions.from_probs([[0.9, 0.1], [0.55, 0.45], [0.5, 0.5], [0.7, 0.3], [0.99, 0.01]])
    assert decisions.decide(p, 1, capacity=2).deferred.tolist() == [False, True, True, False, False]
    # At 0.2 a question the first does not pay, though there is room.
    decided = decisions.decide(p, 1, abstain=0.2, capacity=4)
    assert decided.deferred.tolist() == [False, True, True, True, False]
    assert decided.result.shares["ask"] == 0.6
    assert not decisions.decide(p, 1, capacity=0).deferred.any()


def test_the_break_even_curve_is_what_remains():
    p = drawn(250, 3, 2)
    points = decisions.decide(p, 1).result.break_even
    own = np.sort(1 - p.facts.confidence.numpy())[::-1]
    wrong = ~p.facts.correct.numpy()[np.argsort(p.facts.confidence.numpy(), kind="stable")]
    for point in points:
        k = round(point.share * 250)
        assert point.expected == pytest.approx(own[k:].sum() / 250, abs=1e-6)
        assert point.measured == pytest.approx(wrong[k:].sum() / 250)
        assert point.price == pytest.approx(own[min(k, 249)], abs=1e-6)
    assert points[0].share == 0
    assert points[-1].expected == 0


def test_probabilities_that_are_not_calibrated_are_warned_of():
    assert decisions.decide(drawn(3000, 3, 7), 1).warnings == ()
    warnings = decisions.decide(drawn(3000, 3, 7, sharp=3.0), 1).warnings
    assert "fail the calibration test" in warnings[0]
    assert "more than the probabilities say" in warnings[1]
    assert "without labels" in decisions.decide(Predictions([[1.0, 0.0]]), 1).warnings[0]
    assert "not the cheapest for 1" in decisions.decide(drawn(9, 2, 4), [[0, 1], [1, 2]]).warnings[0]
    rare = Predictions([[5.0, 0.0]] * 1000, [0] * 993 + [1] * 7)
    assert "only 7 of 1,000 samples cost other than the usual" in decisions.decide(rare, 1).warnings[-1]


def test_other_actions_than_the_classes():
    p = Predictions.from_probs([[0.9, 0.1], [0.2, 0.8]])
    decided = decisions.decide(p, [[0, 1, 2], [9, 3, 0]], actions=["wait", "test", "treat"])
    assert decided.actions.tolist() == [0, 2]
    assert decided.result.shares == {"wait": 0.5, "test": 0.0, "treat": 0.5}
    assert decided.result.saved is None


def test_a_rule_and_a_result_are_saved_and_loaded(tmp_path):
    p = drawn(50, 3, 5)
    decided = decisions.decide(p, [1, 2, 5], abstain=0.3, capacity=7)
    decided.rule.save(tmp_path / "rule.json")
    assert torch.equal(decisions.load(tmp_path / "rule.json")(p).actions, decided.actions)
    confide.Evaluation((), decisions=(decided.result,)).save(tmp_path / "evaluation.json")
    again = confide.Evaluation.load(tmp_path / "evaluation.json").decisions
    assert again == (decided.result,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"costs": [1, 2]}, "a row for each of the 3 true classes"),
        ({"costs": np.ones((2, 3))}, "got 2 x 3"),
        ({"costs": [1, 2, np.nan]}, "costs must be finite"),
        ({"costs": {"miss": 1, "false_alarm": 2}}, "of two classes"),
        ({"costs": {"mis": 1}}, "must be miss and false_alarm"),
        ({"costs": 1, "abstain": [1, 2]}, "abstain must be one finite number, or one for each of 3 classes"),
        ({"costs": 1, "capacity": -1}, "capacity must lie in"),
        ({"costs": 1, "capacity": 1.5}, "capacity must be a whole number"),
        ({"costs": 1, "actions": ["a"]}, "actions must be 3 names"),
        ({"costs": "much"}, "costs must be numbers"),
    ],
)
def test_bad_costs_are_one_line(options, words):
    with pytest.raises(InputError) as caught:
        decisions.decide(drawn(5, 3, 6), **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_predictions_without_all_probabilities_are_refused():
    with pytest.raises(InputError, match="a decision by cost needs all probabilities"):
        decisions.decide(Predictions.from_top1([0, 1], [0, 1], [0.9, 0.8]), 1)
    pairs = Predictions.from_pairs([1, 0], [0.9, 0.4])
    for costs in (1.0, {"miss": 20, "false_alarm": 1}):
        with pytest.raises(InputError, match="name no class"):
            decisions.decide(pairs, costs)
    with pytest.raises(InputError, match="hold only confidence and correctness"):
        decisions.DecisionRule.of(1.0, 2)(pairs)


def test_a_mean_cost_of_two_samples_has_an_interval_and_one_has_none():
    from confide.decisions.rules import Design, _mean_cost

    # Student's t with one degree of freedom: 2 -+ 12.706 * sqrt(2) / sqrt(2).
    assert _mean_cost("cost", np.array([1.0, 3.0]), Design()).bounds == pytest.approx(
        (2 - 12.7062, 2 + 12.7062), abs=1e-3
    )
    assert _mean_cost("cost", np.array([1.0]), Design()).bounds is None


def test_the_interval_of_a_cost_counts_images_and_not_their_pixels():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(0, 2, (40, 2)).repeat(25, axis=0), rng.integers(0, 2, 40).repeat(25)
    apart = confide.Predictions(logits, labels, columns={"image": np.arange(40).repeat(25)})
    by_row, by_image = (
        decisions.decide(p, [[0, 1], [5, 0]]).result.measured for p in (apart, apart.replace(unit="image"))
    )
    assert (by_image.high - by_image.low) > 4 * (by_row.high - by_row.low)
    single = decisions.decide(apart.replace(unit="image").take(range(25)), [[0, 1], [5, 0]]).result
    assert not single.measured.has_interval
    assert "all samples lie in one 'image'" in single.warnings[0]


@pytest.mark.parametrize(
    ("costs", "abstain", "threshold"),
    [
        ([[0, 1], [3, 0]], None, 0.25),
        ([[1, 2], [4, 1]], None, 0.25),
        ([[0, 1], [3, 0]], 0.5, None),
        ([[0, 0], [3, 0]], None, None),
        ([[0, 1], [0, 0]], None, None),
        ([[0, 0.5], [0.5, 0]], None, 0.5),
        (np.ones((3, 3)) - np.eye(3), None, None),
    ],
)
def test_a_threshold_where_both_errors_cost_something(costs, abstain, threshold):
    record = Predictions(np.eye(len(costs)))
    assert decisions.decide(record, costs, abstain).result.threshold == threshold


@pytest.mark.parametrize("n", [1, 3, POINTS, POINTS + 1, 250])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_remains_is_the_sum_of_those_not_asked_about(n, weighted):
    draws = np.random.default_rng(n)
    own, real = draws.random(n), draws.random(n)
    order, weights = np.argsort(-own), np.linspace(0.5, 1.5, n) if weighted else None
    points = _break_even(own, real, order, weights)
    times = np.ones(n) if weights is None else weights
    counts = [round(x) for x in np.linspace(0, n, min(n, POINTS) + 1)]
    assert len(points) == len(counts)
    for point, count in zip(points, counts, strict=True):
        left = order[count:]
        assert point.share == pytest.approx(times[order[:count]].sum() / n)
        assert point.expected == pytest.approx((own * times)[left].sum() / n, abs=1e-12)
        assert point.measured == pytest.approx((real * times)[left].sum() / n, abs=1e-12)
        assert point.price == own[order[min(count, n - 1)]]
    assert all(math.isnan(point.measured) for point in _break_even(own, None, order, weights))


def test_actions_are_named_after_the_classes_only_where_there_are_as_many():
    record = Predictions(np.eye(3), [0, 1, 2], class_names=("a", "b", "c"))
    square, wide = np.ones((3, 3)) - np.eye(3), np.ones((3, 2))
    assert list(decisions.decide(record, square).result.shares) == ["a", "b", "c"]
    assert list(decisions.decide(record, wide).result.shares) == ["0", "1"]
    assert list(decisions.decide(record, wide, actions=("keep", "drop")).result.shares) == ["keep", "drop"]


def test_the_first_three_classes_that_are_not_the_cheapest_are_named():
    costs = np.ones((5, 5)) + np.diag([1.0, 1.0, 0.0, 1.0, 1.0])
    record = Predictions(np.eye(5), class_names=("a", "b", "c", "d", "e"))
    (told, _) = decisions.decide(record, costs).result.warnings
    assert "for a, b, d;" in told
