"""Which samples a report shows."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from confide.evaluation import gallery, suspects
from confide.evaluation.gallery import _thinning, picture
from confide.predictions import Predictions
from confide.records import Scores, Split

NAMES = ("cat", "dog")


@pytest.fixture
def split():
    images = np.arange(20 * 4 * 4, dtype=np.uint8).reshape(20, 1, 4, 4)
    return Split(images, np.arange(20) % 2, np.array([f"s{i}" for i in range(20)]))


@pytest.fixture
def scores(split):
    columns = {
        "verdict": np.where(np.isin(np.arange(20), (3, 8)), "wrong label", "typical"),
        "suspicion": np.arange(20.0),
        "suggested": (split.labels + 1) % 2,
    }
    return Scores(split.ids, np.arange(20.0), "rmd", labels=split.labels, columns=columns)


def test_the_ends_of_each_class_by_difficulty(split, scores):
    shown = gallery(split, scores, NAMES, each=2)
    ends = {(s.role, s.label): [] for s in shown}
    for sample in shown:
        ends[(sample.role, sample.label)].append(sample.id)
    assert ends[("easiest", "cat")] == ["s0", "s2"]
    assert ends[("hardest", "cat")] == ["s18", "s16"]
    assert ends[("hardest", "dog")] == ["s19", "s17"]


def test_what_the_model_said_is_found_by_id(split, scores):
    logits = np.tile([0.0, 2.0], (20, 1))
    said = Predictions(logits, split.labels, split.ids).take(np.arange(20)[::-1])
    shown = gallery(split, scores, NAMES, predictions=said, each=1)
    assert {s.prediction for s in shown} == {"dog"}
    assert shown[0].confidence == pytest.approx(0.880797, abs=1e-5)


def test_suspects_name_the_class_that_fits_better(split, scores):
    shown = suspects(split, scores, NAMES)
    assert [(s.id, s.label, s.prediction) for s in shown] == [("s8", "cat", "dog"), ("s3", "dog", "cat")]
    assert suspects(split, Scores(split.ids, np.zeros(20), "rmd"), NAMES) == ()


def test_a_picture_keeps_its_pixels_and_a_large_one_is_shrunk():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    uri = picture(pixels)
    assert uri.startswith("data:image/png;base64,")
    back = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",", 1)[1]))))
    np.testing.assert_array_equal(back, pixels.transpose(1, 2, 0))
    large = picture(np.zeros((3, 400, 200), np.uint8))
    assert Image.open(io.BytesIO(base64.b64decode(large.split(",", 1)[1]))).size == (48, 96)
    assert picture(np.zeros((3, 8, 8), np.float32)) is None


def test_pictures_whose_pixels_were_thinned_are_drawn_by_the_step():
    whole = np.ones((12, 18), dtype=bool)
    assert _thinning(whole) == 1
    assert _thinning(np.ones((1, 1), dtype=bool)) == 1
    border = whole.copy()
    border[:2], border[:, :2] = False, False
    assert _thinning(border) == 1
    for step in (2, 3):
        kept = np.zeros((24, 24), dtype=bool)
        kept[::step, ::step] = True
        assert _thinning(kept) == step
    assert _thinning(np.arange(2)[:, None] == 0) == 2  # one of two kept
