import numpy as np
import pytest
import torch

from confide.checks import InputError, OptionError
from confide.data import load_dataset


def test_a_pair_of_arrays_is_split_by_seed(images):
    pixels, labels = images
    dataset = load_dataset((pixels, labels), seed=3)
    assert (dataset.kind, dataset.class_names) == ("image", ("0", "1", "2"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 48, "val": 6, "test": 6}
    assert dataset.provenance.split_seed == 3
    assert dataset.provenance.splits["val"].startswith("cut from 'all', stratified")
    for split in dataset.splits.values():
        # The pixel that holds the label shows that inputs, labels and ids were cut alike.
        assert (split.inputs[:, 0, 0, 0] == split.labels).all()
        assert [int(name.split("-")[1]) % 3 for name in split.ids] == split.labels.tolist()


def test_splits_given_are_kept_and_only_missing_ones_made(images):
    pixels, labels = images
    dataset = load_dataset({"train": (pixels[:45], labels[:45]), "test": (pixels[45:], labels[45:])}, val_fraction=0.2)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 36, "val": 9, "test": 15}
    assert dataset.provenance.splits["test"] == "as given"
    assert dataset.test.ids[0] == "test-00000"


@pytest.mark.parametrize("layout", ["n h w", "n h w c", "torch", "list"])
def test_images_of_any_layout_become_n_c_h_w(images, layout):
    pixels, labels = images
    given = {
        "n h w": pixels[:, 0],
        "n h w c": np.repeat(pixels, 3, axis=1).transpose(0, 2, 3, 1),
        "torch": torch.from_numpy(pixels),
        "list": list(pixels),
    }[layout]
    inputs = load_dataset((given, labels)).train.inputs
    assert inputs.dtype == np.uint8
    assert inputs.shape == (48, 3 if layout == "n h w c" else 1, 6, 5)
    assert (inputs[:, 0, 0, 0] == load_dataset((pixels, labels)).train.labels).all()


def test_rows_and_texts_are_told_apart_by_type():
    rows = load_dataset({"inputs": np.arange(40).reshape(20, 2), "labels": [0, 1] * 10, "weight": np.ones(20)})
    assert rows.kind == "rows"
    assert rows.train.inputs.dtype == np.float32
    assert len(rows.train.columns["weight"]) == len(rows.train)
    texts = load_dataset(([f"text {i}" for i in range(20)], ["yes", "no"] * 10))
    assert (texts.kind, texts.class_names) == ("text", ("no", "yes"))
    assert texts.train.inputs[np.array([1, 0])].tolist() == texts.train.inputs[:2].tolist()[::-1]


def test_ids_of_the_caller_are_kept(images):
    pixels, labels = images
    dataset = load_dataset({"inputs": pixels, "labels": labels, "ids": np.arange(60) + 1000})
    assert sorted(np.concatenate([s.ids for s in dataset.splits.values()])) == list(range(1000, 1060))


def test_class_names_can_be_given(images):
    pixels, labels = images
    dataset = load_dataset((pixels, labels), class_names=["a", "b", "c"], name="mine")
    assert (dataset.name, dataset.class_names) == ("mine", ("a", "b", "c"))


def test_all_of_it_can_be_the_test_split(images):
    dataset = load_dataset(images, val_fraction=0, test_fraction=1)
    assert list(dataset.splits) == ["test"]
    assert len(dataset.test) == 60


def test_fingerprint_follows_the_content(images):
    pixels, labels = images
    before = load_dataset(images).provenance.fingerprint
    assert load_dataset((pixels.copy(), labels)).provenance.fingerprint == before
    changed = pixels.copy()
    changed[7, 0, 3, 3] ^= 1
    assert load_dataset((changed, labels)).provenance.fingerprint != before


BAD = {
    "empty": ((np.zeros((0, 1, 4, 4), np.uint8), []), "split 'all' must hold at least one sample, got an empty one"),
    "one class": ((np.zeros((30, 2)), [0] * 30), "needs at least two classes, got only '0'"),
    "wrong length": (
        (np.zeros((30, 2)), [0, 1]),
        r"labels of 'all' must be one per sample, got shape \(2,\) for 30 inp",
    ),
    "class gap": ((np.zeros((30, 2)), [0, 2] * 15), "every class must have samples in 'train', got none for '1'"),
    "negative": ((np.zeros((30, 2)), [0, -1] * 15), r"labels of 'all' must lie in \[0, 1\), got -1 at sample 1 of 30"),
    "fractions": ((np.zeros((4, 2)), [0.5] * 4), "must be whole class indices, got fractions"),
    "missing": ((np.zeros((3, 2)), ["a", None, "b"]), "labels of 'all' must not be missing, got none at sample 1"),
    "float images": (
        (np.zeros((4, 1, 2, 2)), [0, 1, 0, 1]),
        "images of 'all' must be uint8 from 0 to 255, got float64",
    ),
    "channels": ((np.zeros((4, 5, 2, 2), np.uint8), [0, 1, 0, 1]), "must have 1, 3 or 4 channels"),
    "nan": ((np.full((4, 2), np.nan), [0, 1, 0, 1]), "inputs of 'all' must be finite, got nan at sample 0"),
    "no labels": ({"inputs": np.zeros((4, 2))}, "must have 'inputs' and 'labels', got inputs; add 'labels'"),
    "not arrays": (42, r"must be \(inputs, labels\) or a mapping with both, got int"),
    "mixed": (
        {"train": (np.zeros((4, 2)), [0, 1, 0, 1]), "test": (["a", "b"], [0, 1])},
        "must hold inputs of one kind and shape, got rows",
    ),
    "ids": ({"inputs": np.zeros((4, 2)), "labels": [0, 1, 0, 1], "ids": [1, 1, 2, 3]}, "ids of 'all' must be unique"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_get_one_line(case):
    values, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(values)
    assert "\n" not in str(caught.value)


def test_bad_options_get_one_line(images):
    with pytest.raises(InputError, match=r"val_fraction must lie in \[0, 1\], got 1.5"):
        load_dataset(images, val_fraction=1.5)
    with pytest.raises(InputError, match=r"val_fraction \+ test_fraction must be at most 1, got 1.2"):
        load_dataset(images, val_fraction=0.6, test_fraction=0.6)
    with pytest.raises(
        InputError, match="split 'val' must hold at least one sample, got none; give more samples or a lar"
    ):
        load_dataset(images, val_fraction=0.001)
    with pytest.raises(InputError, match="rename must name parts of the data, got 'dev'; known: all"):
        load_dataset(images, rename={"dev": "test"})
    with pytest.raises(InputError, match="labels of 'all' must lie in"):
        load_dataset(images, class_names=["a", "b"])
    with pytest.raises(InputError, match="none for 'd'"):
        load_dataset(images, class_names=["a", "b", "c", "d"])
    with pytest.raises(OptionError, match="dataset 'arrays' has no option 'sise'"):
        load_dataset(images, sise=3)


def test_a_dataset_tells_which_splits_were_cut_and_from_what():
    pairs = (np.eye(40), np.arange(40) % 2)
    assert load_dataset(pairs).cut_from == {"test": "all", "val": "all"}
    assert load_dataset({"train": pairs, "test": pairs}).cut_from == {"val": "train"}
    assert load_dataset({"train": pairs, "val": pairs, "test": pairs}).cut_from == {}
    assert load_dataset(pairs).unit == "samples"
