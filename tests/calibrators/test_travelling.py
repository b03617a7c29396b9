"""Calibration that travels: harder batches get lower confidence, clean and small ones keep theirs."""

from __future__ import annotations

import sys
from itertools import product

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


def test_the_order_of_feature_columns_does_not_move_the_temperatures():
    """A direction in which no class lies elsewhere, chosen by rounding, was part of the distance."""
    turned = [3, 1, 4, 0, 2]
    first = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN, mode="sample")
    train = Features(TRAIN.values[:, turned], TRAIN.labels, TRAIN.ids, "drawn", "train")
    other = calibrators.fit("travelling", VAL, features=ROWS[:, turned], fitted=train, mode="sample")
    logits, labels, rows = batch(0.9, 90)
    one, two = (
        fitted(Predictions(logits, labels), own).logits for fitted, own in ((first, rows), (other, rows[:, turned]))
    )
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_a_small_batch_keeps_the_clean_temperature():
    fitted = calibrators.fit("travelling", VAL, features=ROWS, fitted=TRAIN)
    logits, labels, rows = batch(1.2, 92, n=199)
    torch.testing.assert_close(fitted(Predictions(logits, labels), rows).logits.numpy(), logits / fitted.temperature)


def test_other_shares_of_the_classes_are_seldom_taken_for_hardness():
    """Three fits, each asked about fifteen batches in which one class is eight times as frequent."""
    moved = []
    for fit in range(3):
        val, rows = whole({"": 0.4, "a-1": 0.6, "a-2": 0.8, "b-1": 1.0, "b-2": 1.2}, 1000 * fit)
        seen = batch(0.4, 50 + fit)
        train = Features(seen[2], seen[1], np.arange(1000), "drawn", "train")
        fitted = calibrators.fit("travelling", val, features=rows, fitted=train)
        for seed, favoured in product(range(5), range(3)):
            logits, labels, rows = batch(0.4, 7000 * fit + 95 + seed, n=4000)
            some = np.flatnonzero((labels == favoured) | (np.arange(4000) % 8 == 0))
            after = fitted(Predictions(logits[some], labels[some]), rows[some])
            moved.append(not np.allclose(after.logits.numpy(), logits[some] / float(fitted.temperature)))
            assert abs(gap(after)) < 0.03
    assert np.mean(moved) < 0.15


def test_the_mean_confidence_is_the_one_asked_for():
    logits = torch.from_numpy(batch(1.0, 93)[0])
    found = torch.softmax(logits * scale_for(logits, 0.6, 1.0), dim=1).amax(dim=1).mean()
    assert float(found) == pytest.approx(0.6, abs=1e-6)


def test_without_clean_samples_it_is_refused_and_without_shifts_it_says_so():
    with pytest.raises(InputError, match="needs clean samples"):
        calibrators.fit("travelling", VAL.take(np.arange(1000, 2000)), features=ROWS[1000:2000], fitted=TRAIN)
    alone = calibrators.fit("travelling", VAL.take(np.arange(1000)), features=ROWS[:1000], fitted=TRAIN)
    assert any("fewer than two shifts" in note for note in alone.notes)


def test_shares_of_the_classes_go_by_how_sure_each_is_not_by_how_many_it_has(monkeypatch):
    logits, labels, rows = batch(0.4, 7)
    kept = np.sort(np.concatenate([np.flatnonzero(labels == k)[: (30, 200, 90)[k]] for k in range(3)]))
    logits, labels, rows = logits[kept], labels[kept], rows[kept]
    logits *= np.array([1.5, 0.5, 1.0])[labels][:, None]  # the rarest class is the surest, the largest the least sure
    given: list[torch.Tensor] = []
    travelling = sys.modules["confide.calibrators.travelling"]
    statistics = travelling.batch_statistics
    monkeypatch.setattr(travelling, "batch_statistics", lambda *own: given.append(own[-1].clone()) or statistics(*own))
    monkeypatch.setattr(travelling, "uneven_shares", lambda n, draw, counter: np.array([1.0, 2.0, 3.0]))
    val = Predictions(logits, labels, split="val").with_column("shift", np.full(len(labels), ""))
    calibrators.fit("travelling", val, features=rows, fitted=TRAIN)
    uneven = next(weight for weight in given if len(weight.unique()) > 1)
    assert uneven.tolist() == [(3.0, 1.0, 2.0)[k] for k in labels]
