"""What an evaluation holds: several as one, files of other versions, rows of paired tests."""

from __future__ import annotations

import pytest

from confide.checks import InputError
from confide.evaluation import join
from confide.report import side_by_side
from confide.results import ComparedRow, Curve, Evaluation, Measurement, Sample


def evaluation(model: str, **about: object) -> Evaluation:
    curve = Curve("training", {"epoch": (1.0,), "train_loss": (0.5,)}, "shared")
    return Evaluation(
        (Measurement("accuracy", 0.9, 10, model=model),),
        (curve,),
        samples=(Sample("hardest", "7", "cat"), Sample("hardest", model, "dog")),
        about=about,
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
        assert joined.about["stages"] == {"first/raw": "T = 1", "second/raw": "T = 2"}
        assert joined.about["missing"] == {"nll": "no probabilities", "shift": "not tested"}
        assert joined.about["seed"] == 1
        assert joined.warnings[0] == "mind this"
    with pytest.raises(InputError, match="at least one evaluation"):
        join([])


@pytest.mark.parametrize("name", ["a", "net/raw", "runs/net/raw", "/", "net/"])
def test_the_name_of_a_compared_row_comes_back_as_it_was(name):
    assert str(ComparedRow.of(name)) == name


def test_a_model_may_have_a_slash_in_its_name():
    assert ComparedRow.of("runs/net/raw") == ComparedRow("runs/net", "raw")
