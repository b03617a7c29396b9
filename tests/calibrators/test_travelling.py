"""Calibration that travels: harder batches get lower confidence, clean and small ones keep theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Features, Predictions, calibrators
from confide.calibrators.travelling import scale_for
from confide.checks import InputError


def batch(noise: float, seed: int, n: int = 1000):
    """Two views of one class, both blurred by the same noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=n)
    logits = 6 * (np.eye(3)[labels] + noise * draw.normal(size=(n, 3)))
    return logits, labels, 3 * np.eye(3, 5)[labels] + 2 * noise * draw.normal(size=(n, 5))


def whole(noises: dict[str, float], seed: int):
    parts = [batch(noise, seed + k) for k, noise in enumerate(noises.values())]
    logits, labels, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Predictions(logits, labels, split="val").with_column("shift", np.repeat(list(noises), 1000)), rows


VAL, ROWS = whole({"": 0.4, "a-1": 0.6, "a-2": 0.8, "b-1": 1.0, "b-2": 1.2}, 0)
TRAIN = Features(batch(0.4, 50)[2], batch(0.4, 50)[1], np.arange(1000), "drawn", "train")


def gap(predictions: Predictions) -> float:
    return float(predictions.facts.confidence.mean() - predictions.facts.correct.double().mean())


def test_an_unseen_hardness_gets_the_confidence_of_its_accuracy():
    logits, labels, rows = batch(0.9, 90)
    unseen = Predictions(logits, labels)
    clean = VAL.take(np.arange(1000)).replace(columns={})
    plain = calibrators.fit("temperature", clean)
    assert gap(plain(unseen)) > 0.1
    fitted = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN)
    assert abs(gap(fitted(unseen, rows))) < 0.04
    by_sample = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN, mode="sample")
    assert abs(gap(by_sample(unseen, rows))) < 0.5 * gap(plain(unseen))
    assert fitted.temperature == pytest.approx(plain.temperature)
    easy = batch(0.4, 91)
    assert abs(gap(fitted(Predictions(*easy[:2]), easy[2]))) < 0.03


def test_a_small_batch_keeps_the_clean_temperature():
    fitted = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN)
    logits, labels, rows = batch(1.2, 92, n=199)
    torch.testing.assert_close(fitted(Predictions(logits, labels), rows).logits.numpy(), logits / fitted.temperature)


@pytest.mark.parametrize("favoured", [0, 1, 2])
def test_other_shares_of_the_classes_are_not_taken_for_hardness(favoured):
    fitted = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN)
    logits, labels, rows = batch(0.4, 95, n=4000)
    some = np.flatnonzero((labels == favoured) | (np.arange(4000) % 8 == 0))
    after = fitted(Predictions(logits[some], labels[some]), rows[some]).logits.numpy()
    torch.testing.assert_close(after, logits[some] / fitted.temperature)


def test_the_mean_confidence_is_the_one_asked_for():
    logits = torch.from_numpy(batch(1.0, 93)[0])
    found = torch.softmax(logits * scale_for(logits, 0.6, 1.0), dim=1).amax(dim=1).mean()
    assert float(found) == pytest.approx(0.6, abs=1e-6)


def test_without_clean_samples_it_is_refused_and_without_shifts_it_says_so():
    with pytest.raises(InputError, match="needs clean samples"):
        calibrators.fit("travelling", VAL.take(np.arange(1000, 2000)), features=ROWS[1000:2000], fitted=TRAIN)
    alone = calibrators.fit("travelling", VAL.take(np.arange(1000)), features=ROWS[:1000], fitted=TRAIN)
    assert any("fewer than two shifts" in note for note in alone.notes)
