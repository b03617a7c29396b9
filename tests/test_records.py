import numpy as np
import pytest

from confide.checks import InputError, check_ids
from confide.records import Dataset, Features, Scores, Split, rows_of


def test_rows_are_found_by_id_in_the_order_asked():
    known = np.array(["c", "a", "b"])
    np.testing.assert_array_equal(rows_of(["b", "c"], known, "scores"), [2, 0])


def test_integer_and_text_ids_meet():
    np.testing.assert_array_equal(rows_of(np.array(["3", "1"]), np.array([1, 2, 3]), "scores"), [2, 0])


def test_a_missing_id_is_said():
    with pytest.raises(InputError, match=r"1 of 2 are missing, first 'z'"):
        rows_of(["a", "z"], np.array(["a", "b"]), "scores")


def test_ids_must_be_unique_and_as_many_as_samples():
    with pytest.raises(InputError, match="must be unique, got 'a' twice"):
        check_ids(["a", "a"], 2)
    with pytest.raises(InputError, match="must be 3 values"):
        check_ids(["a", "b"], 3)


def test_scores_and_features_come_back_as_they_went(tmp_path):
    ids, labels = np.array(["x", "y"]), np.array([0, 1])
    scores = Scores(
        ids, np.array([0.5, -1.0]), "rmd", {"shrinkage": "auto"}, labels, {"verdict": np.array(["a", "b"])}, ("n",)
    )
    scores.save(tmp_path / "s.parquet")
    back = Scores.load(tmp_path / "s.parquet")
    assert (back.method, back.options, back.notes) == ("rmd", {"shrinkage": "auto"}, ("n",))
    np.testing.assert_array_equal(back.of(np.array(["y", "x"])), [-1.0, 0.5])
    np.testing.assert_array_equal(back.columns["verdict"], ["a", "b"])
    features = Features(np.eye(2, dtype=np.float16), labels, ids, "pixels", "val")
    features.save(tmp_path / "f.npz")
    again = Features.load(tmp_path / "f.npz")
    assert (again.extractor, again.split, again.dim) == ("pixels", "val", 2)
    assert again.values.dtype == np.float16


def test_a_split_that_is_not_there_is_named():
    split = Split(np.zeros((1, 2)), np.array([0]), np.array([0]))
    dataset = Dataset("mine", "rows", {"train": split}, ("a", "b"))
    with pytest.raises(InputError, match="has no split 'test'; it has train"):
        _ = dataset.test


def test_scores_of_several_splits_are_joined_by_id():
    train, val = (
        Scores(np.array(["a", "b"]), np.array([1.0, 2.0]), "rmd"),
        Scores(np.array([7]), np.array([3.0]), "rmd"),
    )
    both = Scores.joined([train, val])
    assert both.of(np.array(["7", "a"])).tolist() == [3.0, 1.0]
    assert Scores.joined([train]) is train
    with pytest.raises(InputError, match="must come from one method, got rmd, md"):
        Scores.joined([train, Scores(np.array(["c"]), np.zeros(1), "md")])
    with pytest.raises(InputError, match="ids of joined scores must be unique"):
        Scores.joined([train, train])


def test_a_mean_that_is_rounding_beside_the_spread_is_zero():
    values = np.array([-8.0, 3.0, 5.0])
    assert repr(Scores(np.arange(3), values - 1e-7, "rmd").mean) == "0.0"
    assert Scores(np.arange(3), values + 0.01, "rmd").mean == pytest.approx(0.01)
    assert Scores(np.arange(2), np.zeros(2), "rmd").mean == 0.0


def test_a_console_shows_datasets_and_scores_in_one_line():
    part = Split(np.zeros((3, 2)), np.array([0, 1, 0]), np.arange(3))
    assert repr(Dataset("mine", "rows", {"train": part}, ("a", "b"))) == "<Dataset 'mine': rows, 2 classes; train 3>"
    scores = Scores(np.arange(2), np.array([-1.5, 20.0]), "rmd")
    assert repr(scores) == "<Scores by 'rmd': 2 samples, -1.5 (easy) to 20 (hard)>"


def test_joined_scores_keep_the_columns_that_all_parts_have():
    first = Scores(np.array([1, 2]), np.array([0.1, 0.2]), "rmd", columns={"verdict": np.array(["a", "b"])})
    second = Scores(np.array([3]), np.array([0.3]), "rmd", columns={"verdict": np.array(["c"]), "other": np.array([1])})
    assert Scores.joined([first, second]).columns["verdict"].tolist() == ["a", "b", "c"]
    assert list(Scores.joined([first, second]).columns) == ["verdict"]


@pytest.mark.parametrize("kind", ["array", "texts", "objects", "pictures"])
def test_whatever_changes_in_a_split_changes_its_fingerprint(kind, monkeypatch):
    monkeypatch.setattr("confide.records.WIDENED_ROWS", 2)
    values = np.arange(15.0).reshape(5, 3)
    inputs = {
        "array": values,
        "texts": [f"text {k}" for k in range(5)],
        "objects": np.array([f"text {k}" for k in range(5)], dtype=object),
        "pictures": list(values.astype(np.uint8)),
    }[kind]
    labels, ids = np.arange(5) % 2, np.array(list("abcde"))

    def changed(row: int):
        other = inputs.copy()
        other[row] = "other" if kind in ("texts", "objects") else values[row].astype(np.uint8) + 1
        return other

    splits = [Split(inputs, labels, ids), Split(inputs, labels[::-1] ^ 1, ids), Split(inputs, labels, ids[::-1])]
    splits += [Split(changed(row), labels, ids) for row in range(5)]
    assert len({split.fingerprint for split in splits}) == len(splits)
    assert Split(inputs, labels.astype(np.int32), ids).fingerprint == splits[0].fingerprint


def test_word_labels_of_features_are_one_line_before_any_difficulty_meets_them():
    for labels in (np.array(["a", "b"]), np.array([0.5, 1.0])):
        with pytest.raises(InputError, match="labels of features must be class indices"):
            Features(np.zeros((2, 3)), labels, np.arange(2), "pixels")
    assert len(Features(np.zeros((2, 3)), np.array([0.0, 1.0]), np.arange(2), "pixels")) == 2
