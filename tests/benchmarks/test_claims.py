"""One rule for all verdicts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.lib.claims import Better, Count, Limit, Trend, Untestable, verdicts
from benchmarks.lib.values import Value


def values(differences: dict[str, list[float]]) -> list[Value]:
    """`new` less `old` on every dataset, seed by seed."""
    found = []
    for dataset, gaps in differences.items():
        for seed, gap in enumerate(gaps):
            found += [Value(dataset, "old", "ece", seed, 5.0), Value(dataset, "new", "ece", seed, 5.0 + gap)]
    return found


CLEAR, NOISY, WORSE = [-1.0, -1.1, -0.9, -1.0], [-1.0, 0.9, -0.8, 0.7], [1.0, 1.1, 0.9, 1.2]
CLAIM = Better("new has a lower ECE", "new", ("old",), "ece")


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ({"a": CLEAR, "b": CLEAR}, "reproduced"),
        ({"a": CLEAR, "b": NOISY}, "partly"),
        ({"a": NOISY}, "partly"),
        ({"a": [-1.0]}, "partly"),
        ({"a": CLEAR, "b": WORSE}, "partly"),
        ({"a": WORSE, "b": WORSE}, "not"),
        ({}, "not testable here"),
    ],
)
def test_the_verdict_follows_from_sign_and_test_on_every_dataset(differences, expected):
    assert verdicts([CLAIM], values(differences))[0].verdict == expected


def test_what_is_missing_keeps_a_claim_open():
    claim = Better("new beats both", "new", ("old", "absent"), "ece")
    found = verdicts([claim], values({"a": CLEAR}))[0]
    assert found.verdict == "partly"
    assert "without cells of absent" in found.why


def test_a_network_that_did_not_learn_wins_nothing():
    nothing = [Value("a", "new", "ece", 0, math.nan), Value("a", "old", "ece", 0, 5.0)]
    assert verdicts([CLAIM], nothing)[0].verdict == "not"
    assert verdicts([Better("old is better", "old", ("new",), "ece")], nothing)[0].verdict == "not testable here"
    assert verdicts([Limit("small", "new", "ece", high=9.0)], nothing)[0].why == "a fails: new did not learn"


def test_higher_is_better_where_the_claim_says_so():
    claim = Better("new has a higher one", "new", ("old",), "ece", higher=True)
    assert verdicts([claim], values({"a": WORSE}))[0].verdict == "reproduced"


def test_the_comparisons_of_a_claim_are_corrected_together():
    """A p-value of 0.03 holds alone, not among the twenty that a claim needs; other claims do not matter."""
    gaps = [-1.0, -0.7, -1.6, -0.4]
    some = values({"a": gaps})
    many = some + [replace(one, method=f"old{k}") for one in some if one.method == "old" for k in range(20)]
    among = Better("new beats all", "new", ("old", *(f"old{k}" for k in range(20))), "ece")
    assert verdicts([CLAIM], some)[0].verdict == "reproduced"
    assert verdicts([among, CLAIM], many)[0].verdict == "partly"
    assert verdicts([among, CLAIM], many)[1].verdict == "reproduced"


def test_the_best_of_all_must_be_ahead_of_most():
    """Behind one of three is open, behind two of three fails."""
    claim = Better("new beats all", "new", ("old", "b", "c"), "ece")
    some = values({"a": CLEAR})
    behind = [replace(one, method="b", value=1.0) for one in some if one.method == "old"]
    ahead = [replace(one, method="c") for one in some if one.method == "old"]
    assert verdicts([claim], some + behind + ahead)[0].verdict == "partly"
    worse = [replace(one, value=1.0) for one in ahead]
    found = verdicts([claim], some + behind + worse)[0]
    assert found.verdict == "not"
    assert "a fails: for it new less old" in found.why
    assert "against it new less b" in found.why


def test_trends_need_a_clear_order():
    rising = [Value("a", "m", "q", 0, y, x) for x, y in enumerate((1.0, 2.0, 3.0, 2.9, 5.0))]
    assert verdicts([Trend("rises", ("m",), "q")], rising)[0].verdict == "reproduced"
    assert verdicts([Trend("falls", ("m",), "q", -1)], rising)[0].verdict == "not"
    assert verdicts([Trend("rises", ("m",), "q")], rising[:2])[0].verdict == "not testable here"


def test_limits_look_at_the_mean_and_its_interval():
    some = [Value("a", "m", "q", seed, v) for seed, v in enumerate((0.98, 1.0, 1.03))]
    assert verdicts([Limit("near 1", "m", "q", 0.9, 1.1)], some)[0].verdict == "reproduced"
    assert verdicts([Limit("nearer 1", "m", "q", 0.99, 1.01)], some)[0].verdict == "partly"
    assert verdicts([Limit("above 2", "m", "q", 2.0)], some)[0].verdict == "not"
    assert verdicts([Limit("one number", "m", "q", 0.9, 1.1)], some[:1])[0].verdict == "reproduced"


def test_a_claim_about_one_dataset_is_not_looked_at_on_others():
    claim = Better("new has a lower ECE on a", "new", ("old",), "ece", on=("a",))
    assert verdicts([claim], values({"a": CLEAR, "b": WORSE}))[0].verdict == "reproduced"
    assert verdicts([claim], values({"b": WORSE}))[0].verdict == "not testable here"


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.5, 0.01, 0.2, 0.3, 0.9], "reproduced"),
        ([0.5, 0.01, 0.02, 0.3, 0.9], "not"),
        ([0.5, 0.01], "partly"),
        ([0.01, 0.01], "not"),
    ],
)
def test_a_count_over_fewer_seeds_stays_open_while_it_can_be_met(p_values, expected):
    claim = Count("four of five", "m", "p", 0.05, 4, 5)
    some = [Value("a", "m", "p", seed, v) for seed, v in enumerate(p_values)]
    assert verdicts([claim], some)[0].verdict == expected


def test_what_cannot_be_tested_says_why():
    found = verdicts([Untestable("on ImageNet", "no images")], [])[0]
    assert (found.verdict, found.why) == ("not testable here", "no images")
