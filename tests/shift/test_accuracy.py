"""A trained model's accuracy falls as severity rises."""

import numpy as np
import pytest

from confide import shift
from confide.data import load_dataset


@pytest.fixture(scope="module")
def trained():
    """Ridge regression on the pixels of the embedded images (28 x 28, grey), and its test images."""
    dataset = load_dataset("fashion-sample")
    train, test = dataset.train.take(np.arange(3000)), dataset.test.take(np.arange(400))

    def rows(images):
        return np.c_[images.reshape(len(images), -1) / 255.0, np.ones(len(images))]

    x, y = rows(train.inputs), np.eye(10)[train.labels]
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ y)

    def accuracy(images):
        said = (rows(images) @ weights).argmax(axis=1)
        return float((said == test.labels).mean())

    return accuracy, test


def test_accuracy_falls_with_severity(trained):
    accuracy, test = trained
    words = [m.word for m in shift.SHIFTS if not m.spec.colour]
    table = {
        word: [accuracy(shift.corrupt(test.inputs, word, s, ids=test.ids)) for s in shift.SEVERITIES] for word in words
    }
    clean = accuracy(test.inputs)
    assert clean > 0.75
    means = np.mean(list(table.values()), axis=0)
    assert (np.diff([clean, *means]) < 0).all(), means
    for word in ("contrast", "fog", "stylised", "sketch", "zoom_blur", "brightness"):
        assert table[word][4] < table[word][0] - 0.02, (word, table[word])
    assert table["stylised"][4] < clean - 0.3
