"""Each corruption against a plain reference of its published definition: numpy, scipy, Pillow, loops over pixels."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from confide import shift
from confide.random import Draws, sample_keys
from confide.shift import digital
from confide.shift.noise_and_blur import disk_kernel, wave_fronts, zoom_factors
from confide.shift.weather import plasma

FLAT = np.full((40, 3, 32, 32), 0.5, np.float32)


def ids(images):
    return np.arange(len(images))


def draws_of(word, severity, n):
    return Draws(0, sample_keys(np.arange(n)), f"shift/{word}/{severity}", torch.device("cpu"))


def rounded(values):
    return np.round(np.clip(values, 0, 1) * 255)


@pytest.mark.parametrize(
    ("severity", "form", "sigma"), [(1, "32", 0.04), (5, "32", 0.10), (1, "224", 0.08), (3, "224", 0.18)]
)
def test_gaussian_noise_has_the_published_deviation(severity, form, sigma):
    noise = shift.corrupt(FLAT, "gaussian_noise", severity, ids=ids(FLAT), form=form) - FLAT
    assert abs(noise.mean()) < 4 * sigma / math.sqrt(noise.size)
    # At 0.18 the clipping at 0 and 1 (2.8 deviations) takes a little away.
    assert noise.std() == pytest.approx(sigma, rel=0.02)


def test_speckle_noise_grows_with_the_value():
    for level in (0.1, 0.4):
        flat = np.full_like(FLAT, level)
        noise = shift.corrupt(flat, "speckle_noise", 3, ids=ids(flat), form="32") - flat
        assert noise.std() == pytest.approx(0.12 * level, rel=0.02)


@pytest.mark.parametrize(("form", "scale"), [("32", 50.0), ("224", 3.0)])
@pytest.mark.parametrize("level", [0.0, 0.25, 131 / 255, 0.7])
def test_shot_noise_is_poisson(form, scale, level):
    flat = np.full_like(FLAT, level)
    counts = np.round(shift.corrupt(flat, "shot_noise", 5, ids=ids(flat), form=form) * scale).ravel()
    top = int(scale)  # above it the image is white
    expected = stats.poisson.pmf(np.arange(top), level * scale)
    seen = np.bincount(counts.astype(int), minlength=top + 1)[:top] / counts.size
    assert np.abs(seen - expected).max() < 5 * math.sqrt(0.25 / counts.size)


def test_shot_noise_of_the_mildest_severity_has_the_mean_and_variance_of_poisson():
    noise = shift.corrupt(FLAT, "shot_noise", 1, ids=ids(FLAT), form="32")
    assert noise.mean() == pytest.approx(0.5, abs=1e-3)
    assert noise.var() == pytest.approx(0.5 / 500, rel=0.03)


def test_impulse_noise_sets_single_values_to_black_or_white():
    noisy = shift.corrupt(FLAT, "impulse_noise", 5, ids=ids(FLAT), form="224")
    assert (noisy == 0).mean() == pytest.approx(0.135, abs=0.004)
    assert (noisy == 1).mean() == pytest.approx(0.135, abs=0.004)
    assert ((noisy != 0.5).sum(axis=1) == 1).any()  # one channel of a pixel alone


@pytest.mark.parametrize(("severity", "form", "sigma"), [(1, "32", 0.4), (5, "32", 1.0), (3, "224", 3.0)])
def test_gaussian_blur_is_that_of_scipy(small, severity, form, sigma):
    made = shift.corrupt(small[:4] / np.float32(255), "gaussian_blur", severity, ids=ids(small[:4]), form=form)
    expected = ndimage.gaussian_filter(small[:4] / 255, (0, 0, sigma, sigma), mode="nearest", truncate=4.0)
    np.testing.assert_allclose(made, expected, atol=2e-6)


@pytest.mark.parametrize("form", ["32", "224"])
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_defocus_blur_is_a_convolution_with_a_smoothed_disk(small, form, severity):
    radius, sigma = {
        "32": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
        "224": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    }[form][severity - 1]
    half = 8 if radius <= 8 else int(radius)
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    disk = np.pad((x**2 + y**2 <= radius**2) * 1.0, 4)
    weights = np.exp(-(np.arange(-1, 2) ** 2 if radius <= 8 else np.arange(-2, 3) ** 2) / (2 * sigma**2))
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(weights, weights) / weights.sum() ** 2, mode="constant")
    made = shift.corrupt(small[:2] / np.float32(255), "defocus_blur", severity, ids=ids(small[:2]), form=form)
    expected = ndimage.convolve(small[:2] / 255, kernel[None, None], mode="mirror")
    np.testing.assert_allclose(made, expected, atol=3e-6)
    assert disk_kernel(radius, sigma).sum() == pytest.approx(1)


def swap_by_swap(height, width, reach, offsets):
    """Pixel numbers after one pass, from the bottom right up."""
    places = np.arange(height * width).reshape(height, width)
    for y in range(height - reach, reach, -1):
        for x in range(width - reach, reach, -1):
            v, u = y + offsets[0, y * width + x], x + offsets[1, y * width + x]
            places[y, x], places[v, u] = places[v, u], places[y, x]
    return places.ravel()


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_glass_blur_swaps_pixel_by_pixel(small, severity):
    sigma, reach, passes = [(0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)][severity - 1]
    images = small[:3] / np.float32(255)
    made = shift.corrupt(images, "glass_blur", severity, ids=ids(images), form="224")
    draws = draws_of("glass_blur", severity, 3)
    soft = ndimage.gaussian_filter(images, (0, 0, sigma, sigma), mode="nearest").reshape(3, 3, -1)
    for number in range(passes):
        offsets = (draws.uniform(f"offsets{number}", 2, 1024).numpy() * (2 * reach)).astype(int) - reach
        assert offsets.min() == -reach
        assert offsets.max() == reach - 1
        for image in range(3):
            soft[image] = soft[image][:, swap_by_swap(32, 32, reach, offsets[image])]
    expected = ndimage.gaussian_filter(soft.reshape(images.shape), (0, 0, sigma, sigma), mode="nearest")
    np.testing.assert_allclose(made, expected, atol=2e-6)


def test_wave_fronts_hold_every_inner_pixel_once():
    pixels = np.concatenate([wave.numpy() for wave in wave_fronts(12, 9, 2)])
    rows, columns = np.divmod(np.sort(pixels), 9)
    assert len(pixels) == 8 * 5
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (3, 10, 3, 7)


def test_motion_blur_is_a_line_of_the_drawn_angle():
    dot = np.zeros((64, 1, 41, 41), np.float32)
    dot[:, :, 20, 20] = 1
    made = shift.corrupt(dot, "motion_blur", 5, ids=ids(dot), form="32")
    radius, sigma = 9, 2.5
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    angles = np.deg2rad(draws_of("motion_blur", 5, 64).numbers("angle", 1)[:, 0] * 90 - 45)
    assert np.abs(np.rad2deg(angles)).max() <= 45
    for image, angle in zip(made, angles, strict=True):
        expected = np.zeros((41, 41))
        for i, weight in enumerate(weights):
            dy, dx = -math.ceil(i * math.sin(angle) - 0.5), -math.ceil(i * math.cos(angle) - 0.5)
            expected[20 + dy, 20 + dx] += weight if weight >= 1e-7 else 0
        np.testing.assert_allclose(image[0], expected, atol=1e-6)


@pytest.mark.parametrize("form", ["32", "224"])
@pytest.mark.parametrize("severity", [1, 5])
def test_zoom_blur_is_the_mean_of_linear_zooms(small, form, severity):
    top, step = {"32": {1: (1.06, 0.01), 5: (1.26, 0.01)}, "224": {1: (1.11, 0.01), 5: (1.31, 0.03)}}[form][severity]
    factors = [1 + k * step for k in range(100) if 1 + k * step < top - 1e-9]
    assert zoom_factors(top, step) == pytest.approx(factors)
    image = small[0] / 255
    total = image.copy()
    for factor in zoom_factors(top, step):
        crop = math.ceil(32 / factor)
        begin = (32 - crop) // 2
        part = image[:, begin : begin + crop, begin : begin + crop]
        zoomed = ndimage.zoom(part, (1, factor, factor), order=1)
        trim = (zoomed.shape[1] - 32) // 2
        total += zoomed[:, trim : trim + 32, trim : trim + 32]
    made = shift.corrupt(small[:1] / np.float32(255), "zoom_blur", severity, ids=[0], form=form)
    np.testing.assert_allclose(made[0], total / (len(factors) + 1), atol=2e-6)


def test_snow_whitens_and_adds_the_layer_and_its_half_turn(small):
    images = small[:4] / np.float32(255)
    made = shift.corrupt(images, "snow", 1, ids=ids(images), form="32")
    grey = np.tensordot([0.299, 0.587, 0.114], images, axes=(0, 1))[:, None]
    whitened = 0.95 * images + 0.05 * np.maximum(images, 1.5 * grey + 0.5)
    layer = made - whitened
    inside = made < 1
    assert layer[inside].min() > -1e-6
    turned = layer[:, :, ::-1, ::-1]
    both = inside & inside[:, :, ::-1, ::-1]
    np.testing.assert_allclose(layer[both], turned[both], atol=1e-6)


def test_fog_follows_its_formula_with_a_fractal_from_zero_to_one(small):
    images = small[:4] / np.float32(255)
    made = shift.corrupt(images, "fog", 3, ids=ids(images), form="32")
    layer = plasma(draws_of("fog", 3, 4), 32, 2.5).numpy()
    assert layer.min() == 0
    assert layer.max() == pytest.approx(1)
    for image, field, fogged in zip(images, layer, made, strict=True):
        top = image.max()
        np.testing.assert_allclose(fogged, (image + 0.75 * field) * top / (top + 0.75), atol=1e-6)


def test_a_faster_decay_makes_a_smoother_fractal():
    rough, smooth = (plasma(draws_of("fog", 1, 20), 64, decay) for decay in (1.4, 3.0))

    def roughness(field):
        return float((field[:, 1:] - field[:, :-1]).abs().mean())

    assert roughness(rough) > 2 * roughness(smooth)


def test_frost_adds_one_tinted_layer_to_every_image():
    black, grey = np.zeros((8, 3, 32, 32), np.float32), np.full((8, 3, 32, 32), 0.2, np.float32)
    layer = shift.corrupt(black, "frost", 3, ids=ids(black), form="32") / 0.4
    made = shift.corrupt(grey, "frost", 3, ids=ids(grey), form="32")
    np.testing.assert_allclose(made, 0.9 * grey + 0.4 * layer, atol=1e-6)
    assert 0.3 < layer.mean() < 0.8
    assert layer.std(axis=(2, 3)).min() > 0.05
    assert (layer[:, 2] >= layer[:, 0]).all()


def hsv(image):
    """Hue, saturation, value in [0, 1] by Pillow-free arithmetic, pixel by pixel."""
    import colorsys

    return np.apply_along_axis(lambda p: colorsys.rgb_to_hsv(*p), 0, image)


def rgb(image):
    import colorsys

    return np.apply_along_axis(lambda p: colorsys.hsv_to_rgb(*p), 0, image)


@pytest.mark.parametrize(("severity", "form", "c"), [(1, "32", 0.05), (5, "32", 0.3), (5, "224", 0.5)])
def test_brightness_raises_the_value(small, severity, form, c):
    image = small[0] / 255
    image[:, 0, 0] = 0
    image[:, 0, 1] = 1
    parts = hsv(image)
    parts[2] = np.clip(parts[2] + c, 0, 1)
    made = shift.corrupt(image[None].astype(np.float32), "brightness", severity, ids=[0], form=form)[0]
    np.testing.assert_allclose(made, rgb(parts), atol=2e-6)


@pytest.mark.parametrize(("severity", "form", "a", "b"), [(1, "32", 0.3, 0), (5, "32", 2.5, 0.2), (5, "224", 20, 0.2)])
def test_saturate_changes_the_saturation(small, severity, form, a, b):
    image = small[0] / 255
    image[:, 0, 0] = 0
    image[:, 0, 1] = 0.5  # grey: its hue is that of red
    parts = hsv(image)
    parts[1] = np.clip(parts[1] * a + b, 0, 1)
    made = shift.corrupt(image[None].astype(np.float32), "saturate", severity, ids=[0], form=form)[0]
    np.testing.assert_allclose(made, rgb(parts), atol=5e-6)


def test_contrast_pulls_to_the_mean_of_the_channel(small):
    images = small[:3] / 255
    means = images.mean(axis=(2, 3), keepdims=True)
    made = shift.corrupt(small[:3], "contrast", 5, ids=ids(small[:3]), form="32")
    assert np.abs(made - rounded((images - means) * 0.15 + means)).max() <= 1


def test_elastic_at_the_first_severity_is_the_affine_map_alone(small):
    image = small[0, 0] / 255
    made = shift.corrupt(small[:1, :1] / np.float32(255), "elastic_transform", 1, ids=[0], form="32")[0, 0]
    drawn = draws_of("elastic_transform", 1, 1).numbers("affine", 6).reshape(3, 2) * 2 - 1
    old = np.array([[26.0, 26], [26, 6], [6, 6]])
    moved = old + drawn * 0.08 * 32
    back = np.linalg.solve(np.c_[moved, np.ones(3)], old)
    y, x = np.mgrid[0:32, 0:32]
    places = np.stack([y.ravel(), x.ravel(), np.ones(1024)], axis=1) @ back
    expected = ndimage.map_coordinates(image, places.T, order=1, mode="mirror").reshape(32, 32)
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_elastic_displaces_by_smoothed_noise(small):
    image = small[:1, :1] / np.float32(255)
    draws = draws_of("elastic_transform", 3, 1)
    noise = draws.uniform("field", 2, 32, 32).numpy()[0] * 2 - 1
    moves = [0.08 * 32 * ndimage.gaussian_filter(n, 0.06 * 32, mode="reflect", truncate=3) for n in noise]
    drawn = draws.numbers("affine", 6).reshape(3, 2) * 2 - 1
    old = np.array([[26.0, 26], [26, 6], [6, 6]])
    back = np.linalg.solve(np.c_[old + drawn * 0.06 * 32, np.ones(3)], old)
    y, x = np.mgrid[0:32, 0:32]
    places = np.stack([y.ravel(), x.ravel(), np.ones(1024)], axis=1) @ back
    turned = ndimage.map_coordinates(image[0, 0].astype(float), places.T, order=1, mode="mirror").reshape(32, 32)
    expected = ndimage.map_coordinates(turned, [y + moves[0], x + moves[1]], order=1, mode="reflect")
    made = shift.corrupt(image, "elastic_transform", 3, ids=[0], form="32")[0, 0]
    np.testing.assert_allclose(made, expected, atol=1e-5)


@pytest.mark.parametrize(("form", "severity", "share"), [("32", 1, 0.95), ("32", 5, 0.65), ("224", 5, 0.25)])
def test_pixelate_is_pillows_box_resizing(small, form, severity, share):
    made = shift.corrupt(small[:6], "pixelate", severity, ids=ids(small[:6]), form=form)
    for image, result in zip(small[:6], made, strict=True):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        less = picture.resize((int(32 * share),) * 2, Image.Resampling.BOX)
        expected = np.asarray(less.resize((32, 32), Image.Resampling.BOX)).transpose(2, 0, 1)
        # Pillow rounds to levels between its passes.
        assert np.abs(result.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(("form", "severity", "quality"), [("32", 1, 80), ("32", 5, 40), ("224", 1, 25), ("224", 5, 7)])
@pytest.mark.parametrize("side", [32, 37])
def test_jpeg_is_what_pillow_writes_and_reads(small, form, severity, quality, side):
    images = np.pad(small[:12], ((0, 0), (0, 0), (0, side - 32), (0, side - 32)), mode="symmetric")
    made = shift.corrupt(images, "jpeg_compression", severity, ids=ids(images), form=form)
    apart, damage = [], []
    for image, result in zip(images, made, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(buffer, "JPEG", quality=quality)
        expected = np.asarray(Image.open(buffer)).transpose(2, 0, 1)
        apart.append(np.abs(result.astype(int) - expected))
        damage.append(np.abs(image.astype(int) - expected))
    # Its arithmetic is in whole numbers, ours is not: a few coefficients round the other way.
    assert np.mean(apart) < 0.2 * np.mean(damage)
    assert np.median(apart) == 0


def test_grey_jpeg_is_that_of_pillow(small):
    made = shift.corrupt(small[:4, :1], "jpeg_compression", 3, ids=ids(small[:4]), form="32")
    for image, result in zip(small[:4, 0], made[:, 0], strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=58)
        assert np.abs(result.astype(int) - np.asarray(Image.open(buffer))).mean() < 0.5


def test_mud_covers_with_its_colour_and_water_lightens():
    flat = np.full((16, 3, 32, 32), 0.5, np.float32)
    mud = shift.corrupt(flat, "spatter", 5, ids=ids(flat), form="32")
    colour = np.array([63, 42, 20])[None, :, None, None] / 255
    cover = (mud - 0.5) / (colour - 0.5)
    np.testing.assert_allclose(cover, np.broadcast_to(cover[:, :1], cover.shape), atol=1e-5)
    assert set(np.unique(cover[:, 0] > 0.001)) == {False, True}
    assert cover[cover > 0.001].min() >= 0.8 - 1e-5
    water = shift.corrupt(flat, "spatter", 2, ids=ids(flat), form="32")
    assert (water >= 0.5).all()
    assert (water > 0.6).any()
    lightened = water - 0.5
    inside = (water < 1).all(axis=1)
    np.testing.assert_allclose(lightened[:, 0][inside], lightened[:, 1][inside] * 175 / 238, atol=1e-5)


@pytest.mark.parametrize("word", shift.names("corruptions19"))
def test_the_large_form_works_at_its_size(large, word):
    made = shift.corrupt(large, word, 5, ids=ids(large))
    assert made.shape == large.shape
    assert (made != large).any()


def test_levels_are_spread_evenly_also_where_one_pixel_has_the_lowest():
    from confide.shift.weather import _levelled

    values = torch.tensor([[[0.0, 3.0], [3.0, 20.0]], [[5.0, 5.0], [5.0, 5.0]], [[2.0, 2.0], [4.0, 4.0]]])
    # (number at or below - number at the lowest) / (all - number at the lowest), onto 0 .. 255
    expected = torch.tensor([[[0.0, 170.0], [170.0, 255.0]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [255.0, 255.0]]])
    assert torch.equal(_levelled(values), expected)


def test_the_cosines_of_a_block_are_orthonormal_and_begin_with_a_constant():
    rows = digital._cosines.__wrapped__()
    np.testing.assert_allclose(rows @ rows.T, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(rows[0], np.sqrt(1 / 8))
    np.testing.assert_allclose(rows[1], np.cos((2 * np.arange(8) + 1) * np.pi / 16) / 2)


@pytest.mark.parametrize(("quality", "first"), [(1, 255), (10, 80), (49, 16), (50, 16), (51, 16), (90, 3), (100, 1)])
def test_steps_of_a_quality_are_those_of_the_reference_coder(quality, first):
    """libjpeg: 5000 / q below 50, 200 - 2 q from there on, of a table that begins with 16."""
    assert digital._quantisation_steps.__wrapped__(False, quality).reshape(-1)[0] == first
