import pickle

import numpy as np
import pytest
import torch

from confide.checks import InputError
from confide.data import load_dataset


@pytest.fixture
def images_later(image_folder):
    return load_dataset(image_folder, memory_gb=0).train


def test_it_behaves_like_an_array(images_later):
    later = images_later.inputs
    array = np.asarray(later)
    assert (later.shape, later.ndim, later.dtype, len(later)) == (array.shape, 4, array.dtype, 16)
    assert later.nbytes == array.nbytes
    chosen = [
        *(3, -1, slice(2, 9, 3), [5, 1], np.array([4, 4, 0]), np.arange(16) % 3 == 0),
        *(torch.tensor([2, 7]), np.int64(6), np.zeros(0, dtype=np.int64), []),
    ]
    for rows in chosen:
        assert (later[rows] == array[rows]).all()
        assert later[rows].shape == array[rows].shape
    assert sum(1 for _ in later) == 16
    with pytest.raises(TypeError, match=r"write images\[rows\]"):
        later[:, 0]


def test_take_chooses_without_decoding(images_later, monkeypatch):
    array = np.asarray(images_later.inputs)
    monkeypatch.setattr("confide.data.images.decode", lambda *_: pytest.fail("decoded"))
    part = images_later.take(np.array([7, 2, 2]))
    assert part.ids.tolist() == images_later.ids[[7, 2, 2]].tolist()
    monkeypatch.undo()
    assert (part.inputs[:] == array[[7, 2, 2]]).all()


def test_it_travels_to_other_processes(images_later):
    copy = pickle.loads(pickle.dumps(images_later.inputs))
    assert (copy[:] == images_later.inputs[:]).all()


def test_an_image_that_vanishes_later_is_named(images_later, image_folder):
    name = images_later.ids[4]
    (image_folder / name).unlink()
    with pytest.raises(InputError, match=f"image '{name}' could be read when the dataset was loaded, but not now"):
        images_later.inputs[np.arange(8)]


def test_the_fingerprint_follows_the_files(images_later, image_folder):
    before = images_later.inputs.fingerprint
    assert images_later.inputs.subset(np.arange(16)).fingerprint == before
    assert images_later.inputs.subset(np.arange(15)).fingerprint != before
    file = image_folder / images_later.ids[0]
    file.write_bytes(file.read_bytes() + b"\0")
    assert images_later.inputs.fingerprint != before


def test_an_array_without_a_copy_is_refused_and_one_of_another_type_is_made(images_later):
    with pytest.raises(ValueError, match="without a copy"):
        images_later.inputs.__array__(copy=False)
    for copy in (None, True):
        assert images_later.inputs.__array__(np.float32, copy=copy).dtype == np.float32
