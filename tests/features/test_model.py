import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from confide import features, training
from confide.checks import InputError
from confide.records import Dataset, Split


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


def test_a_missing_checkpoint_gets_one_line(split, tmp_path):
    with pytest.raises(InputError, match="does not exist; check the path"):
        features.extract(f"model:{tmp_path}/none", split)


@pytest.fixture
def trained(tmp_path):
    """A small trained model, its folder, and a split to read."""
    draw = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = (draw.normal(size=(60, 5)) + 3 * np.eye(3, 5)[labels]).astype(np.float32)
    split = Split(rows, labels, np.arange(60))
    data = Dataset("made", "rows", {"train": split, "val": split}, ("a", "b", "c"))
    settings = training.Settings(model="mlp", epochs=1, batch_size=20, device="cpu")
    return training.fit(data, settings, folder=tmp_path / "run"), tmp_path / "run", split


def test_penultimate_rows_of_a_trained_checkpoint(trained):
    model, folder, split = trained
    rows = features.extract(f"model:{folder}", split, "val")
    np.testing.assert_allclose(rows.values, training.penultimate(model, split).values, rtol=1e-5)


def test_model_features_said_import_confide_training_first(trained):
    """A fresh process that imports the features alone reads a trained model."""
    model, folder, split = trained
    np.save(folder / "inputs.npy", split.inputs)
    script = f"""
import sys
import numpy as np
from confide import features
from confide.records import Split
inputs = np.load({str(folder / "inputs.npy")!r})
rows = features.extract("model:{folder}", Split(inputs, np.zeros(60, dtype=int), np.arange(60)))
np.save({str(folder / "rows.npy")!r}, rows.values)
assert "confide.training" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_allclose(np.load(folder / "rows.npy"), training.penultimate(model, split).values, rtol=1e-5)


def test_inputs_of_another_shape_are_refused(trained):
    _, folder, split = trained
    other = Split(split.inputs[:, :4], split.labels, split.ids)
    with pytest.raises(InputError, match=r"must have shape \(5,\) as in training, got \(4,\)"):
        features.extract(f"model:{folder}", other)
