"""Scored data: what is a file of features, which split a log is of, what is said of suspects, and of other classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from confide import Features, Predictions, Scores, difficulty
from confide.checks import InputError
from confide.files import formats
from confide.records import Dataset, Split
from confide.scoring import (
    ScoredData,
    ScoringRequest,
    _check_labels,
    _data_notes,
    _is_extractor,
    _only_numbered,
    fitted_extractor,
    is_features,
    score_data,
)

N = 90
LABELS = np.arange(N) % 3
ROWS = np.random.default_rng(0).normal(size=(N, 4)) + 4 * np.eye(3, 4)[LABELS]


def test_features_are_told_from_inputs_by_their_columns(tmp_path: Path) -> None:
    for name, columns, expected in (
        ("features.npz", {"features": ROWS}, True),
        ("embeddings.npz", {"embeddings": ROWS, "labels": LABELS}, True),
        ("carried.npz", {"features": ROWS, "inputs": ROWS}, False),
        ("images.npz", {"images": ROWS}, False),
        ("features.parquet", {"features": ROWS, "label": LABELS}, True),
        ("texts.parquet", {"features": ROWS, "text": np.full(N, "a")}, False),
        ("pictures.parquet", {"features": ROWS, "image": np.full(N, "a")}, False),
        ("rows.parquet", {"label": LABELS}, False),
        ("features.csv", {"features": LABELS}, False),
    ):
        formats.write_table(tmp_path / name, columns)
        assert is_features(tmp_path / name) is expected, name
    folder = tmp_path / "shards"
    folder.mkdir()
    assert not is_features(folder)
    (folder / "plan.json").write_text("{}")
    assert not is_features(folder)
    (folder / "rows-0.npy").write_text("")
    assert is_features(folder)
    (folder / "plan.json").unlink()
    assert not is_features(folder)
    assert not is_features(tmp_path / "nowhere")


def scored(judged: bool = True, labels: bool = True, split: bool = True, texts: bool = False) -> ScoredData:
    """Four samples, of which two look wrong."""
    ids = np.array(["a", "b", "c", "d"])
    columns = {
        "verdict": np.array(["wrong label", "typical", "wrong label", "hard"]),
        "suspicion": np.array([1.0, 9.0, 2.0, 8.0]),
        "suggested": np.array([1, 0, 7, 0]),
    }
    own = np.array([0, 1, 0, 1]) if labels else None
    scores = Scores(ids, np.arange(4.0), "rmd", {}, own, columns if judged else {})
    inputs = ["x" * 2000, "two", "three", "four"] if texts else np.zeros((4, 3, 4, 4), np.uint8)
    part = Split(inputs, np.array([0, 1, 0, 1]), ids)
    return ScoredData("mine", scores, (scores,), ("cat", "dog"), part if split else None, inputs if split else None)


def test_suspects_are_the_wrong_labels_the_clearest_first() -> None:
    first, second = scored().suspects()
    assert (first.id, first.label, first.suggested, first.suspicion) == ("c", "cat", "7", 2.0)
    assert (second.id, second.label, second.suggested, second.suspicion) == ("a", "cat", "dog", 1.0)
    assert first.picture is not None
    assert first.text is None
    assert [s.id for s in scored().suspects(most=1)] == ["c"]
    assert scored(judged=False).suspects() == []
    assert [s.label for s in scored(labels=False).suspects()] == ["", ""]
    assert [(s.picture, s.text) for s in scored(split=False).suspects()] == [(None, None)] * 2
    third, fourth = scored(texts=True).suspects()
    assert (third.picture, third.text) == (None, "three")
    assert 100 < len(fourth.text or "") < 2000
    part = scored().split
    assert part is not None
    others = replace(scored(), split=Split(part.inputs, part.labels, np.array(["w", "x", "y", "z"])))
    assert [s.picture for s in others.suspects()] == [None, None]


def test_a_class_beyond_the_names_is_its_number() -> None:
    assert [scored().class_name(k) for k in range(3)] == ["cat", "dog", "2"]
    assert scored().verdict_counts() == {}
    with pytest.raises(InputError, match="labels were not judged"):
        scored().suspect_table()


def test_the_gallery_carries_verdicts_where_there_are_some() -> None:
    assert {s.verdict for s in scored(texts=True).gallery(2)} <= {"wrong label", "typical", "hard"}
    assert {s.verdict for s in scored(judged=False, texts=True).gallery(2)} == {None}
    assert scored(split=False).gallery() == []
    assert len(scored(texts=True).gallery(1)) == 4


def data(tmp_path: Path, n: int = N) -> Path:
    np.savez(tmp_path / "rows.npz", x=ROWS[:n].astype(np.float32), y=LABELS[:n])
    return tmp_path / "rows.npz"


def test_predictions_of_another_split_are_told_by_its_name(tmp_path: Path) -> None:
    from confide import load_dataset

    dataset = load_dataset(str(data(tmp_path)))
    records = {
        name: Predictions(np.eye(3)[part.labels], part.labels, part.ids) for name, part in dataset.splits.items()
    }
    assert len(records) == 3
    own = ScoringRequest(methods=("loss",), predictions=records["train"], judge=False, cache=None)
    assert len(score_data(tmp_path / "rows.npz", own).scores) == len(records["train"])
    for name in ("val", "test"):
        with pytest.raises(InputError, match=f"is of the split '{name}', but 'train' is scored; add --split {name}"):
            score_data(tmp_path / "rows.npz", replace(own, predictions=records[name]))
        there = score_data(tmp_path / "rows.npz", replace(own, predictions=records[name], split=name))
        assert len(there.scores) == len(records[name])
    with pytest.raises(InputError, match="pass --log FOLDER or --predictions"):
        score_data(tmp_path / "rows.npz", replace(own, predictions=None))
    with pytest.raises(InputError, match="give DATA beside --predictions"):
        score_data(None, replace(own, methods=("rmd",)))


def test_a_split_to_fit_on_is_looked_at_where_it_is_another(tmp_path: Path) -> None:
    path = data(tmp_path)
    plain = ScoringRequest(split="val", judge=False, extractor="pixels", cache=None)
    own = score_data(path, plain).scores.values
    assert np.array_equal(score_data(path, replace(plain, fit_split="val")).scores.values, own)
    assert not np.array_equal(score_data(path, replace(plain, fit_split="train")).scores.values, own)


def test_labels_that_a_fit_needs_are_missed_by_the_first_that_lacks(tmp_path: Path) -> None:
    fitted = difficulty.fit("rmd", Features(ROWS, LABELS, np.arange(N), "pixels"))
    labels = np.array([0, 1, -1, 2, -1])
    with pytest.raises(InputError, match="got none at sample 2 of 5; add --labels predicted, or min"):
        _check_labels("mine", ScoringRequest(), fitted, labels)
    _check_labels("mine", ScoringRequest(labels="min"), fitted, labels)
    _check_labels("mine", ScoringRequest(), fitted, labels[:2])


def test_a_fit_names_an_extractor_that_is_known() -> None:
    def named(word: str, **options: int) -> difficulty.FittedDifficulty:
        return difficulty.fit("prototype", Features(ROWS, LABELS, np.arange(N), word, options=options))

    assert fitted_extractor("f", named("cached")) == ("cached", {})
    assert fitted_extractor("f", named("pixels", size=2)) == ("pixels", {"size": 2})
    for fitted in (named("nobody"), named("cached", size=3), named("pixels", sise=2)):
        with pytest.raises(InputError, match="must name the extractor of its features"):
            fitted_extractor("f", fitted)
    assert [_is_extractor(word) for word in ("cached", "pixels", "nobody", None)] == [True, True, False, False]
    assert [_only_numbered(names) for names in (("0", "1"), ("1", "0"), ("a",), ())] == [True, False, False, True]


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [(("a", "b", "c"), ("b", "c", "a"), False), (("0", "1", "2"), ("b", "c", "a"), True), ((), ("b", "c", "a"), True)],
)
def test_classes_of_other_data_are_found_by_name(
    tmp_path: Path, ours: tuple[str, ...], theirs: tuple[str, ...], same: bool
) -> None:
    from confide.scoring import _labels_of_the_fit, _Samples

    rows = Features(ROWS, LABELS, np.arange(N), "pixels")
    fitted = difficulty.fit("prototype", rows)
    fitted = replace(fitted, source=replace(fitted.source, class_names=ours))

    class Named(_Samples):
        @property
        def class_names(self) -> tuple[str, ...]:
            return theirs

    samples = Named(ScoringRequest(), "mine", None, rows)
    found = _labels_of_the_fit(fitted, rows, samples)
    assert found.tolist() == (LABELS if same else (LABELS + 1) % 3).tolist()
    if ours == ("a", "b", "c"):
        unknown = replace(fitted, source=replace(fitted.source, class_names=("a", "b", "x")))
        with pytest.raises(InputError, match="but 'c' is none of a, b, x; add --labels predicted"):
            _labels_of_the_fit(unknown, rows, samples)


def test_what_was_cut_off_or_not_read_is_told() -> None:
    part = Split(np.zeros((4, 2)), np.arange(4) % 2, np.arange(4))
    splits = {"train": part, "val": part.take(np.arange(2)), "test": part.take(np.arange(3))}
    own = Dataset("own", "rows", splits, ("a", "b"))
    assert _data_notes(own, "train") == []
    cut = replace(own, cut_from={"val": "train", "train": "all"})
    (note,) = _data_notes(cut, "train")
    assert note.startswith("4 of 9 samples were scored: val were cut off")
    (other,) = _data_notes(cut, "test")
    assert "train and val were cut off" in other
    for count, words in ((1, "1 input could not be read: x0"), (3, "3 inputs could not be read: x0, x1, x2")):
        lost = replace(own, set_aside=tuple((f"x{k}", "damaged") for k in range(count)))
        assert _data_notes(lost, "train") == [words]
    many = replace(own, set_aside=tuple((f"x{k}", "damaged") for k in range(4)))
    assert _data_notes(many, "train") == ["4 inputs could not be read: x0, x1, x2, ..."]
