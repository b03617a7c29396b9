"""Validation split, label noise, order and group sampling: drawn by seed and id."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import difficulty
from confide.checks import InputError
from confide.records import Dataset, Scores, Split
from confide.training.feed import EpochOrder, choose_samples
from confide.training.objective import Objective, groups_of
from confide.training.settings import Settings


def split_of(n: int, classes: int = 4) -> Split:
    return Split(np.zeros((n, 2)), np.arange(n) % classes, np.array([f"s{i}" for i in range(n)]))


def test_held_out_share_is_stratified_and_keyed_by_id() -> None:
    train = split_of(400)
    dataset = Dataset("rows", "rows", {"train": train}, tuple("abcd"))
    samples = choose_samples(dataset, Settings(val_fraction=0.25, seed=3))
    assert samples.val is not None
    assert np.bincount(samples.val.labels).tolist() == [25] * 4
    assert not set(samples.train.ids) & set(samples.val.ids)
    backwards = Dataset("rows", "rows", {"train": train.take(np.arange(400)[::-1])}, tuple("abcd"))
    turned = choose_samples(backwards, Settings(val_fraction=0.25, seed=3)).val
    assert turned is not None
    assert set(turned.ids) == set(samples.val.ids)


def test_noise_spares_validation_and_keeps_the_clean_labels() -> None:
    dataset = Dataset("rows", "rows", {"train": split_of(100), "val": split_of(40)}, tuple("abcd"))
    samples = choose_samples(dataset, Settings(label_noise=0.5))
    assert samples.val is not None
    assert (samples.val.labels == dataset.val.labels).all()
    assert (samples.clean_labels == dataset.train.labels).all()
    assert (samples.train.labels != samples.clean_labels).any()


def test_every_sample_once_an_epoch_and_small_last_batches_left_out() -> None:
    order = EpochOrder(split_of(103), Settings(batch_size=20), None)
    assert order.steps == 6
    assert sorted(np.concatenate(order.batches(0)).tolist()) == list(range(103))
    assert EpochOrder(split_of(101), Settings(batch_size=20), None).steps == 5
    assert EpochOrder(split_of(103), Settings(batch_size=20), None, world=2).steps == 5
    assert EpochOrder(split_of(3), Settings(batch_size=20), None).steps == 1


def test_groups_are_drawn_equally_often() -> None:
    groups = np.r_[np.zeros(900, dtype=np.int64), np.ones(100, dtype=np.int64)]
    order = EpochOrder(split_of(1000), Settings(batch_size=100), groups)
    drawn = np.concatenate([np.concatenate(order.batches(epoch)) for epoch in range(5)])
    # Standard error of the share at 5,000 draws is 0.007.
    assert abs(groups[drawn].mean() - 0.5) < 0.035


def test_groups_by_difficulty_label_and_column() -> None:
    train = split_of(100)
    scores = Scores(train.ids, np.arange(100.0), "rmd")
    halves = groups_of(Settings(loss="group_dro", loss_options={"num_groups": 2}), train, scores)
    assert halves.tolist() == [0] * 50 + [1] * 50
    assert (groups_of(Settings(group_by="label"), train, None) == train.labels).all()
    coloured = Split(train.inputs, train.labels, train.ids, {"colour": np.array(["red", "blue"] * 50)})
    assert groups_of(Settings(group_by="colour"), coloured, None).tolist() == [1, 0] * 50
    with pytest.raises(InputError, match="group_by must be one of difficulty, label, colour"):
        groups_of(Settings(group_by="shape"), coloured, None)
    with pytest.raises(InputError, match="need scores"):
        groups_of(Settings(), train, None)


@pytest.mark.parametrize(
    ("group_by", "number"), [("difficulty", 3), ("label", 4), ("colour", 5)], ids=["written groups", "labels", "column"]
)
def test_a_group_loss_keeps_as_many_groups_as_there_are(group_by: str, number: int) -> None:
    plain = split_of(100, classes=4)
    train = Split(plain.inputs, plain.labels, plain.ids, {"colour": np.arange(100) % 5})
    written = Scores(train.ids, np.arange(100.0) % 3, difficulty.GROUPED)

    def objective(**options: int) -> Objective:
        settings = Settings(loss="group_dro", loss_options=options, group_by=group_by)
        return Objective(settings, train, 4, written, torch.device("cpu"))

    made = objective()
    assert len(made.loss.q) == number
    assert int(made.tables["groups"].max()) == number - 1
    assert len(objective(num_groups=7).loss.q) == 7
    with pytest.raises(InputError, match=f"{number} groups, but num_groups of loss 'group_dro' is 2; leave"):
        objective(num_groups=2)


def test_samples_are_drawn_by_a_column_of_many_groups_with_a_loss_that_has_none() -> None:
    plain = split_of(100)
    train = Split(plain.inputs, plain.labels, plain.ids, {"colour": np.arange(100) % 5})
    groups = groups_of(Settings(loss="cross_entropy", group_by="colour", sampling="groups"), train, None)
    assert groups.max() == 4


def test_labels_outside_the_classes_are_refused() -> None:
    dataset = Dataset("rows", "rows", {"train": split_of(20, classes=6)}, tuple("abcd"))
    with pytest.raises(InputError, match=r"labels must lie in \[0, 4\), got 4 at training sample 4"):
        choose_samples(dataset, Settings())
