"""What holds for every shift: shape and type, the same image the same corruption, both forms, severities, borders."""

import itertools

import numpy as np
import pytest
import torch

from confide import shift
from confide.checks import InputError
from confide.shift.base import ShiftSpec

WORDS = shift.names()
CORRUPTIONS = shift.names("corruptions19")
# With the published parameters these do not move away from the clean image step by step: elastic and glass trade one
# parameter against another, saturate first fades and then colours, frost and spatter change their kind of cover.
NOT_BY_DISTANCE = {"elastic_transform", "glass_blur", "saturate", "frost", "spatter"}


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:32, 0:32] / 32
    tones = random.uniform(0.2, 0.8, (24, 3, 1, 1)) + 0.3 * np.sin(
        2 * np.pi * (random.uniform(0.5, 3, (24, 3, 1, 1)) * x + random.uniform(0.5, 3, (24, 3, 1, 1)) * y)
    )
    return (tones.clip(0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("word", WORDS)
def test_an_image_gets_the_same_corruption_in_any_batch_and_order(word, images):
    ids = np.array([f"image-{i}" for i in range(len(images))])
    whole = shift.corrupt(images, word, 3, ids=ids, seed=5)
    order = np.random.default_rng(1).permutation(len(images))
    shuffled = shift.corrupt(images[order], word, 3, ids=ids[order], seed=5)
    assert (shuffled == whole[order]).all()
    alone = shift.corrupt(images[7:8], word, 3, ids=ids[7:8], seed=5)
    assert (alone == whole[7:8]).all()


@pytest.mark.parametrize("word", WORDS)
def test_type_shape_and_range_are_kept(word, images):
    ids = np.arange(len(images))
    coarse = shift.corrupt(images, word, 2, ids=ids)
    assert coarse.dtype == np.uint8
    assert coarse.shape == images.shape
    assert (coarse != images).any()
    fine = shift.corrupt(torch.from_numpy(images).float() / 255, word, 2, ids=ids)
    assert fine.dtype == torch.float32
    assert float(fine.min()) >= 0
    assert float(fine.max()) <= 1
    # The same draws on the same values: half a level apart, by rounding.
    assert np.abs(fine.numpy() * 255 - coarse).max() <= 0.51


@pytest.mark.parametrize("word", CORRUPTIONS)
def test_a_higher_severity_is_farther_from_the_clean_image(word, images):
    ids = np.arange(len(images))
    distances = [
        float(np.sqrt(np.mean((shift.corrupt(images, word, s, ids=ids).astype(float) - images) ** 2)))
        for s in shift.SEVERITIES
    ]
    assert min(distances) > 0
    if word not in NOT_BY_DISTANCE:
        assert all(a < b * 1.02 for a, b in itertools.pairwise(distances)), distances
        assert distances[-1] > 1.2 * distances[0]


@pytest.mark.parametrize("word", [m.word for m in shift.SHIFTS if not m.spec.colour])
def test_grey_images_are_spoilt_too(word, images):
    grey = images[:, :1]
    made = shift.corrupt(grey, word, 3, ids=np.arange(len(grey)))
    assert made.shape == grey.shape
    assert (made != grey).any()


@pytest.mark.parametrize("word", ["saturate", "spatter", "grey"])
def test_colour_words_refuse_grey_images(word, images):
    with pytest.raises(InputError, match="changes colours, but the images have one channel"):
        shift.corrupt(images[:, :1], word, 3, ids=np.arange(len(images)))


@pytest.mark.parametrize("word", WORDS)
def test_an_image_that_is_not_square_works(word, images):
    made = shift.corrupt(images[:3, :, :30], word, 1, ids=np.arange(3))
    assert made.shape == (3, 3, 30, 32)


@pytest.mark.parametrize("word", [m.word for m in shift.SHIFTS if m.spec.smallest is not ShiftSpec.smallest])
def test_an_image_smaller_than_the_kernel_is_refused_in_one_line(word):
    with pytest.raises(InputError, match=f"'{word}' needs images of at least"):
        shift.corrupt(np.zeros((2, 3, 2, 2), np.uint8), word, 5, ids=np.arange(2), form="224")
