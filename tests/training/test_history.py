"""SampleHistory: one file an epoch, right values, and no leftovers of a longer training."""

from __future__ import annotations

import numpy as np
import torch

from confide.files import formats
from confide.training import SampleHistory


def test_probability_of_the_label_and_prediction_are_kept(tmp_path):
    logits = np.random.default_rng(0).normal(scale=30, size=(50, 7)).astype(np.float32)
    labels = np.arange(50) % 7
    history = SampleHistory(tmp_path, labels, "val")
    history.record(3, None, logits)
    columns, about = formats.read_table(history.file(3))
    expected = torch.softmax(torch.tensor(logits).double(), dim=1)[torch.arange(50), torch.tensor(labels)]
    np.testing.assert_allclose(columns["probability"], expected.numpy(), rtol=1e-5, atol=1e-12)
    assert columns["prediction"].tolist() == logits.argmax(axis=1).tolist()
    assert about["split"] == "val"


def test_epochs_of_a_longer_training_before_are_removed(tmp_path):
    history = SampleHistory(tmp_path, np.array([0, 1]), "val")
    for epoch in range(5):
        history.record(epoch, None, np.eye(2))
    assert [p.name for p in history.finish(3)] == [f"epoch-{k:06d}.parquet" for k in range(3)]
    assert len(list(tmp_path.iterdir())) == 3
