"""`features:<word>` as a model: an extractor's network goes on learning, at a rate of its own."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from confide import features, models, training
from confide.checks import InputError
from confide.data import Dataset, Split
from confide.features.extraction import EXTRACTORS, Extractor
from confide.features.images import Preprocess

PREPARE = Preprocess(None, (6, 6), None, int(Image.Resampling.BICUBIC), 1 / 255, (0.5,) * 3, (0.5,) * 3)


@pytest.fixture(autouse=True)
def tiny_extractor(monkeypatch):
    """A network of one convolution, with its own classifier that features do not use."""

    def tiny(name: str = "") -> Extractor:
        torch.manual_seed(0)
        network = torch.nn.ModuleDict({"convolution": torch.nn.Conv2d(3, 4, 3), "unused": torch.nn.Linear(4, 2)})
        return Extractor(
            "tiny", "image", PREPARE, lambda x: network["convolution"](x).relu().mean((2, 3)), module=network
        )

    methods = dict(EXTRACTORS._methods)
    monkeypatch.setattr(EXTRACTORS, "_methods", methods)
    EXTRACTORS.add("tiny", paper="none", kind="image")(tiny)


@pytest.fixture(scope="module")
def images():
    draw, labels = np.random.default_rng(0), np.arange(60) % 2
    pixels = draw.integers(0, 100, size=(60, 1, 8, 8)) + 120 * labels[:, None, None, None]
    parts = {"train": slice(0, 40), "val": slice(40, 50), "test": slice(50, 60)}
    splits = {k: Split(pixels[p].astype(np.uint8), labels[p], np.arange(60)[p].astype(str)) for k, p in parts.items()}
    return Dataset("squares", "image", splits, ("dark", "bright"))


def settings(**options):
    chosen = {"body_rate": 0.5, "frozen_epochs": 1, **options}
    return training.Settings(
        model="features:tiny",
        model_options=chosen,
        epochs=2,
        batch_size=20,
        learning_rate=0.05,
        average=0.5,
        device="cpu",
    )


def test_the_head_learns_first_then_the_body_and_the_file_comes_back(images, tmp_path):
    before = features.create("tiny").module["convolution"].weight.detach()
    frozen = training.fit(images, settings(frozen_epochs=2))
    assert torch.equal(frozen.model.body.network["convolution"].weight, before)
    assert frozen.model.head.weight.abs().sum() > 0
    trained = training.fit(images, settings(), folder=tmp_path / "run")
    assert not torch.equal(trained.model.body.network["convolution"].weight, before)
    # The averaged weights are those that predict: a copy of the body must not call the first network.
    network = models.load_network(tmp_path / "run")
    rows = torch.from_numpy(images.test.inputs).float()
    with torch.no_grad():
        by_hand = network.model.head(network.model.body(rows))
    np.testing.assert_allclose(training.predict(trained, images, "test").logits, by_hand, atol=1e-5)


def test_images_are_prepared_as_the_extractor_does(images):
    model = models.create("features:tiny", (1, 8, 8), 2).eval()
    extracted = features.extract("tiny", images, "test", device="cpu", dtype="float32").values
    rows = model.features(torch.from_numpy(images.test.inputs).float()).detach()
    np.testing.assert_allclose(rows, extracted, atol=1e-5)
    again = copy.deepcopy(model)
    with torch.no_grad():
        again.body.network["convolution"].weight.zero_()
    assert not torch.equal(again.body(torch.ones(1, 1, 8, 8)), model.body(torch.ones(1, 1, 8, 8)))


def test_an_extractor_without_a_network_is_refused_in_one_line():
    with pytest.raises(InputError, match="'features:pixels' must be an extractor with a network"):
        models.create("features:pixels", (1, 8, 8), 2)
