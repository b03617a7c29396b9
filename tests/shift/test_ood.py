"""Out-of-distribution data: overlapping classes go, ids get a name, images get the model's shape."""

import numpy as np
import pytest

from confide.checks import InputError
from confide.records import Dataset, Split
from confide.shift.ood import OOD_PAIRS, ood_pair, ood_split, to_shape


def dataset(classes, side=64, channels=3, split="test", name="tinyimagenet32"):
    n = 3 * len(classes)
    images = np.random.default_rng(0).integers(0, 256, (n, channels, side, side), dtype=np.uint8)
    labels = np.arange(n) % len(classes)
    return Dataset(name, "image", {split: Split(images, labels, np.arange(n))}, tuple(classes))


def test_overlapping_classes_are_dropped():
    data = dataset(["goldfish", "tabby", "school bus", "teapot"])
    kept = ood_split(data, ood_pair("cifar10", "tinyimagenet32"), (3, 32, 32))
    assert set(kept.labels) == {0, 3}
    assert kept.inputs.shape == (6, 3, 32, 32)
    assert kept.ids[0] == "tinyimagenet32/0"
    assert ood_pair("cifar10", "tinyimagenet32").distance == "near"
    assert ood_pair("cifar10", "dtd10_64").distance == "far"
    assert ood_pair("cifar10", "my-folder").overlapping == ()


def test_a_dataset_of_overlapping_classes_alone_is_refused():
    with pytest.raises(InputError, match="all classes of 'tinyimagenet32' overlap with 'cifar10'"):
        ood_split(dataset(["tabby", "ox"]), ood_pair("cifar10", "tinyimagenet32"))


def test_without_a_test_split_another_is_taken_and_most_cuts():
    kept = ood_split(dataset(["a", "b"], split="train"), ood_pair("x", "y"), most=4)
    assert len(kept) == 4
    with pytest.raises(InputError, match="must have samples to show as out of distribution"):
        ood_split(Dataset("none", "image", {}, ("a",)), ood_pair("x", "y"))


def test_images_are_brought_to_the_shape_of_the_model():
    grey = np.full((2, 1, 28, 28), 77, np.uint8)
    made = to_shape(grey, (3, 32, 32))
    assert made.shape == (2, 3, 32, 32)
    assert (made == 77).all()
    colours = np.stack([np.full((8, 8), v, np.uint8) for v in (30, 60, 90)])[None]
    assert (to_shape(colours, (1, 8, 8)) == 60).all()
    with pytest.raises(InputError, match="OOD inputs must be uint8 images"):
        to_shape(grey.astype(float), (3, 32, 32))


def test_pairs_name_near_and_far_sets_of_cifar10():
    distances = {pair.ood: pair.distance for pair in OOD_PAIRS if pair.known == "cifar10"}
    assert distances == {"tinyimagenet32": "near", "cifar100": "near", "svhn": "far", "dtd": "far", "mnist": "far"}
