"""The timm and open_clip factories, with the libraries where installed and with stand-ins elsewhere."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from confide import features
from confide.checks import MissingExtra
from confide.records import Split


@pytest.fixture
def split():
    inputs = np.random.default_rng(0).integers(0, 256, (3, 3, 20, 20), dtype=np.uint8)
    return Split(inputs, np.zeros(3, dtype=int), np.arange(3))


def stand_in(monkeypatch, name, **attributes):
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def transform(image):
    return torch.from_numpy(np.asarray(image, dtype=np.float32)).permute(2, 0, 1) / 255


def test_timm_asks_for_the_model_without_its_head_and_its_own_transform(split, monkeypatch):
    asked = {}

    def create_model(name, pretrained, num_classes):
        asked.update(name=name, pretrained=pretrained, num_classes=num_classes)
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def create_transform(*, input_size, is_training):
        assert (input_size, is_training) == (20, False)
        return transform

    data = stand_in(
        monkeypatch,
        "timm.data",
        resolve_model_data_config=lambda network: {"input_size": 20},
        create_transform=create_transform,
    )
    stand_in(monkeypatch, "timm", create_model=create_model, data=data)
    rows = features.extract("timm:resnet18", split, device="cpu").values
    assert asked == {"name": "resnet18", "pretrained": True, "num_classes": 0}
    np.testing.assert_allclose(rows, split.inputs.mean(axis=(2, 3)) / 255, rtol=1e-5)


def test_open_clip_gives_image_and_text_embeddings(split, monkeypatch):
    class Network(nn.Linear):
        def encode_image(self, batch):
            return batch.mean(dim=(2, 3))

        def encode_text(self, tokens):
            return tokens.float()

    network = Network(1, 1)
    stand_in(
        monkeypatch,
        "open_clip",
        create_model_and_transforms=lambda name, pretrained: (network, None, transform),
        get_tokenizer=lambda name: lambda texts: torch.tensor([[len(t)] for t in texts]),
    )
    extractor = features.create("open_clip:ViT-B-32", pretrained="openai")
    rows = features.extract("open_clip:ViT-B-32", split, device="cpu").values
    np.testing.assert_allclose(rows, split.inputs.mean(axis=(2, 3)) / 255, rtol=1e-5)
    assert extractor.encode_text(["ab", "abc"]).tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize(("word", "package"), [("timm:resnet18", "timm"), ("open_clip:RN50", "open_clip")])
def test_missing_libraries_name_the_extra(word, package, split, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"confide\[timm\]"):
        features.extract(word, split)


def test_timm_itself_with_random_weights(split):
    pytest.importorskip("timm", reason="timm needs torchvision; both are optional")
    rows = features.extract("timm:resnet18", split, pretrained=False, device="cpu")
    assert rows.values.shape == (3, 512)


def test_clip_resnets_are_sent_to_open_clip(monkeypatch):
    stand_in(monkeypatch, "transformers", CLIPModel=SimpleNamespace())
    with pytest.raises(ValueError, match="open_clip:RN50"):
        features.create("clip", model="RN50")
