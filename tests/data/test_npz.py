import numpy as np
import pytest

from confide.checks import InputError
from confide.data import load_dataset


def test_one_part_with_class_names_and_channels_last(tmp_path):
    path = tmp_path / "textures.npz"
    np.savez(
        path, images=np.zeros((30, 8, 8, 3), np.uint8), labels=np.arange(30) % 2, classes=np.array(["dots", "lines"])
    )
    dataset = load_dataset(path)
    assert (dataset.name, dataset.class_names) == ("textures", ("dots", "lines"))
    assert dataset.train.inputs.shape == (24, 3, 8, 8)
    assert dataset.provenance.where == str(path)


@pytest.mark.parametrize("pattern", ["{name}_{split}", "{split}_{name}"])
def test_splits_in_the_names_and_other_columns(tmp_path, pattern):
    arrays = {}
    for split, n in (("train", 20), ("valid", 6), ("test", 4)):
        arrays[pattern.format(name="x", split=split)] = np.zeros((n, 5))
        arrays[pattern.format(name="y", split=split)] = np.arange(n) % 2
        arrays[pattern.format(name="weight", split=split)] = np.arange(n)
    np.savez(tmp_path / "rows.npz", **arrays)
    dataset = load_dataset(str(tmp_path / "rows.npz"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 20, "val": 6, "test": 4}
    assert dataset.val.columns["weight"].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.provenance.splits == {"train": "as given", "val": "as given", "test": "as given"}


def test_names_can_be_told(tmp_path):
    np.savez(
        tmp_path / "a.npz", pixels=np.zeros((20, 4, 4), np.uint8), clean=np.arange(20) % 2, noisy=np.arange(20) % 4
    )
    dataset = load_dataset(tmp_path / "a.npz", inputs="pixels", labels="noisy")
    assert dataset.num_classes == 4
    with pytest.raises(InputError, match=r"a.npz must have inputs named one of image.*got pixels, clean, noisy"):
        load_dataset(tmp_path / "a.npz")


def test_a_damaged_file_gets_one_line(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK not really")
    with pytest.raises(InputError, match="must be a readable npz file"):
        load_dataset(tmp_path / "a.npz")


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(InputError, match="reading it failed"):
        load_dataset(tmp_path / "a.npz")
