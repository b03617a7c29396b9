"""The door of the calibrators: what it refuses, what it notes, what it writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators import fitting, groups as fitting_groups
from confide.checks import InputError, OptionError


def test_a_split_called_test_is_refused(test):
    with pytest.raises(InputError, match="must not be fitted on the test split; pass the predictions on 'val'"):
        calibrators.fit("temperature", test)


def test_a_split_without_a_name_is_accepted(made):
    calibrators.fit("temperature", Predictions(*made(200, 3, seed=0)))


def test_unknown_words_and_options_get_the_nearest_one(val):
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        calibrators.fit("temprature", val)
    with pytest.raises(OptionError, match="did you mean 'search'"):
        calibrators.fit("temperature", val, serach="grid")


def test_bad_input_gets_one_line():
    with pytest.raises(InputError, match="is fitted on Predictions, got Tensor"):
        calibrators.fit("temperature", torch.zeros(3, 2))
    with pytest.raises(InputError, match="needs at least one prediction"):
        calibrators.fit("temperature", Predictions(torch.zeros(0, 2), torch.zeros(0)))
    with pytest.raises(InputError, match="logits must be finite, got nan at sample 1 of 2"):
        calibrators.fit("temperature", Predictions(torch.tensor([[0.0, 1], [torch.nan, 0]]), torch.tensor([0, 1])))
    infinite = Predictions(torch.tensor([[0.0, 1], [-torch.inf, 0]]).repeat(3000, 1), torch.zeros(6000))
    for options in ({}, {"search": "grid"}):
        with pytest.raises(InputError, match="logits must be finite, got -inf at sample 1 of 6000"):
            calibrators.fit("temperature", infinite, **options)
    with pytest.raises(InputError, match="logits must be finite, got -inf at sample 1 of 6000"):
        calibrators.fit("beta", infinite)
    with pytest.raises(InputError, match="'vector' needs all probabilities"):
        calibrators.fit("vector", Predictions.from_top1([0, 1], [0, 1], [0.5, 0.7]))


def test_the_classes_must_be_those_of_the_fit(val):
    with pytest.raises(InputError, match="was fitted for 10 classes, got predictions of 3"):
        calibrators.fit("temperature", val)(Predictions(torch.zeros(2, 3), torch.zeros(2)))


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_saved_calibrator_gives_the_same_numbers(val, test, tmp_path, suffix):
    calibrator = calibrators.fit("temperature", val)
    calibrator.save(tmp_path / f"calibrator{suffix}")
    again = calibrators.load(tmp_path / f"calibrator{suffix}")
    assert torch.equal(again(test).logits, calibrator(test).logits)
    assert (again.word, again.num_classes, again.n, again.notes) == ("temperature", 10, 800, calibrator.notes)


def test_loading_something_else_gets_one_line(tmp_path, made):
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(InputError, match="must be a calibrator of format 'calibrator/4', got None"):
        calibrators.load(tmp_path / "other.json")
    with pytest.raises(InputError, match="no such file"):
        calibrators.load(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"must end in \.json or \.safetensors"):
        calibrators.fit("temperature", Predictions(*made(50, 3, seed=0))).save(tmp_path / "calibrator.pt")


def test_labels_ids_split_and_columns_stay(made):
    logits, labels = made(30, 3, seed=0)
    before = Predictions(logits, labels, ids=np.arange(30) + 7, split="val", columns={"site": np.arange(30) % 2})
    after = calibrators.fit("temperature", before)(before)
    assert (after.split, after.ids.tolist()) == ("val", before.ids.tolist())
    assert torch.equal(after.labels, before.labels)
    assert after.columns["site"].tolist() == before.columns["site"].tolist()


def test_probabilities_given_as_such_are_calibrated_too(made):
    probs = torch.softmax(made(2000, 4, seed=4)[0] * 2, dim=1)
    labels = made(2000, 4, seed=4)[1]
    before = Predictions.from_probs(probs, labels)
    after = calibrators.fit("temperature", before)(before)
    assert float(after.facts.need("nll").mean()) < float(before.facts.need("nll").mean()) - 0.05
    assert after.from_probabilities


def test_missing_classes_and_few_samples_are_noted(made):
    logits, _ = made(5, 8, seed=0)
    notes = calibrators.fit("temperature", Predictions(logits, torch.tensor([0, 1, 2, 0, 1]))).notes
    assert any("5 of 8 classes have no validation sample (3, 4, 5, 6, 7)" in note for note in notes)
    assert any("5 validation samples are fewer than the 8 classes" in note for note in notes)
    assert any("few for the 1 parameters" in note for note in notes)


def test_one_hot_probabilities_are_noted_and_finite():
    labels = torch.arange(60) % 3
    said = torch.where(torch.arange(60) % 5 == 0, (labels + 1) % 3, labels)
    before = Predictions.from_probs(torch.nn.functional.one_hot(said, 3).double(), labels)
    calibrator = calibrators.fit("temperature", before)
    assert any("60 of 60 validation samples hold probabilities of 0" in note for note in calibrator.notes)
    # 1/5 of the labels differ: the best answer says 0.8.
    assert float(calibrator(before).facts.confidence.mean()) == pytest.approx(0.8, abs=1e-3)


def notes_of(predictions, word="temperature"):
    return fitting.set_notes(calibrators.CALIBRATORS.get(word), predictions)


@pytest.mark.parametrize(("n", "few"), [(29, True), (30, False)])
def test_what_is_noted_of_a_set_begins_exactly_at_its_limit(n, few, made):
    """Temperature has one parameter of three classes, vector scaling six: ten samples for each."""
    logits, labels = made(60, 3, seed=0)
    few_notes = notes_of(Predictions(logits[: 2 * n], labels[: 2 * n]), "vector")
    assert any(f"{2 * n} validation samples are few for the 6 parameters" in note for note in few_notes) == few
    weighted = Predictions(logits[:n], labels[:n], weights=np.ones(n))
    assert not any("are few" in note for note in notes_of(weighted))
    uneven = notes_of(Predictions(logits[:n], labels[:n], weights=np.append(np.full(n - 1, 1e-9), 1)), "temperature")
    assert any(
        f"{n} validation samples, worth 1 of equal weight, are few for the 1 parameters" in note for note in uneven
    )


@pytest.mark.parametrize(("classes", "said"), [(6, "(1, 2, 3, 4, 5)"), (7, "(1, 2, 3, 4, 5, ...)")])
def test_missing_classes_are_named_up_to_five(classes, said):
    predictions = Predictions(torch.eye(classes)[[0, 0, 0]], [0, 0, 0])
    notes = notes_of(predictions)
    assert f"{classes - 1} of {classes} classes have no validation sample {said}" in notes
    assert any("3 validation samples are fewer than the" in note for note in notes)
    assert not any("fewer than" in note for note in notes_of(Predictions(torch.eye(3), [0, 1, 2])))


def test_probabilities_of_zero_are_counted_by_sample():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [1 - 1e-9, 1e-9]], dtype=torch.float64)
    notes = notes_of(Predictions.from_probs(probs, [0, 0, 1, 0]))
    assert any(note.startswith("2 of 4 validation samples hold probabilities of 0") for note in notes)
    inner = Predictions.from_probs(torch.full((2, 2), 0.5), [0, 1])
    assert not any("probabilities of 0" in note for note in notes_of(inner))


@pytest.mark.parametrize(("n", "fits"), [(7, False), (8, True)])
def test_folds_need_two_samples_each(n, fits, made):
    logits, labels = made(n, 3, seed=0)
    predictions = Predictions(logits, labels, split="val")
    if fits:
        assert calibrators.choose(predictions, ("temperature",), folds=4).candidates
    else:
        with pytest.raises(InputError, match="4-fold cross-validation needs at least 8 predictions, got 7"):
            calibrators.choose(predictions, ("temperature",), folds=4)


def test_a_stream_is_thinned_to_the_rows_with_the_smallest_draws():
    def shards(sizes):
        for k, size in enumerate(sizes):
            rows = torch.stack([torch.full((size,), float(k)), torch.arange(size, dtype=torch.float32)], dim=1)
            yield Predictions(rows, torch.zeros(size, dtype=torch.int64))

    every, total = calibrators.sample_stream(shards((5, 0, 7, 3, 9)), rows=100)
    assert (len(every), total) == (24, 24)
    for rows in (1, 6, 11, 12, 23, 24):
        some, total = calibrators.sample_stream(shards((5, 0, 7, 3, 9)), rows=rows)
        assert (len(some), total) == (rows, 24)
        kept = {tuple(row) for row in some.logits.tolist()}
        assert len(kept) == rows
        more = {
            tuple(row) for row in calibrators.sample_stream(shards((5, 0, 7, 3, 9)), rows=rows + 1)[0].logits.tolist()
        }
        assert kept <= more  # the smallest draws come first, whatever is asked for
    with pytest.raises(InputError, match="must hold at least one sample, got none"):
        calibrators.sample_stream(shards((0, 0)))


@pytest.mark.parametrize(
    ("different", "fits"), [(fitting_groups.MOST_VALUES, True), (fitting_groups.MOST_VALUES + 1, False)]
)
def test_numbers_are_groups_while_they_are_few(different, fits, made):
    logits, labels = made(different, 3, seed=0)
    predictions = Predictions(logits, labels, columns={"age": np.arange(different) / 2.0})
    if fits:
        assert fitting_groups.grouping(predictions, "age", None).by == "age"
    else:
        with pytest.raises(InputError, match=f"column 'age' holds {different:,} different numbers; pass bands=5"):
            fitting_groups.grouping(predictions, "age", None)
