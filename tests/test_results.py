"""What an evaluation holds: several as one, files of other versions, rows of paired tests."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.evaluation import join
from confide.report import side_by_side
from confide.results import (
    CURVES,
    About,
    BreakEvenPoint,
    ClassThreshold,
    ComparedRow,
    Comparison,
    Curve,
    DecisionResult,
    DifficultyInfo,
    Evaluation,
    GroupCoverage,
    Measurement,
    MetricInfo,
    ModelPoint,
    ObservedPoint,
    OperatingPoint,
    PromisedRisk,
    Sample,
    SetExample,
    SetResult,
)
from confide.results.measurements import comparisons_of_rows, group_of
from confide.training import Trained


def evaluation(model: str, **about: object) -> Evaluation:
    curve = Curve("training", {"epoch": (1.0,), "train_loss": (0.5,)}, "shared")
    return Evaluation(
        (Measurement("accuracy", 0.9, 10, model=model),),
        (curve,),
        samples=(Sample("hardest", "7", "cat"), Sample("hardest", model, "dog")),
        about=About(**about),
        warnings=("mind this",),
    )


def test_both_ways_to_join_keep_the_same():
    """One kept all samples and lost the stages of later evaluations, the other the other way round."""
    parts = [
        evaluation("first", stages={"first/raw": "T = 1"}, missing={"nll": "no probabilities"}, seed=1),
        evaluation("second", stages={"second/raw": "T = 2"}, missing={"shift": "not tested"}, seed=2),
    ]
    for joined in (join(parts), side_by_side(parts, ["a", "b"])):
        assert [m.model for m in joined.measurements] == ["first", "second"]
        assert [s.id for s in joined.samples] == ["7", "first", "second"]
        assert len(joined.curves) == 1
        assert joined.about.stages == {"first/raw": "T = 1", "second/raw": "T = 2"}
        assert joined.about.missing == {"nll": "no probabilities", "shift": "not tested"}
        assert joined.about.seed == 1
        assert joined.warnings[0] == "mind this"
    with pytest.raises(InputError, match="at least one evaluation"):
        join([])


@pytest.mark.parametrize("name", ["a", "net/raw", "runs/net/raw", "/", "net/"])
def test_the_name_of_a_compared_row_comes_back_as_it_was(name):
    assert str(ComparedRow.of(name)) == name


def test_a_model_may_have_a_slash_in_its_name():
    assert ComparedRow.of("runs/net/raw") == ComparedRow("runs/net", "raw")


def test_what_other_versions_and_users_say_of_an_evaluation_is_kept():
    flat = {"title": "mine", "commands": "confide run", "seed": 3, "my_note": [1, 2], "unit": None}
    about = About.from_dict(flat)
    assert (about.title, about.commands, about.extra) == ("mine", ("confide run",), {"my_note": [1, 2]})
    assert about.to_dict() == {"seed": 3, "title": "mine", "commands": ("confide run",), "my_note": [1, 2]}


def test_a_curve_without_its_columns_is_refused():
    with pytest.raises(
        InputError, match="'risk_coverage' must have the columns coverage risk threshold, but threshold"
    ):
        Curve("risk_coverage", {"coverage": (1.0,), "risk": (0.1,)})
    with pytest.raises(InputError, match="must be of one length, got epoch 2, loss 1"):
        Curve("training", {"epoch": (1.0, 2.0), "loss": (0.1,)})
    assert Curve("of a newer version", {"x": (1.0,)}).columns == {"x": (1.0,)}


def test_every_curve_that_is_written_has_a_kind_of_the_table():
    """`doubts` was written and stood nowhere."""
    written = set()
    for path in Path(confide.__file__).parent.rglob("*.py"):
        written |= set(re.findall(r'Curve(?:\.of)?\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    assert written
    assert written <= set(CURVES)
    log = {"epoch": [1, 2], "gamma0": [1.0, 1.1], "doubt0": [0.1, 0.2], "loss": [2.0, 1.0]}
    kinds = [curve.kind for curve in Trained.curves(SimpleNamespace(log=log))]
    assert kinds == ["training", "gammas", "doubts"]
    assert set(kinds) <= set(CURVES)


def test_what_was_seen_of_a_threshold_is_read_under_the_name_it_is_written():
    """The text said `test_n`, a run wrote `test_accepted`."""
    row = ModelPoint(OperatingPoint(risk=0.1, threshold=0.5), "net", "raw", ObservedPoint(0.5, 0.05, 50)).as_row()
    names = ["test_coverage", "test_risk", "test_accepted", "test_low", "test_high"]
    assert [key for key in row if key.startswith("test_")] == names
    assert repr(ModelPoint.from_row(row).observed) == repr(ObservedPoint(0.5, 0.05, 50))  # NaN is not equal to NaN
    assert ModelPoint.from_row({"risk": 0.1, "threshold": None, "test_risk": None}).observed is None


def test_a_misspelt_keyword_is_refused():
    predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(TypeError, match="titel"):
        confide.evaluate(predictions, intervals=False, titel="mine")
    found = confide.evaluate(predictions, intervals=False, title="mine", unit="images", class_names=["cat", "dog"])
    assert (found.about.title, found.about.unit, found.about.class_names) == ("mine", "images", ("cat", "dog"))


def test_an_interval_is_computed_once_and_kept_when_asked_for():
    calls = []

    def interval() -> tuple[float, float]:
        calls.append(1)
        return 0.8, 1.0

    lazy = Measurement("accuracy", 0.9, 10, interval=interval)
    assert lazy.as_row()["low"] is None
    ready = lazy.with_interval()
    assert (ready.low, ready.high, ready.as_row()["high"], len(calls)) == (0.8, 1.0, 1.0, 1)
    assert ready.has_interval
    assert not Measurement("accuracy", 0.9, 10).has_interval


def test_an_evaluation_written_before_is_saved_with_the_same_names_and_values(tmp_path):
    before = Path(__file__).parent / "written_before/files/evaluation.json"
    Evaluation.load(before).save(tmp_path / "again.json")
    again, first = (json.loads(path.read_text()) for path in (tmp_path / "again.json", before))
    assert {key: again[key] for key in first if key != "format"} == {k: v for k, v in first.items() if k != "format"}


def test_notes_that_are_no_record_are_one_clear_line():
    with pytest.raises(InputError, match="about must be an About, got dict"):
        Evaluation((), about={"title": "mine"})


def test_a_measurement_is_printed_in_one_line():
    row = Measurement("auroc", 0.8305, 1500, score="entropy", bounds=(0.8079, 0.851), chance=0.5)
    assert str(row) == "auroc (entropy) 0.8305, 95 % 0.8079 to 0.851, by chance 0.5, 1,500 samples"
    assert str(Measurement("nll", 0.5, 10, group="class=a")) == "nll [class=a] 0.5, 10 samples"


ROW = Measurement("accuracy", 0.9, 10)
POINT = OperatingPoint("msp", 0.5, 0.8, 0.1, 0.95, 0.09, accepted=8, errors=1, n=10, method="exact")
GROUPS = (GroupCoverage("all", "all", 10, 1.5, 9, 0.5, 1.0), GroupCoverage("class", "cat", 4, 2.0, 0, 0.0, 0.6))
SETS = SetResult("lac", 0.9, 20, GROUPS, ((1, 5), (2, 5)), "class", (SetExample("7", ("cat", "dog"), 2, "cat"),))
DECISIONS = DecisionResult(
    10,
    {"keep": 0.0, "ask": 1.0},
    ROW,
    saved=ROW,
    deferred=10,
    break_even=(BreakEvenPoint(0.5, 1.0, 0.2), BreakEvenPoint(1.0, 2.0, 0.1, 0.3)),
    warnings=("few",),
)


def full() -> Evaluation:
    """An evaluation that has some of everything."""
    return Evaluation(
        (ROW, Measurement("ece", 0.1, 10, stage="temperature", score="trust:x", sd=0.1, bounds=(0.0, 0.2))),
        (Curve("training", {"epoch": (1.0, 2.0), "val_nll": (0.5, 0.4)}, stage="beta"),),
        (Comparison("ece", ComparedRow("model", "raw"), ComparedRow("b"), 0.1, 0.0, 0.2, 0.01, 0.02, "a"),),
        (Sample("hardest", "7", "cat", confidence=0.5),),
        (ModelPoint(POINT, "model", "raw", ObservedPoint(0.8, 0.1, 8, 0.0, 0.3)), ModelPoint(POINT)),
        About(class_names=("cat", "dog"), label_counts={"cat": 4}, difficulty="rmd", seed=0, extra={"note": 1}),
        ("mind this",),
        sets=(SETS,),
        decisions=(DECISIONS,),
    )


def test_all_parts_of_an_evaluation_come_back_from_a_file(tmp_path):
    full().save(tmp_path / "evaluation.json")
    again = Evaluation.load(tmp_path / "evaluation.json")
    assert again.to_dict() == full().to_dict()
    for name in ("measurements", "curves", "comparisons", "samples", "operating_points", "about", "warnings", "sets"):
        assert getattr(again, name) == getattr(full(), name), name
    assert [point.observed for point in again.operating_points] == [ObservedPoint(0.8, 0.1, 8, 0.0, 0.3), None]
    (decided,) = again.decisions
    assert (decided.measured, decided.saved, decided.deferred, decided.threshold) == (None, ROW, 10, None)
    assert math.isnan(decided.break_even[0].measured)
    assert decided.break_even[1] == DECISIONS.break_even[1]
    assert (decided.shares, decided.warnings) == ({"keep": 0.0, "ask": 1.0}, ("few",))


def test_words_of_rows_and_logs_are_explained_and_stages_have_their_titles():
    drawn = Evaluation((), (Curve("shift_cells", {"severity": (0.0,), "accuracy": (0.5,)}),))
    assert drawn.metrics == {}
    assert {"accuracy", "ece", "nll"} <= full().metrics.keys()
    assert full().stage_titles.keys() == {"temperature", "beta"}
    assert full().difficulty.word == "rmd"
    assert full().info("nll").title == "NLL"
    assert full().info("my_own").title == "my own"
    own = Evaluation((ROW,), metrics={"accuracy": MetricInfo("accuracy", "Mine")}, stage_titles={"beta": "mine"})
    assert own.info("accuracy").title == "Mine"
    assert Evaluation((ROW,)).stage_titles == {}
    kept = Evaluation((replace(ROW, stage="beta"),), stage_titles={"beta": "mine"})
    assert kept.stage_titles == {"beta": "mine"}
    given = Evaluation((ROW,), about=About(difficulty="rmd"), difficulty=DifficultyInfo("rmd", "own", "features"))
    assert given.difficulty.meaning == "own"
    assert Evaluation((ROW,)).difficulty is None


def _changed(part, value):
    """The saved evaluation with one place of it changed."""
    data = json.loads(json.dumps(full().to_dict()))
    *way, last = part
    place = data
    for key in way:
        place = place[key]
    place[last] = value
    return data


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (("sets", 0, "groups", 0, "kind"), "class"),
        (("sets", 0, "sizes"), []),
        (("sets", 0, "groups", 0, "low"), "low"),
        (("decisions", 0, "shares", "keep"), -0.001),
        (("decisions", 0, "shares", "ask"), 1.001),
        (("decisions", 0, "n"), "many"),
        (("operating_points", 0, "coverage"), 1.001),
        (("operating_points", 0, "risk"), -0.001),
        (("operating_points", 0, "confidence"), 2),
        (("operating_points", 0, "bound"), -1),
        (("metrics", "ece", "digits"), 13),
        (("metrics", "ece", "digits"), -1),
        (("metrics", "ece", "better"), "sideways"),
        (("metrics", "ece", "tables"), {"models": "first"}),
        (("stage_titles", "beta"), 5),
        (("measurements", 0, "value"), "high"),
        (("curves", 0, "columns", "epoch"), [1.0]),
        (("curves", 0, "columns"), {"val_nll": [1.0]}),
        (("comparisons", 0, "low"), "low"),
        (("about", "class_names"), [1, 2]),
        (("difficulty", "word"), 5),
    ],
    ids=str,
)
def test_a_damaged_part_of_an_evaluation_is_one_line(part, value):
    with pytest.raises(InputError, match="must be what confide wrote"):
        Evaluation.from_dict(_changed(part, value))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (("decisions", 0, "shares"), {"keep": 0, "ask": 1}),
        (("operating_points", 0, "coverage"), 0),
        (("operating_points", 0, "risk"), 1),
        (("operating_points", 1, "confidence"), None),
        (("metrics", "ece", "digits"), 0),
        (("metrics", "ece", "digits"), 12),
        (("measurements", 0, "value"), None),
        (("measurements", 1, "low"), None),
        (("measurements", 1, "high"), None),
        (("about", "unknown"), 5),
        (("difficulty",), None),
    ],
    ids=str,
)
def test_what_lies_at_the_end_of_its_range_is_read(part, value):
    again = Evaluation.from_dict(_changed(part, value))
    if part[-1] == "value":
        assert math.isnan(again.measurements[0].value)
    if part[-1] in ("low", "high"):
        assert again.measurements[1].bounds is None
    if part[-1] == "unknown":
        assert again.about.extra == {"note": 1, "unknown": 5}


@pytest.mark.parametrize(
    ("point", "certified", "promised"),
    [
        (POINT, True, 0.1),
        (replace(POINT, risk=None), True, 0.09),
        (replace(POINT, threshold=None), False, 0.1),
        (replace(POINT, threshold=None, classes={"cat": ClassThreshold(0.5, 1, 0, 0.1, 2)}), True, 0.1),
        (replace(POINT, threshold=None, classes={"cat": ClassThreshold(None, 0, 0, None, 2)}), False, 0.1),
    ],
)
def test_a_point_with_a_threshold_is_certified(point, certified, promised):
    assert (point.certified, point.promised) == (certified, promised)
    assert OperatingPoint.from_dict(json.loads(json.dumps(point.to_dict()))) == replace(point)


def test_a_point_is_written_in_the_format_of_what_it_promises():
    assert "risks" not in POINT.to_dict()
    assert "largest_weight" not in POINT.to_dict()
    assert POINT.to_dict()["format"] == OperatingPoint().format
    assert replace(POINT, largest_weight=2.0).to_dict()["largest_weight"] == 2.0
    several = replace(POINT, risks=(PromisedRisk("fpr", 0.1, False, 1.0, 5, 0.2),))
    expected = replace(POINT, promise="expectation")
    for named in (several, expected):
        assert named.to_dict()["format"] != OperatingPoint().format
        assert OperatingPoint.from_dict(json.loads(json.dumps(named.to_dict()))) == named
    assert OperatingPoint.from_dict({"class_names": ["a"], "classes": None, "risk": None}).class_names == ("a",)


def test_rates_of_nothing_are_not_defined():
    assert [GROUPS[0].share, GROUPS[1].share, SETS.whole.share] == [0.9, 0.0, 0.9]
    assert math.isnan(replace(GROUPS[0], covered=None).share)
    assert math.isnan(replace(GROUPS[1], n=0).share)
    rates = [PromisedRisk("x", 0.1, at_least, 1.0, 4).rate for at_least in (False, True)]
    assert rates == [0.25, 0.75]
    assert math.isnan(PromisedRisk("x", 0.1, True, 0.0, 0).rate)


def test_an_observed_point_needs_its_coverage_or_its_risk():
    seen = ModelPoint.from_row({"test_coverage": 0.5}).observed
    assert (seen.coverage, seen.accepted) == (0.5, 0)
    assert math.isnan(seen.risk)
    assert ModelPoint.from_row({"test_risk": 0.5}).observed.risk == 0.5
    assert ModelPoint.from_row({"test_accepted": 3}).observed is None


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (Measurement("ece", 0.125, 1000), "ece 0.125, 1,000 samples"),
        (Measurement("ece", 0.125, 5, chance=0.1, bounds=(0.1, 0.2)), "ece 0.125, 95 % 0.1 to 0.2, by chance 0.1, "),
        (Measurement("ece", 0.125, 5, bounds=(0.1, math.nan)), "ece 0.125, 5 samples"),
        (Measurement("ece", 0.125, 5, bounds=(-math.inf, 0.2)), "ece 0.125, 5 samples"),
        (Measurement("auroc", 0.5, 5, score="margin", group="site=A"), "auroc (margin) [site=A] 0.5"),
        (Measurement("auroc", 0.5, 5, score="msp", sd=0.01), "auroc 0.5 ± 0.01 over seeds"),
    ],
)
def test_a_measurement_says_what_it_knows(measured, text):
    assert str(measured).startswith(text)


def test_a_test_rejects_below_its_level_and_not_at_it():
    assert [Measurement("ece", 0.1, 5, p_value=p).rejected for p in (0.0499, 0.05, None)] == [True, False, False]


@pytest.mark.parametrize(("better", "winner"), [("a", ComparedRow("a")), ("b", ComparedRow("b", "raw")), (None, None)])
def test_the_winner_of_a_comparison(better, winner):
    assert Comparison("ece", ComparedRow("a"), ComparedRow("b", "raw"), 0, 0, 0, 1, 1, better).winner == winner


def test_sides_of_older_comparisons_are_found_by_their_word():
    rows = [Measurement("auroc", 0.5, 5, score="trust:steep"), Measurement("ece", 0.5, 5)]
    numbers = dict.fromkeys(("difference", "low", "high", "p_value", "p_holm"), None)
    named = [{"metric": "auroc", "a": "mcp", "b": "steep", **numbers}]
    (found,) = comparisons_of_rows(named, rows)
    assert (found.a, found.b) == (ComparedRow("model", "raw", "msp"), ComparedRow("model", "raw", "trust:steep"))
    assert found.better is None
    assert math.isnan(found.low)


def test_what_one_knows_stands_over_what_the_other_knows():
    own = About(seed=0, title="own", stages={"a": "1"}, extra={"x": 1})
    other = About(seed=5, title="other", unit="images", runs=("a",), stages={"a": "2", "b": "3"}, extra={"y": 2})
    both = own.over(other)
    assert (both.seed, both.title, both.unit, both.runs) == (0, "own", "images", ("a",))
    assert (both.stages, both.extra) == ({"a": "1", "b": "3"}, {"x": 1, "y": 2})
    assert own.to_dict() == {"seed": 0, "title": "own", "stages": {"a": "1"}, "x": 1}
    assert About.from_dict({"runs": "one", "seed": None}) == About(runs=("one",))


def test_joined_evaluations_keep_all_parts_and_the_first_difficulty():
    joined = join(
        [Evaluation((ROW,)), full(), full()], [full().comparisons[0]], samples=full().samples, warnings=["more"]
    )
    assert len(joined.measurements) == 5
    assert [len(getattr(joined, name)) for name in ("curves", "comparisons", "samples")] == [1, 3, 1]
    assert [len(getattr(joined, name)) for name in ("operating_points", "sets", "decisions")] == [4, 2, 2]
    assert joined.warnings == ("mind this", "more")
    assert joined.difficulty == full().difficulty
    assert join([full()], about=About(seed=3)).about.seed == 3


def test_a_row_is_found_by_its_fields():
    rows = (ROW, replace(ROW, group="site=A", value=0.5), replace(ROW, model="b", value=0.7))
    evaluation = Evaluation(rows)
    assert evaluation.value("accuracy") == 0.9
    assert evaluation.value("accuracy", group="site=A") == 0.5
    assert evaluation.value("accuracy", model="b", group=None) == 0.7
    for metric, where in (("ece", {}), ("accuracy", {"model": "b", "group": "site=A"})):
        with pytest.raises(InputError, match="no measurement"):
            evaluation.find(metric, **where)


def test_expectations_are_of_the_plain_confidence_and_the_named_group():
    rows = (
        Measurement("auroc", 0.1, 5, score="margin"),
        Measurement("auroc", 0.9, 5, score="msp", bounds=(0.8, 0.95)),
        Measurement("auroc", 0.6, 5, group="site=A"),
    )
    evaluation = Evaluation(rows)
    assert evaluation.expect("auroc>0.8", "auroc[site=A]<=60%", "auroc[site=A]>=60%") == []
    assert len(evaluation.expect("auroc>0.8", score="margin")) == 1
    assert evaluation.expect("auroc >= 0.8", "auroc <= 0.95", surely=True) == []
    assert [b.expectation for b in evaluation.expect("auroc>0.8", "auroc<0.95", surely=True)] == [
        "auroc>0.8",
        "auroc<0.95",
    ]
    for text, hint in (
        ("auroc[site=B]>0", "site=A"),
        ("ece[site=A]>0", "known: auroc"),
        ("aurok>0", "auroc"),
        ("auroc[x]>0", "known: site=A"),
    ):
        with pytest.raises(InputError, match=hint):
            evaluation.expect(text)


def test_a_group_is_read_as_it_is_named():
    for kind, name in (("class", "Shirt"), ("site", "a=b"), ("shift", "severity 3"), ("slice", ""), ("", "odd")):
        measured = Measurement("accuracy", 0.5, 10, group=group_of(kind, name) if kind else name)
        assert (measured.group_kind, measured.group_name) == (kind, name)
    assert (Measurement("accuracy", 0.5, 10).group_kind, Measurement("accuracy", 0.5, 10).group_name) == ("", "")


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float32, np.float64, None])
def test_a_curve_of_any_columns_holds_plain_floats(dtype):
    column = [0, 1, 1] if dtype is None else np.array([0, 1, 1], dtype=dtype)
    curve = Curve.of("drawn", {"a": column}, model="m", split="test")
    assert curve.columns == {"a": (0.0, 1.0, 1.0)}
    assert {type(value) for value in curve.columns["a"]} == {float}
    assert (curve.model, curve.split) == ("m", "test")
