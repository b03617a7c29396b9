"""Expectations of an evaluation, from Python and from the command line."""

import json

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.cli.main import main

LABELS = [0] * 80 + [1] * 20
PREDICTIONS = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, LABELS)  # accuracy 0.8


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accuracy>=0.8", True),
        ("accuracy > 0.8", False),
        (" accuracy <= 80 % ", True),
        ("accuracy<8e-1", False),
        ("accuracy[class=0]>=1", True),
        ("accuracy[class=1]>0", False),
    ],
)
def test_values_are_compared(text, holds):
    evaluation = confide.evaluate(PREDICTIONS, ["accuracy"], intervals=False)
    broken = evaluation.expect(text)
    assert (broken == []) is holds
    assert all(str(one).startswith(f"{text.strip()}: accuracy is ") for one in broken)


def test_surely_asks_the_interval():
    evaluation = confide.evaluate(PREDICTIONS, ["accuracy"])
    low, high = evaluation.find("accuracy", group=None).bounds
    assert low < 0.75 < 0.8 < high
    assert evaluation.expect("accuracy>0.75") == []
    (broken,) = evaluation.expect("accuracy>0.75", surely=True)
    assert f"(95 % {low:.6g} to" in str(broken)
    assert evaluation.expect(f"accuracy>{low - 1e-6}", f"accuracy<{high + 1e-6}", surely=True) == []
    (unsure,) = confide.Evaluation((confide.Measurement("accuracy", 0.9, 5),)).expect("accuracy>0.5", surely=True)
    assert str(unsure) == "accuracy>0.5: accuracy is 0.9, without an interval to be sure"


@pytest.mark.parametrize("text", ["ece", "ece=0.1", "ece<", "ece<x", "<0.1", "ece<0.1.2", "", "ece<0.03 or so"])
def test_what_is_no_expectation_is_refused(text):
    with pytest.raises(InputError, match="an expectation must be METRIC"):
        confide.evaluate(PREDICTIONS, ["accuracy"], intervals=False).expect(text)


def test_a_metric_or_group_that_is_not_there_is_refused():
    evaluation = confide.evaluate(PREDICTIONS, ["accuracy"], intervals=False)
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        evaluation.expect("acuracy>0.5")
    with pytest.raises(InputError, match="did you mean 'class=1'"):
        evaluation.expect("accuracy[clas=1]>0.5")


def test_a_value_that_is_not_defined_breaks_every_expectation():
    rows = (confide.Measurement("auroc", float("nan"), 5),)
    assert [str(one) for one in confide.Evaluation(rows).expect("auroc>0", "auroc<1")] == [
        "auroc>0: auroc is not defined here",
        "auroc<1: auroc is not defined here",
    ]


def test_the_helper_for_test_suites_fails_with_a_line_each():
    confide.evaluation.assert_expected(PREDICTIONS, "accuracy>=0.8", "nll<2")
    with pytest.raises(AssertionError, match=r"^accuracy>0.9: accuracy is 0.8\naccuracy>0.95: accuracy is 0.8$"):
        confide.evaluation.assert_expected(PREDICTIONS, "accuracy>0.9", "nll<2", "accuracy>0.95")
    with pytest.raises(AssertionError, match="95 %"):
        confide.evaluation.assert_expected(PREDICTIONS, "accuracy>0.79", surely=True)


def test_the_command_ends_with_3_and_a_line_for_each_broken_one(tmp_path, capsys):
    np.savez(tmp_path / "p.npz", logits=PREDICTIONS.logits.numpy(), labels=np.array(LABELS))
    words = ["evaluate", str(tmp_path / "p.npz"), "--out", str(tmp_path / "out"), "--metrics", "accuracy"]
    assert main([*words, "--no-intervals", "--expect", "accuracy>=0.8", "--expect", "mce<1"]) == 0
    capsys.readouterr()
    assert main([*words, "--expect", "accuracy>0.8", "--expect", "nll<0.1", "--json"]) == 3
    shown = capsys.readouterr()
    assert [line.split(": ")[1] for line in shown.err.splitlines()] == ["accuracy>0.8", "nll<0.1"]
    assert [one["metric"] for one in json.loads(shown.out)["broken"]] == ["accuracy", "nll"]
    assert main([*words, "--expect", "accuracy>0.75"]) == 0
    assert main([*words, "--expect", "accuracy>0.75", "--expect-surely"]) == 3
    assert main([*words, "--expect-surely", "accuracy>0.75"]) == 3
    assert main([*words, "--expect-surely", "accuracy>0.5"]) == 0
    for bad in (["--expect", "ece~1"], ["--expect-surely"], ["--no-intervals", "--expect-surely", "ece<1"]):
        assert main([*words, *bad]) == 1
    assert main([*words, "--expect", "acuracy>0.5"]) == 1
