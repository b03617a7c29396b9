import numpy as np
import pytest

from confide.data import load_dataset


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "cifar-100-binary"
    place.mkdir()
    for split, n in (("train", 300), ("test", 100)):
        records = np.zeros((n, 3074), dtype=np.uint8)
        records[:, 1] = np.arange(n) % 100
        records[:, 0] = records[:, 1] // 5
        records[:, 2:] = records[:, 1:2]
        (place / f"{split}.bin").write_bytes(records.tobytes())
    (place / "fine_label_names.txt").write_text("".join(f"fine{i}\n" for i in range(100)))
    (place / "coarse_label_names.txt").write_text("".join(f"coarse{i}\n" for i in range(20)))
    return place


def test_fine_labels_with_the_coarse_ones_as_a_column(folder):
    dataset = load_dataset("cifar100", folder=folder.parent)
    assert dataset.num_classes == 100
    assert (dataset.train.inputs[:, 2, 0, 0] == dataset.train.labels).all()
    assert (dataset.train.columns["coarse"] == dataset.train.labels // 5).all()
    assert len(load_dataset(folder).test) == 100


def test_the_superclasses_can_be_the_labels(folder):
    dataset = load_dataset("cifar100", folder=folder.parent, coarse=True)
    assert dataset.class_names[19] == "coarse19"
    assert (dataset.train.columns["fine"] // 5 == dataset.train.labels).all()
