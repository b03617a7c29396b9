"""Folds, splits and label noise: keyed by id, balanced, and drawn as they always were."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from confide import random, shift
from confide.calibrators.groups import label_folds
from confide.calibrators.linear_maps import feature_folds
from confide.checks import InputError
from confide.data import cut
from confide.predictions import Predictions
from confide.records import Dataset, Split
from confide.training.feed import choose_samples
from confide.training.settings import Settings
from confide.trust.cross_fitting import stratified_folds

IDS = {"int": lambda numbers: numbers, "text": lambda numbers: np.array([f"image-{i}" for i in numbers])}


@pytest.fixture(scope="module")
def recorded():
    """Draws recorded before they had one owner: evidence and every split made by a seed rest on them."""
    with np.load("tests/golden/draws.npz") as file:
        return dict(file)


def samples(n, kind):
    """Labels of five unequal classes, unordered ids, and logits that are often wrong."""
    number = np.arange(n)
    labels = (number * number + number // 3) % 7 % 4
    labels[number % 31 == 5] = 4
    logits = torch.from_numpy(np.sin(np.outer(number + 1.0, np.arange(1.0, 6.0)))).float()
    return labels, IDS[kind](number * 7919 % 100003), logits


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("n", [65, 1000])
def test_every_fold_split_and_noise_is_drawn_as_it_always_was(recorded, n, kind, seed):
    labels, ids, logits = samples(n, kind)
    predictions = Predictions(logits, torch.from_numpy(labels), ids, "val")
    copies = {"copy_of": ids[np.arange(n) // 3]}
    augmented = Predictions(logits, torch.from_numpy(labels), ids, "val", columns=copies)
    noise = {"num_classes": 5, "ids": ids, "seed": seed}
    drawn = {
        "trust_folds": stratified_folds(predictions, 5, seed),
        "trust_folds_of_copies": stratified_folds(augmented, 5, seed),
        "class_folds": random.folds(ids, labels, 5, seed=seed, purpose="trust folds"),
        "calibrator_folds": label_folds(predictions, 5, seed),
        "shift_noise": shift.noisy_labels(labels, 0.3, **noise),
        "shift_noise_confusion": shift.noisy_labels(labels, 0.3, confusion=np.arange(25).reshape(5, 5) ** 2, **noise),
        "training_noise": random.noisy_labels(labels, 0.3, draw="rotation", **noise),
    }
    held = random.split(ids, labels, {"val": 0.15}, seed=seed, purpose="validation")
    drawn |= {"held_out": held["val"], "held_out_rest": held["train"]}
    for name, fractions in (("split", {"test": 0.2, "val": 0.13}), ("split_all", {"test": 0.4, "val": 0.6})):
        parts = random.split(ids, labels, fractions, seed=seed)
        drawn |= {f"{name}_{part}": rows for part, rows in parts.items()}
    for name, values in drawn.items():
        assert (values == recorded[f"{n}_{kind}_{seed}_{name}"]).all(), name


@pytest.mark.parametrize(("name", "dtype"), [("feature_folds", torch.float64), ("feature_folds32", torch.float32)])
@pytest.mark.parametrize("n", [65, 1000])
def test_folds_along_a_feature_are_as_they_always_were(recorded, n, name, dtype):
    labels, _, _ = samples(n, "int")
    # Rounded, so that many samples tie.
    features = torch.from_numpy(np.round(np.cos(np.outer(np.arange(n) + 1.0, np.arange(1.0, 6.0))), 1)).to(dtype)
    assert (feature_folds(torch.from_numpy(labels), features).numpy() == recorded[f"{n}_{name}"]).all()


# ---- Folds ----


def test_every_class_stays_in_every_training_part():
    labels = np.repeat([0, 1, 2], [50, 10, 5])
    fold = random.folds(np.arange(65), labels, 5, seed=0, purpose="trust folds")
    for number in range(5):
        assert set(labels[fold != number]) == {0, 1, 2}
        assert (np.bincount(labels[fold == number], minlength=3) == [10, 2, 1]).all()


def test_one_fold_is_refused():
    with pytest.raises(InputError, match=r"folds must lie in \[2"):
        random.folds(np.arange(10), np.zeros(10), 1, seed=0, purpose="any")


# ---- Splits ----


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.floats(0, 1))
def test_shares_are_within_one_of_the_fraction_and_add_up(counts, fraction):
    counts = np.array(counts)
    shares = random.class_shares(counts, fraction)
    assert (np.abs(shares - counts * fraction) < 1 + 1e-6).all()
    assert abs(shares.sum() - counts.sum() * fraction) <= 0.5 + 1e-6
    assert (shares <= counts).all()


@given(st.lists(st.integers(0, 4), min_size=5, max_size=200), st.integers(0, 9))
def test_every_sample_is_in_one_split_and_classes_keep_their_share(labels, seed):
    labels = np.array(labels)
    rows = random.split(np.arange(len(labels)), labels, {"test": 0.2, "val": 0.1}, seed=seed)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))
    counts = np.bincount(labels, minlength=5)
    for name, fraction in (("test", 0.2), ("val", 0.1)):
        assert (np.abs(np.bincount(labels[rows[name]], minlength=5) - fraction * counts) <= 1).all()
    assert (np.bincount(labels[rows["train"]], minlength=5)[counts > 0] > 0).all()


@pytest.mark.parametrize("purpose", ["split", "validation", "trust folds", "any other"])
def test_the_place_of_a_sample_does_not_depend_on_the_order_of_rows(purpose):
    labels, ids = np.arange(300) % 3, np.array([f"image-{i}" for i in range(300)])
    mixed = np.random.default_rng(0).permutation(300)
    first = random.split(ids, labels, {"test": 0.3}, seed=5, purpose=purpose)["test"]
    second = random.split(ids[mixed], labels[mixed], {"test": 0.3}, seed=5, purpose=purpose)["test"]
    assert set(ids[first]) == set(ids[mixed][second])
    assert np.bincount(labels[first]).tolist() == [30, 30, 30]
    assert set(first) != set(random.split(ids, labels, {"test": 0.3}, seed=6, purpose=purpose)["test"])


def test_the_draw_is_the_same_on_every_machine():
    # First hexadecimal digits by `printf '0\\0a' | b2sum -l 64` and so on; sorted, they give the order.
    # A split recorded by its seed can be made again only while this holds.
    keys = random.order_keys(np.array(["a", "b", "c", "d", "e"]), 0, "split")
    assert np.argsort(keys).tolist() == [2, 3, 0, 1, 4]


def test_a_piece_of_fraction_zero_is_not_made():
    split = Split(np.zeros((20, 2)), np.arange(20) % 2, np.arange(20))
    assert set(cut(split, {"test": 0.5, "val": 0.0}, 0)) == {"test", "train"}
    assert set(cut(split, {"test": 0.5, "val": 0.5}, 0)) == {"test", "val"}


# ---- Label noise ----


def test_two_label_noises_with_one_key_are_two_named_draws_of_one_function():
    """Training and shift replaced the same samples by different classes, in two functions of one name."""
    labels, ids = np.arange(20_000) % 4, np.array([f"s{i}" for i in range(20_000)])
    by_shares = random.noisy_labels(labels, 0.3, num_classes=4, ids=ids, seed=3)
    by_rotation = random.noisy_labels(labels, 0.3, num_classes=4, ids=ids, seed=3, draw="rotation")
    assert ((by_shares != labels) == (by_rotation != labels)).all()
    assert (by_shares != by_rotation).any()
    assert shift.noisy_labels is random.noisy_labels
    dataset = Dataset("rows", "rows", {"train": Split(np.zeros((20_000, 2)), labels, ids)}, tuple("abcd"))
    settings = Settings(label_noise=0.3, seed=3, val_fraction=0)
    assert (choose_samples(dataset, settings).train.labels == by_rotation).all()
    for noisy in (by_shares, by_rotation):
        flipped = noisy != labels
        # Standard error of the share is 0.0032.
        assert abs(flipped.mean() - 0.3) < 0.015
        away = np.bincount((noisy - labels)[flipped] % 4, minlength=4) / flipped.sum()
        assert np.abs(away[1:] - 1 / 3).max() < 0.03


@pytest.mark.parametrize("draw", ["shares", "rotation"])
def test_no_noise_keeps_and_full_noise_changes_every_label(draw):
    labels, ids = np.arange(400) % 4, np.arange(400)
    clean, noisy = (random.noisy_labels(labels, r, num_classes=4, ids=ids, draw=draw) for r in (0.0, 1.0))
    assert (clean == labels).all()
    assert (noisy != labels).all()


def test_a_rotation_takes_no_confusion():
    with pytest.raises(InputError, match="draw must be 'shares' where a confusion is given"):
        random.noisy_labels([0, 1], 0.5, num_classes=2, ids=[0, 1], confusion=np.ones((2, 2)), draw="rotation")


# ---- Generators ----


def test_a_purpose_keeps_its_number_and_a_new_one_needs_none():
    expected = np.random.default_rng(np.random.SeedSequence([3, 7, 64])).random(5)
    assert (random.generator(3, "bootstrap", 64).random(5) == expected).all()
    first, second = (random.generator(3, purpose).random(5) for purpose in ("some draw", "another draw"))
    assert (first != second).all()
