"""What an evaluation holds: several as one, files of other versions, rows of paired tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import confide
from confide.checks import InputError
from confide.evaluation import join
from confide.report import side_by_side
from confide.results import (
    CURVES,
    About,
    ComparedRow,
    Curve,
    Evaluation,
    Measurement,
    ModelPoint,
    ObservedPoint,
    OperatingPoint,
    Sample,
)
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
