import importlib

import numpy as np
import pytest
import torch
from torch import nn

from confide import features
from confide.checks import InputError
from confide.records import Split


@pytest.fixture
def network():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(4, 3))


@pytest.fixture
def split():
    inputs = np.random.default_rng(0).random((6, 1, 8, 8), dtype=np.float32)
    return Split(inputs, np.zeros(6, dtype=int), np.arange(6))


def test_what_enters_the_last_linear_layer(network, split):
    extractor = features.from_module(network, torch.as_tensor)
    rows = features.extract(extractor, split, batch_size=4, device="cpu").values
    with torch.no_grad():
        expected = network[0](torch.as_tensor(split.inputs)).numpy()
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_a_named_layer_is_averaged_over_space(network, split):
    extractor = features.from_module(network, torch.as_tensor, layer="0.1")
    rows = features.extract(extractor, split, device="cpu").values
    with torch.no_grad():
        expected = network[0][1](network[0][0](torch.as_tensor(split.inputs))).mean(dim=(2, 3)).numpy()
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_unknown_layers_are_refused(network):
    with pytest.raises(InputError, match="layer must be a module"):
        features.from_module(network, torch.as_tensor, layer="head")


def test_a_checkpoint_is_read_by_the_room_that_trains(split, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("confide.features.extraction"), "_READERS", [])
    with pytest.raises(InputError, match=r"import confide\.training first"):
        features.extract(f"model:{tmp_path}", split)
    features.reads_checkpoints(lambda path: lambda part: part.inputs.reshape(len(part), -1))
    rows = features.extract(f"model:{tmp_path}", split)
    np.testing.assert_array_equal(rows.values, split.inputs.reshape(6, -1))


def test_a_missing_checkpoint_gets_one_line(split, tmp_path):
    with pytest.raises(InputError, match="does not exist; check the path"):
        features.extract(f"model:{tmp_path}/none", split)


def test_penultimate_rows_of_a_trained_checkpoint(tmp_path):
    from confide import training
    from confide.records import Dataset

    draw = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = (draw.normal(size=(60, 5)) + 3 * np.eye(3, 5)[labels]).astype(np.float32)
    split = Split(rows, labels, np.arange(60))
    data = Dataset("made", "rows", {"train": split, "val": split}, ("a", "b", "c"))
    settings = training.Settings(model="mlp", epochs=1, batch_size=20, device="cpu")
    trained = training.fit(data, settings, folder=tmp_path / "run")
    found = features.extract(f"model:{tmp_path / 'run'}", data, "val")
    expected = training.penultimate(trained, split)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
