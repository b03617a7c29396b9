"""The door: bad input gets one clear line, draws depend on what they are keyed by."""

import numpy as np
import pytest
import torch

from confide import shift
from confide.checks import InputError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"severity": 0}, "severity must be a whole number from 1 to 5, got 0"),
        ({"severity": 6}, "severity must be a whole number from 1 to 5, got 6"),
        ({"severity": 2.5}, "severity must be a whole number from 1 to 5, got 2.5"),
        ({"severity": True}, "severity must be a whole number"),
        ({"word": "fgo"}, "no shift named 'fgo'; did you mean 'fog'"),
        ({"form": "64"}, "form must be one of"),
        ({"ids": [1, 1]}, "ids must be unique"),
        ({"ids": [1]}, "ids must be 2 values"),
        ({"images": np.full((2, 3, 8, 8), 200.0)}, "floating images must lie in .0, 1., got 200"),
        ({"images": np.full((2, 3, 8, 8), np.nan)}, "floating images must be finite and lie in"),
        ({"images": ["a.png", "b.png"]}, "images must be an array or tensor of numbers, got <U5; decode them first"),
        ({"images": np.zeros((2, 3, 8, 8), np.int64)}, "images must be uint8, or floating"),
        ({"images": np.zeros((2, 8, 8, 3), np.uint8)}, "move the channels to the second place"),
        ({"images": np.zeros((3, 8, 8), np.uint8)}, "images must be n x c x h x w"),
    ],
)
def test_bad_input_gets_one_line(change, message):
    given = {"images": np.zeros((2, 3, 8, 8), np.uint8), "word": "fog", "severity": 1, "ids": [0, 1], **change}
    with pytest.raises(InputError, match=message) as caught:
        shift.corrupt(given.pop("images"), given.pop("word"), given.pop("severity"), **given)
    assert "\n" not in str(caught.value)


def test_the_forms_are_chosen_by_size_and_differ():
    assert shift.form_of(32, 32) == shift.form_of(64, 64) == "32"
    assert shift.form_of(224, 224) == shift.form_of(256, 200) == "224"
    images = np.full((1, 3, 32, 32), 128, np.uint8)
    mild, strong = (shift.corrupt(images, "gaussian_noise", 5, ids=[0], form=f).astype(float) for f in ("32", "224"))
    assert strong.std() > 2.5 * mild.std()


def test_seed_id_word_and_severity_each_change_the_draws(small):
    image = small[:1]

    def noise(word="gaussian_noise", severity=1, ids=(0,), seed=0):
        made = shift.corrupt(image / np.float32(255), word, severity, ids=np.array(ids), seed=seed)
        return (made - image / np.float32(255)).ravel()

    first = noise()
    assert (first == noise()).all()
    for other in (noise(seed=1), noise(ids=(1,)), noise(severity=2)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.1


def test_names_choose_the_benchmarks():
    assert len(shift.names("benchmark")) == 15
    assert len(shift.names("corruptions")) == 16
    assert "gaussian_blur" in shift.names("corruptions")
    assert len(shift.names("corruptions19")) == 19
    with pytest.raises(InputError, match="kind must be one of"):
        shift.names("all16")


def test_no_images_give_no_images():
    made = shift.corrupt(np.zeros((0, 3, 32, 32), np.uint8), "fog", 3, ids=np.arange(0))
    assert made.shape == (0, 3, 32, 32)


def test_half_precision_and_tensors_come_back_as_they_were():
    images = torch.rand(2, 3, 32, 32).half()
    made = shift.corrupt(images, "contrast", 1, ids=[0, 1])
    assert made.dtype == torch.float16


@pytest.mark.gpu
@pytest.mark.parametrize("word", shift.names())
def test_cpu_and_gpu_agree(word, small):
    images = torch.from_numpy(small)
    here = shift.corrupt(images, word, 5, ids=np.arange(len(images)))
    there = shift.corrupt(images.cuda(), word, 5, ids=np.arange(len(images))).cpu()
    apart = (here.int() - there.int()).abs()
    assert float((apart > 1).float().mean()) < 1e-4
