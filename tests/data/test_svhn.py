import numpy as np
import pytest
from scipy.io import savemat

from confide.checks import InputError
from confide.data import load_dataset


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "svhn"
    place.mkdir()
    for name, n in (("train", 60), ("test", 20)):
        digits = np.arange(n) % 10
        images = np.broadcast_to((digits * 20).astype(np.uint8), (32, 32, 3, n))
        # The digit 0 is labelled 10.
        savemat(
            place / f"{name}_32x32.mat", {"X": images, "y": np.where(digits == 0, 10, digits)[:, None].astype(np.uint8)}
        )
    return place


def test_by_word_and_by_path(folder):
    dataset = load_dataset("svhn", folder=folder.parent)
    assert dataset.test.inputs.shape == (20, 3, 32, 32)
    assert (dataset.test.inputs[:, 1, 5, 5] == 20 * dataset.test.labels).all()
    assert dataset.class_names == tuple("0123456789")
    assert len(load_dataset(folder).test) == 20


def test_the_test_file_alone_will_do(folder):
    (folder / "train_32x32.mat").unlink()
    dataset = load_dataset(folder, val_fraction=0, test_fraction=0)
    assert len(dataset.test) == 20


def test_bad_files_get_one_line(folder, tmp_path):
    with pytest.raises(InputError, match="put the files there"):
        load_dataset("svhn", folder=tmp_path / "nowhere")
    (folder / "test_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut short")
    with pytest.raises(InputError, match=r"test_32x32\.mat must be a readable \.mat file") as caught:
        load_dataset(folder)
    assert "\n" not in str(caught.value)
    savemat(folder / "test_32x32.mat", {"X": np.zeros((32, 32, 4)), "y": np.zeros((4, 1))})
    with pytest.raises(InputError, match="must hold X, uint8 h x w"):
        load_dataset(folder)
