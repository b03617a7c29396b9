import numpy as np
import pytest
import torch
from PIL import Image

from confide.checks import InputError
from confide.features.images import _centre, as_image_array, as_pil, from_processor


@pytest.fixture(params=[(300, 400), (431, 200), (224, 224), (30, 50)], ids=str)
def picture(request):
    height, width = request.param
    rows = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(rows)


CONFIGS = {
    "CLIPImageProcessor": {},
    "ViTImageProcessor": {},
    "BitImageProcessor": {
        "size": {"shortest_edge": 256},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_equals_the_hubs_own_processor(kind, picture, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the hub's processors are in transformers")
    processor = (getattr(transformers, f"{kind}Pil", None) or getattr(transformers, kind))(**CONFIGS[kind])
    processor.save_pretrained(tmp_path)
    import json

    ours = from_processor(json.loads((tmp_path / "preprocessor_config.json").read_text()))(picture)
    theirs = processor(images=picture, return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)


def test_old_files_with_one_number_crop_after_the_short_side():
    ours = from_processor({"size": 8, "crop_size": 6, "do_center_crop": True, "resample": 3})
    assert (ours.short_side, ours.exact, ours.crop) == (8, None, (6, 6))
    square = from_processor({"size": 8})
    assert (square.short_side, square.exact, square.crop) == (None, (8, 8), None)
    assert tuple(square(np.zeros((1, 5, 9), dtype=np.uint8)).shape) == (3, 8, 8)


def test_values_are_scaled_and_normalised():
    ours = from_processor({"size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]})
    # (255 / 255 - 0.5) / 0.25 = 2
    assert ours(np.full((3, 2, 2), 255, dtype=np.uint8)).unique().tolist() == [2.0]


SIZES = [(32, 32), (64, 48), (300, 400), (30, 50), (431, 200), (224, 224)]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_batch_of_arrays_equals_one_call_per_image(kind, size):
    resample = {"CLIPImageProcessor": 3, "ViTImageProcessor": 2, "BitImageProcessor": 1}[kind]
    ours = from_processor({"size": {"shortest_edge": 224}, "crop_size": 224, **CONFIGS[kind], "resample": resample})
    draw = np.random.default_rng(0)
    for channels in (3, 1):
        images = draw.integers(0, 256, (2, channels, *size), dtype=np.uint8)
        images[1] = 255 * (images[1] > 128)  # sharp edges overshoot and are cut off
        together = ours.batch(torch.from_numpy(images))
        np.testing.assert_allclose(together.numpy(), np.stack([ours(image).numpy() for image in images]), atol=1e-6)


def test_images_smaller_than_the_crop_are_padded_alike():
    ours = from_processor({"do_resize": False, "crop_size": {"height": 9, "width": 6}, "image_mean": [0.1, 0.2, 0.3]})
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 7), dtype=np.uint8)
    together = ours.batch(torch.from_numpy(images))
    assert tuple(together.shape) == (2, 3, 9, 6)
    np.testing.assert_allclose(together.numpy(), np.stack([ours(image).numpy() for image in images]), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ((4, 5), (1, 4, 5)),
        ((1, 4, 5), (1, 4, 5)),
        ((3, 4, 5), (3, 4, 5)),
        ((3, 4, 3), (3, 4, 3)),
        ((1, 4, 1), (1, 4, 1)),
        ((2, 5, 1), (1, 2, 5)),
        ((2, 5, 3), (3, 2, 5)),
        ((4, 5, 1), (1, 4, 5)),
        ((4, 5, 3), (3, 4, 5)),
        ((2, 5, 2), (2, 5, 2)),
        ((2, 5, 4), (2, 5, 4)),
    ],
)
def test_channels_come_first_wherever_they_stood(shape, kept):
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    array = as_image_array(pixels)
    assert (array.shape, array.dtype) == (kept, np.uint8)
    assert sorted(array.reshape(-1)) == sorted(pixels.reshape(-1))
    np.testing.assert_array_equal(as_image_array(pixels / 255), array)


def test_numbers_that_are_no_pixels_are_refused_and_the_ends_of_their_range_are_not():
    assert as_image_array(np.array([[0.0, 1.0, 0.5]])).tolist() == [[[0, 255, 128]]]
    assert as_image_array(np.zeros((3, 0, 0))).shape == (3, 0, 0)
    for values in (np.array([[1.01]]), np.array([[-0.01]]), np.array([[1]])):
        with pytest.raises(InputError, match=r"uint8, or float in \[0, 1\]"):
            as_image_array(values)
    with pytest.raises(InputError, match="two or three dimensions"):
        as_image_array(np.zeros((1, 3, 2, 2), np.uint8))


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 4, 5)])
def test_a_picture_of_an_array_has_its_pixels(shape):
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    picture = as_pil(pixels)
    assert (picture.mode, picture.size) == ("L" if shape[0] == 1 else "RGB", (5, 4))
    np.testing.assert_array_equal(as_image_array(picture), pixels)


@pytest.mark.parametrize("size", [(4, 4), (5, 4), (4, 7), (9, 6), (3, 4), (2, 1), (3, 9)])
def test_the_middle_of_a_picture_is_cut_out_or_padded_with_black(size):
    pixels = torch.arange(1.0, 1 + size[0] * size[1]).reshape(1, *size)
    cut = _centre(pixels, (4, 4))[0].numpy()
    whole = np.pad(pixels[0].numpy(), 8)
    top, left = (8 - -(-(4 - s) // 2) if s < 4 else 8 + (s - 4) // 2 for s in size)
    np.testing.assert_array_equal(cut, whole[top : top + 4, left : left + 4])
