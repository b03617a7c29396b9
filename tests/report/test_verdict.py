"""The verdict: each case of the rules, word for word."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from confide.report.sections.reliability import class_title, sides_beyond_chance
from confide.report.verdict import _interval_strip, tiles, verdict
from confide.report.view import EvaluationView
from confide.results import (
    About,
    ComparedRow,
    Comparison,
    DecisionResult,
    Evaluation,
    GroupCoverage,
    Measurement,
    SetResult,
)

THIN = "\u202f"


def build(
    accuracy: float,
    gap: tuple[float, float, float],
    p_value: float,
    n: int = 4000,
    stage: str = "temperature",
    after: dict[str, float] | None = None,
    better: str | None = None,
    **about: Any,
) -> EvaluationView:
    """An evaluation of one model; `gap` is value, low, high; `after` has gap, ece; `better` is raw or after."""
    rows = [
        Measurement("accuracy", accuracy, n, "test", bounds=(accuracy - 0.02, accuracy + 0.02)),
        Measurement("confidence_gap", gap[0], n, "test", bounds=gap[1:]),
        Measurement(
            "ece_mass",
            about.pop("ece", abs(gap[0]) + 0.001),
            n,
            "test",
            chance=0.012,
            chance_high=about.pop("chance_high", 0.016),
            p_value=p_value,
        ),
    ]
    if after:
        g = after["gap"]
        low, high = after.get("low", g - 0.008), after.get("high", g + 0.008)
        rows += [
            Measurement("accuracy", accuracy, n, "test", stage),
            Measurement("confidence_gap", g, n, "test", stage, bounds=(low, high)),
            Measurement(
                "ece_mass", after["ece"], n, "test", stage, chance=0.012, chance_high=0.016, p_value=after.get("p", 0.4)
            ),
        ]
    word = {"after": "b", "raw": "a", None: None}[better]
    tests = [
        Comparison(
            "nll", ComparedRow("model", "raw"), ComparedRow("model", stage), -0.02, -0.03, -0.01, 0.001, 0.001, word
        )
    ]
    return EvaluationView(Evaluation(tuple(rows), comparisons=tuple(tests), about=About(**{"unit": "images", **about})))


def test_well_calibrated():
    view = build(0.9, (0.002, -0.006, 0.010), 0.4)
    expected = "This model says 90.2 % and is right 90.0 %: well calibrated, as far as 4,000 images can tell."
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")
    assert verdict(view).side == ""


def test_a_calibrator_that_leaves_an_error_is_named_beside_the_good_model():
    """The headline and the box beside it say one thing, also where the second error is the larger one."""
    view = build(0.9, (0.002, -0.006, 0.010), 0.2, ece=0.015, after={"gap": 0.003, "ece": 0.019, "p": 0.01})
    expected = (
        "This model says 90.2 % and is right 90.0 %: well calibrated as trained, as far as 4,000 images can tell, "
        "but not after temperature scaling."
    )
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")
    assert tiles(view)[1].meaning.endswith("The error is more than chance explains.")
    fine = build(0.9, (0.002, -0.006, 0.010), 0.2, ece=0.015, after={"gap": 0.003, "ece": 0.014})
    assert verdict(fine).sentence.endswith(": well calibrated, as far as 4,000 images can tell.")
    assert tiles(fine)[1].meaning.endswith("What is left cannot be told from chance.")


def test_overconfident_and_repaired():
    view = build(0.89, (0.030, 0.022, 0.038), 0.001, after={"gap": 0.002, "ece": 0.014}, better="after")
    found = verdict(view)
    expected = (
        "This model says 92.0 % and is right 89.0 %: overconfident by 3.0 ± 0.8 points, "
        "and temperature scaling repairs it."
    )
    assert found.sentence == expected.replace(" %", f"{THIN}%")
    assert (found.direction, found.side) == ("overconfident by 3.0 ± 0.8 points", "over")


def test_underconfident_and_halved():
    view = build(0.88, (-0.042, -0.051, -0.033), 0.001, after={"gap": -0.019, "ece": 0.021}, better="after")
    expected = (
        "This model says 83.8 % and is right 88.0 %: underconfident by 4.2 ± 0.9 points, "
        "and temperature scaling halves it to 1.9."
    )
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")
    assert verdict(view).side == "under"


def test_too_few_samples():
    view = build(0.86, (0.05, -0.01, 0.11), 0.2, n=120, chance_high=0.06)
    expected = (
        "This model says 91.0 % and is right 86.0 %, but 120 images cannot tell that gap from chance: "
        "it may be anything from −1.0 to +11.0 points."
    )
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")


def test_calibration_made_it_worse():
    view = build(
        0.89, (0.009, -0.001, 0.019), 0.2, stage="isotonic", after={"gap": 0.02, "ece": 0.026}, better="raw", ece=0.011
    )
    expected = "This model says 89.9 % and is right 89.0 %; isotonic calibration made it worse, so leave it out."
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")


def test_only_one_class():
    view = build(0.94, (0.01, 0.0, 0.02), 0.2, n=500, label_counts={"Bag": 500, "Shirt": 0})
    expected = (
        "All 500 test labels are 'Bag', so calibration cannot be judged; accuracy is 94 % (92 to 96), "
        "and a test set with every class is needed."
    )
    assert verdict(view).sentence == expected.replace(" %", f"{THIN}%")


def test_no_direction_when_the_interval_holds_zero_but_the_test_rejects():
    found = verdict(build(0.9, (0.002, -0.006, 0.010), 0.001, ece=0.031))
    assert found.direction == ""
    assert "on average, but confidence and accuracy differ at some levels of confidence." in found.sentence
    assert "calibration error is 3.1 points" in found.lead[0]


def test_a_wide_gap_that_may_be_chance_is_not_said_to_be_none():
    found = verdict(build(0.8, (0.063, -0.007, 0.133), 0.02, n=120))
    assert found.direction == ""
    assert found.sentence.endswith(
        f"is right 80.0{THIN}%: confidence and accuracy differ at some levels of confidence; "
        "on average chance alone may be why (−0.7 to +13.3 points)."
    )


def test_no_direction_when_the_test_does_not_reject():
    found = verdict(build(0.89, (0.03, 0.001, 0.059), 0.06))
    assert found.direction == ""
    assert found.sentence.endswith("a gap of 3.0 ± 2.9 points that the calibration test does not confirm (p = 0.060).")


def test_a_gap_that_was_not_tested_is_not_called_chance():
    rows = (Measurement("accuracy", 0.8, 900), Measurement("confidence_gap", 0.05, 900, bounds=(0.03, 0.07)))
    found = verdict(EvaluationView(Evaluation(rows)))
    assert found.sentence.endswith("a gap of 5.0 ± 2.0 points; no calibration test was made.")
    within = replace(rows[1], value=0.003, bounds=(-0.004, 0.01))
    untested = Measurement("ece_mass", 0.02, 900)
    for more in ((), (untested,)):
        found = verdict(EvaluationView(Evaluation((rows[0], within, *more))))
        assert "well calibrated" not in found.sentence
        assert found.sentence.endswith(".")


@pytest.mark.parametrize(
    ("after", "better"),
    [
        ({"gap": 0.002, "ece": 0.017}, "after"),
        ({"gap": 0.002, "ece": 0.014}, None),
        ({"gap": 0.002, "ece": 0.014}, "raw"),
    ],
)
def test_repairs_needs_both_the_chance_bound_and_the_paired_test(after, better):
    view = build(0.89, (0.030, 0.022, 0.038), 0.001, after=after, better=better)
    assert "repairs" not in verdict(view).sentence


def test_a_test_that_is_not_significant_after_holm_claims_nothing():
    view = build(0.89, (0.030, 0.022, 0.038), 0.001, after={"gap": 0.002, "ece": 0.014}, better="after")
    weak = Comparison(
        "nll", ComparedRow("model", "raw"), ComparedRow("model", "temperature"), -0.02, -0.03, 0.01, 0.02, 0.08, "b"
    )
    evaluation = Evaluation(view.measurements, comparisons=(weak,), about=view.about)
    assert "repairs" not in verdict(EvaluationView(evaluation)).sentence


def test_an_asymmetric_interval_is_written_with_both_ends():
    found = verdict(build(0.89, (0.030, 0.022, 0.040), 0.001))
    assert found.direction == "overconfident by 3.0 points (2.2 to 4.0)"
    assert found.after == "."


def test_overshooting_is_said():
    view = build(0.89, (0.030, 0.022, 0.038), 0.001, after={"gap": -0.021, "ece": 0.022}, better="after")
    assert verdict(view).sentence.endswith("and temperature scaling overshoots: underconfident by 2.1.")


def test_an_evaluation_without_accuracy_says_so():
    assert "no accuracy" in verdict(EvaluationView(Evaluation(()))).sentence


def test_lead_says_error_before_after_chance_then_halving_then_best_model(evaluation):
    lead = [str(sentence) for sentence in verdict(EvaluationView(evaluation)).lead]
    assert len(lead) == 3
    assert lead[0].startswith("The calibration error is 3.1 points as trained and 0.9 after temperature scaling (T = ")
    assert lead[0].endswith("would show 1.1.")
    assert lead[1] == f"Rejecting the least trusted 14.5{THIN}% (12.3 to 16.6) halves the error rate."
    assert lead[2] == "Of the three models, <code>difficulty_entropy</code> has the best probabilities."


@pytest.mark.parametrize(
    ("p_holm", "words"),
    [
        (0.4, "The calibration error is 1.5 points as trained and 1.9 after temperature scaling, "
              "which a paired test cannot tell apart; "),
        (0.001, "After temperature scaling the calibration error rises from 1.5 to 1.9 points; "),
    ],
)  # fmt: skip
def test_an_error_rises_only_where_the_paired_test_says_so(p_holm, words):
    view = build(0.9, (0.002, -0.006, 0.010), 0.2, ece=0.015, after={"gap": 0.003, "ece": 0.019, "p": 0.01})
    sides = ComparedRow("model", "raw"), ComparedRow("model", "temperature")
    test = Comparison("ece_mass", *sides, 0.004, 0.001, 0.007, p_holm, p_holm, "a" if p_holm < 0.05 else None)
    tested = EvaluationView(replace(view.evaluation, comparisons=(test,)))
    assert verdict(tested).lead[0].startswith(words)
    untested = EvaluationView(replace(view.evaluation, comparisons=()))
    assert "scaling; a perfectly calibrated" in verdict(untested).lead[0]


def test_two_errors_within_chance_neither_rise_nor_fall():
    view = build(0.9, (0.002, -0.006, 0.010), 0.4, after={"gap": 0.003, "ece": 0.012}, ece=0.010)
    expected = (
        "The calibration error is 1.0 points as trained and 1.2 after temperature scaling; "
        "a perfectly calibrated model of this size would show 1.2."
    )
    assert str(verdict(view).lead[0]) == expected


def test_of_several_models_the_verdict_names_its_own(evaluation):
    assert verdict(EvaluationView(evaluation)).sentence.startswith("cross_entropy says 9")


def test_a_report_on_shift_says_what_happens_to_confidence():
    rows = [
        Measurement(metric, value, 500, group=f"shift=severity {severity}")
        for severity, accuracy, gap in ((0, 0.92, 0.008), (1, 0.80, 0.06), (5, 0.61, 0.172))
        for metric, value in (("accuracy", accuracy), ("confidence_gap", gap))
    ]
    expected = (
        "From clean to severity 5, accuracy goes from 92.0 % to 61.0 % and confidence from 92.8 % to 78.2 %: "
        "confidence minus accuracy goes from +0.8 to +17.2 points."
    )
    assert verdict(EvaluationView(Evaluation(tuple(rows)))).sentence == expected.replace(" %", f"{THIN}%")


def test_a_report_on_shift_does_not_praise_the_clean_samples_alone():
    def rows(model: str, *cells: tuple[str | None, float, float]) -> list[Measurement]:
        return [
            Measurement(metric, value, 500, stage="temperature", model=model, group=group)
            for group, accuracy, gap in cells
            for metric, value in (("accuracy", accuracy), ("confidence_gap", gap))
        ]

    clean, worst = ("shift=severity 0", 0.84, -0.009), ("shift=severity 5", 0.41, 0.214)
    both = rows("plain", (None, 0.84, -0.009), clean, worst) + rows("other", (None, 0.8, 0.0), clean, worst)
    found = verdict(EvaluationView(Evaluation(tuple(both), about=About(subject="shift"))))
    expected = (
        "From clean to severity 5, accuracy of plain goes from 84.0 % to 41.0 % and confidence after temperature "
        "scaling from 83.1 % to 62.4 %: confidence minus accuracy goes from −0.9 to +21.4 points."
    )
    assert found.sentence == expected.replace(" %", f"{THIN}%")
    assert str(found.lead[0]).startswith("plain says 83.1")


def sets_of(*groups: GroupCoverage, labels: bool = True) -> Evaluation:
    whole = GroupCoverage("all", "all", 1000, 2.31, 890 if labels else None, 0.869, 0.908, True, not groups)
    result = SetResult("lac", 0.9, 500, (whole, *groups), ((1, 400), (2, 600)))
    return Evaluation((Measurement("accuracy", 0.8, 1000),), sets=(result,), about=About(subject="sets"))


def test_a_report_on_sets_says_whether_the_promise_is_kept():
    start = "89.0 % of the sets hold the true class (86.9 to 90.8): the promise of 90.0 % is "
    found = verdict(EvaluationView(sets_of()))
    assert found.sentence == f"{start}not kept; a set holds 2.3 classes on average.".replace(" %", f"{THIN}%")
    assert str(found.lead[0]) == f"This model is right on 80{THIN}% of 1,000 samples."
    group = GroupCoverage("class", "a", 400, 2.0, 380, 0.92, 0.97, True)
    kept = f"{start}kept, as far as 1,000 samples can tell; a set holds 2.3 classes on average."
    assert verdict(EvaluationView(sets_of(group))).sentence == kept.replace(" %", f"{THIN}%")
    broken = verdict(EvaluationView(sets_of(replace(group, broken=True)))).sentence
    assert "is not kept in 1 of 2 groups" in broken
    assert "without labels nobody can tell" in verdict(EvaluationView(sets_of(labels=False))).sentence


def test_a_report_on_slices_names_the_widest_or_says_that_none_is_found():
    rows = [Measurement("accuracy", 0.8, 1000), Measurement("confidence_gap", 0.01, 1000, bounds=(-0.01, 0.03))]
    none = verdict(EvaluationView(Evaluation(tuple(rows), about=About(subject="slices")))).sentence
    assert none == "Of 1,000 samples, no slice is found whose confidence is wrong beyond chance."
    rows += [
        Measurement("confidence_gap", g, 90, group=f"slice=site={k}", bounds=(g - 0.04, g + 0.04))
        for k, g in enumerate((0.1, -0.2))
    ]
    found = verdict(EvaluationView(Evaluation(tuple(rows), about=About(subject="slices"))))
    assert found.sentence == (
        "Confidence is wrong beyond chance: 2 slices are found, the widest gap where site=1: "
        "underconfident by 20.0 ± 4.0 points."
    )


def test_a_report_on_decisions_says_what_they_cost():
    cost, saved = (
        Measurement("cost", 0.221, 500, bounds=(0.2, 0.24)),
        Measurement("saved", 0.1, 500, bounds=(0.05, 0.15)),
    )
    result = DecisionResult(500, {"a": 0.9, "ask": 0.1}, cost, cost, saved, 50)
    found = verdict(EvaluationView(Evaluation((), decisions=(result,), about=About(subject="decisions"))))
    assert found.sentence == (
        "A decision costs 0.221 (0.200 to 0.240) by the labels, 0.100 less than the likeliest class would; 50 of 500 "
        "samples are left to a person."
    )


def test_runs_side_by_side_are_each_named_in_the_headline():
    def run(model: str, accuracy: float, gap: float) -> list[Measurement]:
        return [
            Measurement("accuracy", accuracy, 500, model=model),
            Measurement("confidence_gap", gap, 500, model=model, bounds=(gap - 0.01, gap + 0.01)),
        ]

    two = run("monday", 0.8, 0.05) + run("friday", 0.7, -0.02)
    found = verdict(EvaluationView(Evaluation(tuple(two), about=About(runs=("monday", "friday")))))
    expected = (
        "monday says 85.0 % and is right 80.0 %; friday says 68.0 % and is right 70.0 %: "
        "confidence minus accuracy is +5.0 (+4.0 to +6.0) and −2.0 (−3.0 to −1.0) points."
    )
    assert found.sentence == expected.replace(" %", f"{THIN}%")
    both = EvaluationView(Evaluation(tuple(two), about=About(runs=("monday", "friday"))))
    assert [tile.label for tile in tiles(both)] == [
        "Confidence minus accuracy of monday, as trained",
        "Accuracy of monday",
    ]
    four = two + run("sunday", 0.7, 0.09) + run("tuesday", 0.7, 0.001)
    found = verdict(EvaluationView(Evaluation(tuple(four), about=About(runs=("a", "b")))))
    assert found.sentence == (
        "Of 4 models side by side, tuesday has the smallest gap between confidence and accuracy, "
        "+0.1 (−0.9 to +1.1) points, and sunday the widest, +9.0 (+8.0 to +10.0)."
    )


def test_a_report_on_trust_says_which_predictors_win():
    found = Evaluation((Measurement("accuracy", 0.9, 100),), about=About(verdict="No predictor beats max-softmax."))
    assert verdict(EvaluationView(found)).sentence == "No predictor beats max-softmax."


def test_classes_of_calibrated_data_are_rarely_called_overconfident():
    """Ten classes of 200 samples whose accuracy is their confidence: a claim in at most 5 % of draws."""
    rng = np.random.default_rng(0)
    confidence = np.linspace(0.6, 0.97, 10)
    claims, draws = 0, 1000
    for _ in range(draws):
        right = rng.binomial(200, confidence) / 200
        gaps = {str(k): Measurement("confidence_gap", g, 200) for k, g in enumerate(confidence - right)}
        accuracy = {str(k): Measurement("accuracy", rate, 200) for k, rate in enumerate(right)}
        claims += bool(sides_beyond_chance(gaps, accuracy))
    assert 0 < claims <= 0.05 * draws + 3 * (0.05 * 0.95 * draws) ** 0.5


@pytest.mark.parametrize("units", [None, 40])
def test_classes_of_samples_drawn_several_as_one_are_rarely_called_overconfident(units):
    """Four classes of 1,200 samples in 40 images that are right or wrong by tens: their intervals count images."""
    rng, claims, draws = np.random.default_rng(0), 0, 1000
    for _ in range(draws):
        right = rng.binomial(120, 0.8, 4) / 120
        half = 2.02 * np.sqrt(0.8 * 0.2 / 120)
        gaps = {
            str(k): Measurement("confidence_gap", g, 1200, bounds=(g - half, g + half))
            for k, g in enumerate(0.8 - right)
        }
        accuracy = {str(k): Measurement("accuracy", rate, 1200) for k, rate in enumerate(right)}
        claims += bool(sides_beyond_chance(gaps, accuracy, drawn_alone=False, units=units))
    assert 0 < claims <= 0.05 * draws + 3 * (0.05 * 0.95 * draws) ** 0.5


def test_class_titles_count_tests_not_signs():
    def title(*gaps: float, rate: float = 0.8, when: str = "") -> str:
        rows = {str(k): Measurement("confidence_gap", g, 200) for k, g in enumerate(gaps)}
        sides = sides_beyond_chance(rows, {name: Measurement("accuracy", rate, 200) for name in rows})
        return class_title(sides, len(rows), when)

    assert title(0.01, 0.01, 0.01) == "No single class is clearly over- or underconfident"
    assert title(0.1, 0.1, 0.1, when="Before calibration, ") == "Before calibration, every class is overconfident"
    assert title(0.1, -0.1, 0.0) == "1 of 3 classes is overconfident, 1 underconfident"


def test_classes_are_tested_one_after_another():
    """By Holm: 7 points of 200 samples are beyond chance in two classes, and in twenty where the others are wide."""
    accuracy = {str(k): Measurement("accuracy", 0.8, 200) for k in range(20)}
    gaps = {str(k): Measurement("confidence_gap", 0.07 if k < 2 else 0.15, 200) for k in range(20)}
    assert sides_beyond_chance({"0": gaps["0"], "1": gaps["1"]}, accuracy) == ["over", "over"]
    assert len(sides_beyond_chance(gaps, accuracy)) == 20
    narrow = {name: Measurement("confidence_gap", 0.07, 200) for name in gaps}
    assert sides_beyond_chance(narrow, accuracy) == []


def test_a_headline_does_not_call_well_calibrated_what_the_chart_by_class_denies():
    view = build(0.9, (0.002, -0.006, 0.010), 0.4)
    by_class = [
        Measurement(metric, value, 400, "test", group=f"predicted={name}")
        for name, gap in (("Bag", 0.1), ("Shirt", -0.1), ("Coat", 0.001))
        for metric, value in (("accuracy", 0.8), ("confidence_gap", gap))
    ]
    rows = (*view.evaluation.measurements, *by_class)
    expected = ": well calibrated over all classes together, as far as 4,000 images can tell, but not within 2 of them."
    assert verdict(EvaluationView(replace(view.evaluation, measurements=rows))).sentence.endswith(expected)
    fine = (*view.evaluation.measurements, *by_class[-2:])
    sentence = verdict(EvaluationView(replace(view.evaluation, measurements=fine))).sentence
    assert sentence.endswith(": well calibrated, as far as 4,000 images can tell.")


@pytest.mark.parametrize(
    ("value", "low", "high", "zone", "ends"),
    [
        (0.25, 0.20, 0.40, None, ("20", "40")),  # the ends of the interval are the ends of the axis
        (0.25, 0.20, 0.25, (0.10, 0.50), ("10", "50")),
        (-0.25, -0.40, -0.20, None, ("\u221240", "0")),
        (0.5, 0.0, 1.0, None, ("0", "100")),
        (0.5, float("nan"), float("nan"), None, ()),
    ],
)
def test_a_strip_is_drawn_where_its_numbers_say(value, low, high, zone, ends):
    m = Measurement("accuracy", value, 400, bounds=(low, high))
    svg = ElementTree.fromstring(str(_interval_strip(m, None, zone)))
    ticks = [(float(t.attrib["x"]), float(t.text.replace("\u2212", "-"))) for t in svg.iter("text")]
    if m.has_interval:
        texts = [t.text.replace(".0", "") for t in svg.iter("text")]
        assert (texts[0], texts[-1]) == ends
    (x0, v0), (x1, v1) = ticks[0], ticks[-1]

    def place(share):
        return pytest.approx(x0 + (100 * share - v0) / (v1 - v0) * (x1 - x0), abs=0.11)

    (dot,) = svg.iter("circle")
    assert float(dot.attrib["cx"]) == place(value)
    paths = {p.attrib["class"]: [float(n) for n in re.findall(r"-?[\d.]+", p.attrib["d"])] for p in svg.iter("path")}
    if m.has_interval:
        assert (paths["ki"][0], paths["ki"][2]) == (place(low), place(high))
    if zone:
        left, width = paths["fb"][0], paths["fb"][2]
        assert (left, left + width) == (place(zone[0]), place(zone[1]))
