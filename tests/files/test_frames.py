"""Data frames in and out; pandas and polars where they are installed, a dictionary of columns always."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import confide
from confide import Predictions
from confide.checks import InputError
from confide.files import frames

PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
COLUMNS = {
    **{name: PROBS[:, k] for k, name in enumerate(("cat", "dog", "fox"))},
    "truth": np.array(["cat", "dog", "fox", "fox"]),
    "site": np.array(["A", "A", "B", "B"]),
}
LIBRARIES = ("pandas", "polars")


@pytest.fixture(params=["dictionary", *LIBRARIES])
def frame(request):
    return lambda columns: columns if request.param == "dictionary" else made(request.param)(columns)


def made(library):
    return pytest.importorskip(library).DataFrame


def test_columns_that_are_named_have_their_role_and_words_are_labels(frame):
    found = Predictions.from_frame(frame(COLUMNS), label="truth", probs=["cat", "dog", "fox"], split="val")
    assert found.class_names == ("cat", "dog", "fox")
    assert found.labels.tolist() == [0, 1, 2, 2]
    torch.testing.assert_close(found.probabilities(), torch.as_tensor(PROBS))
    assert list(found.columns) == ["site"]
    assert found.split == "val"


def test_columns_that_are_not_named_are_understood_as_those_of_a_file(frame):
    columns = {"id": ["a", "b", "c", "d"], "correct": [True, True, False, True], "score": PROBS.max(1)}
    found = Predictions.from_frame(frame(columns))
    assert found.facts.correct.tolist() == columns["correct"]
    assert found.ids.tolist() == columns["id"]
    lists = Predictions.from_frame(frame({"probs": PROBS.tolist(), "y_true": [0, 1, 2, 2]}))
    torch.testing.assert_close(lists.probabilities(), torch.as_tensor(PROBS))
    assert not Predictions.from_frame(frame({"probs": PROBS.tolist()})).has_labels


def test_a_role_that_is_named_leaves_no_doubt():
    columns = {"label": [0, 1, 2, 2], "y": [5, 5, 5, 5], "p": PROBS.max(1), "answer": [0, 1, 1, 2], "score": [9.0] * 4}
    found = Predictions.from_frame(columns, prediction="answer", confidence="p")
    assert found.facts.correct.tolist() == [True, True, False, True]
    assert set(found.columns) == {"y", "score"}
    with pytest.raises(InputError, match="no column 'confidense'; did you mean 'confidence'"):
        Predictions.from_frame({"confidence": [0.5]}, confidence="confidense")
    with pytest.raises(InputError, match="must be of pandas or polars, or a dictionary of columns, got list"):
        Predictions.from_frame([1, 2])


def test_words_are_labels_of_arrays_too():
    names, words = ("cat", "dog", "fox"), COLUMNS["truth"]
    assert Predictions(np.log(PROBS), words, class_names=names).labels.tolist() == [0, 1, 2, 2]
    assert Predictions.from_probs(PROBS, words.tolist(), class_names=names).labels.tolist() == [0, 1, 2, 2]
    top = Predictions.from_top1(words, ["cat", "dog", "dog", "fox"], PROBS.max(1))
    assert (top.class_names, top.facts.correct.tolist()) == (names, [True, True, False, True])
    with pytest.raises(InputError, match="labels of the predictions are words such as 'cat', but nothing says which"):
        Predictions.from_probs(PROBS, words)


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_become_data_frames(library):
    pytest.importorskip(library)
    predictions = Predictions.from_frame(COLUMNS, label="truth", probs=["cat", "dog", "fox"])
    rows = predictions.to_frame(library)
    assert list(rows.columns) == ["id", "label", "prediction", "confidence", "correct", "site"]
    assert list(rows["prediction"]) == ["cat", "dog", "dog", "fox"]
    table = confide.evaluate(predictions, ["accuracy"], intervals=False).to_frame(library)
    assert table["metric"][0] == "accuracy"
    assert next(iter(table["value"])) == 0.75
    scores = confide.Scores(np.arange(3), np.array([0.5, 1.0, 2.0]), "rmd", {}, np.array([0, 1, 1]))
    assert list(scores.to_frame(library)["score"]) == [0.5, 1.0, 2.0]


def test_a_frame_is_of_the_library_in_use_before_one_that_is_only_installed(monkeypatch):
    pandas, polars = (
        SimpleNamespace(DataFrame=lambda c: ("pandas", c)),
        SimpleNamespace(DataFrame=lambda c: ("polars", c)),
    )
    monkeypatch.setattr(frames, "find_spec", lambda name: name)
    monkeypatch.setattr(frames, "import_module", {"pandas": pandas, "polars": polars}.__getitem__)
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert frames.as_frame({"a": [1]}) == ("pandas", {"a": [1]})
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert frames.as_frame({"a": [1]}) == ("polars", {"a": [1]})
    monkeypatch.delitem(sys.modules, "polars")
    monkeypatch.setattr(frames, "find_spec", lambda name: name == "polars" or None)
    assert frames.as_frame({"a": [1]})[0] == "polars"
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the package 'pandas'; install it with: pip install pandas"):
        frames.as_frame({"a": [1]})
