"""Other domains: stylised images, grey, sketch; JPEG re-encoding; label noise."""

import io

import numpy as np
import pytest
from PIL import Image

from confide import shift
from confide.checks import InputError


def test_grey_at_severity_five_has_no_colour(small):
    made = shift.corrupt(small / np.float32(255), "grey", 5, ids=np.arange(len(small)))
    np.testing.assert_allclose(made[:, 0], made[:, 2], atol=1e-6)
    expected = np.tensordot([0.299, 0.587, 0.114], small / 255, axes=(0, 1))
    np.testing.assert_allclose(made[:, 1], expected, atol=1e-5)
    half = shift.corrupt(small / np.float32(255), "grey", 2, ids=np.arange(len(small)))
    np.testing.assert_allclose(half, 0.6 * small / 255 + 0.4 * expected[:, None], atol=1e-5)


def test_a_sketch_is_white_paper_with_lines_at_the_edges():
    square = np.zeros((1, 3, 32, 32), np.uint8)
    square[:, :, 10:22, 10:22] = 200
    made = shift.corrupt(square, "sketch", 5, ids=[0])[0]
    assert (made[0] == made[2]).all()
    assert (made[:, 0, 0] == 255).all()
    assert (made[:, 16, 16] == 255).all()
    assert made[:, 16, 7:12].min() < 60


def test_stylising_keeps_shapes_and_changes_textures(small):
    images = small / np.float32(255)
    mild, strong = (shift.corrupt(images, "stylised", s, ids=np.arange(len(images))) for s in (1, 5))
    assert np.abs(strong - images).mean() > 1.5 * np.abs(mild - images).mean()
    # At full strength the spectrum is that of the texture; what is left of the image is its phase.
    assert np.abs(strong - images).mean() > 0.15
    colours = strong.mean(axis=(2, 3))
    assert np.abs(colours - images.mean(axis=(2, 3))).mean() > 0.05


def test_the_shapes_of_the_image_survive_stylising(small):
    images = small[:24] / np.float32(255)
    made = shift.corrupt(images, "stylised", 3, ids=np.arange(24))

    def edges(values):
        return np.abs(np.diff(values.mean(axis=1), axis=2)).reshape(24, -1)

    clean, spoilt = edges(images), edges(made)
    own = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(clean, spoilt, strict=True)])
    other = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(clean, np.roll(spoilt, 1, 0), strict=True)])
    assert own > other + 0.1


@pytest.mark.parametrize("quality", [5, 50, 95])
def test_jpeg_reencoding_follows_pillow(small, quality):
    made = shift.jpeg_reencoded(small[:6], quality)
    for image, result in zip(small[:6], made, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(buffer, "JPEG", quality=quality)
        expected = np.asarray(Image.open(buffer)).transpose(2, 0, 1).astype(int)
        assert np.abs(result - expected).mean() < 1.5


@pytest.mark.parametrize("quality", [0, 101, 50.5, True])
def test_a_quality_out_of_range_is_refused(small, quality):
    with pytest.raises(InputError, match="quality must be a whole number from 1 to 100"):
        shift.jpeg_reencoded(small, quality)


def test_symmetric_label_noise_has_its_rate_and_no_favourite():
    labels = np.repeat(np.arange(10), 2000)
    noisy = shift.noisy_labels(labels, 0.3, num_classes=10, ids=np.arange(20000), seed=1)
    wrong = noisy != labels
    assert wrong.mean() == pytest.approx(0.3, abs=0.015)
    shares = np.bincount((noisy - labels)[wrong] % 10, minlength=10)[1:] / wrong.sum()
    assert np.abs(shares - 1 / 9).max() < 0.02


def test_label_noise_by_confusion_follows_the_rows():
    labels = np.repeat([0, 1, 2], 5000)
    confusion = [[90, 8, 2], [0, 50, 0], [5, 5, 100]]
    noisy = shift.noisy_labels(labels, 1.0, num_classes=3, ids=np.arange(15000), confusion=confusion)
    assert (noisy != labels).all()
    assert (noisy[labels == 0] == 1).mean() == pytest.approx(0.8, abs=0.02)
    # Nobody takes class 1 for another: any other.
    assert (noisy[labels == 1] == 0).mean() == pytest.approx(0.5, abs=0.03)
    assert (noisy[labels == 2] == 0).mean() == pytest.approx(0.5, abs=0.03)


def test_a_higher_rate_keeps_what_a_lower_one_changed():
    labels, ids = np.arange(3000) % 5, np.arange(3000)
    few, many = (shift.noisy_labels(labels, rate, num_classes=5, ids=ids) for rate in (0.1, 0.4))
    changed = few != labels
    assert (many[changed] == few[changed]).all()
    order = np.random.default_rng(0).permutation(3000)
    assert (shift.noisy_labels(labels[order], 0.4, num_classes=5, ids=ids[order]) == many[order]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.5}, "rate must lie in"),
        ({"num_classes": 3}, "labels must lie in .0, 3."),
        ({"confusion": np.ones((2, 2))}, "confusion must be 5 x 5"),
        ({"labels": np.array([0.5])}, "labels must be n whole class indices"),
    ],
)
def test_bad_label_noise_gets_one_line(change, message):
    given = {"labels": np.arange(10) % 5, "rate": 0.1, "num_classes": 5, "ids": np.arange(10), **change}
    with pytest.raises(InputError, match=message):
        shift.noisy_labels(given.pop("labels"), given.pop("rate"), **given)
