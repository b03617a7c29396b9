import gzip
import struct

import numpy as np
import pytest

from confide.checks import InputError
from confide.data import load_dataset


def write_idx(path, values, packed=False):
    content = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "mnist"
    place.mkdir()
    for k, (prefix, n) in enumerate((("train", 60), ("t10k", 20))):
        labels = (np.arange(n) % 10).astype(np.uint8)
        images = np.broadcast_to(labels[:, None, None] * 20, (n, 28, 28)).astype(np.uint8)
        write_idx(place / f"{prefix}-images-idx3-ubyte{'.gz' if k else ''}", images, packed=bool(k))
        write_idx(place / f"{prefix}-labels{'.' if k else '-'}idx1-ubyte", labels)
    return place


def test_by_word_and_by_path(folder):
    dataset = load_dataset("mnist", folder=folder.parent)
    assert dataset.name == "mnist"
    assert dataset.class_names == tuple("0123456789")
    assert dataset.test.inputs.shape == (20, 1, 28, 28)
    assert (dataset.test.inputs[:, 0, 3, 3] == 20 * dataset.test.labels).all()
    assert len(load_dataset(folder).train) + len(load_dataset(folder).val) == 60


def test_without_files_it_says_where_they_go(tmp_path):
    with pytest.raises(InputError, match=r"put the four files there, or say where they are by folder="):
        load_dataset("mnist", folder=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "long", "other", "packed"])
def test_damaged_files_get_one_line(folder, damage):
    path = folder / "train-images-idx3-ubyte"
    content = path.read_bytes()
    if damage == "packed":
        path.unlink()
        path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(
        {"cut": content[:-1], "long": content + b"x", "other": b"hello", "packed": gzip.compress(content)[:-9]}[damage]
    )
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.*fetch it again") as caught:
        load_dataset(folder)
    assert "\n" not in str(caught.value)


def test_images_and_labels_must_match(folder):
    write_idx(folder / "train-labels-idx1-ubyte", np.zeros(59, dtype=np.uint8))
    with pytest.raises(InputError, match="a label per image in 'train', got 59 and 60"):
        load_dataset(folder)


def test_idx_files_are_read_before_a_csv_beside_them(folder):
    (folder / "train.csv").write_text("text,label\n" + "".join(f"word {i},{'ab'[i % 2]}\n" for i in range(40)))
    assert load_dataset(folder).num_classes == 10
