"""Adaptive difficulty: where its minimum lies, how the doubt of a band moves, and what stays within noise."""

from __future__ import annotations

import pytest
import torch

from confide import losses
from confide.checks import InputError


def predictions(confidence, accuracy, n=2000, num_classes=4):
    """Predictions of one confidence that are right as often as asked for."""
    labels = torch.zeros(n, dtype=torch.int64)
    logits = torch.full((n, num_classes), (1 - confidence) / (num_classes - 1), dtype=torch.float64).log()
    said = torch.where(torch.arange(n) < round(accuracy * n), 0, 1)
    logits[torch.arange(n), said] = torch.tensor(confidence, dtype=torch.float64).log()
    return logits, labels


def learn(loss, *parts):
    """Update the loss from these parts, each a band of its own."""
    logits, labels = zip(*parts, strict=True)
    groups = torch.cat([torch.full((len(part),), i) for i, part in enumerate(labels)])
    loss.update(torch.cat(logits), torch.cat(labels), groups=groups)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 200])
@pytest.mark.parametrize("doubt", [0.001, 0.05, 0.3])
def test_the_minimum_lies_at_one_less_doubt(num_classes, doubt):
    loss = losses.create("adaptive_difficulty", num_groups=1, start=doubt, most=0.45)
    probs = torch.full((1, num_classes), doubt / (num_classes - 1), dtype=torch.float64)
    probs[0, 0] = 1 - doubt
    logits = probs.log().requires_grad_()
    loss(logits, torch.tensor([0]), groups=torch.tensor([0])).backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-12)


def test_each_band_has_its_own_strength_and_no_doubt_is_cross_entropy():
    logits, labels = torch.randn((6, 5), generator=torch.Generator().manual_seed(0)).double(), torch.arange(6) % 5
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    loss = losses.create("adaptive_difficulty", num_groups=3, reduction="none")
    torch.testing.assert_close(loss(logits, labels, groups=groups), losses.cross_entropy(logits, labels))
    loss.doubts.copy_(torch.tensor([0.0, 0.05, 0.2]))
    strengths = loss.strengths(5)
    assert strengths[0] == 0
    for band in range(3):
        rows = groups == band
        wanted = losses.entropy_regularization(logits[rows], labels[rows], alpha=float(strengths[band]))
        torch.testing.assert_close(loss(logits, labels, groups=groups)[rows], wanted)


def test_the_base_may_be_adafocal_which_learns_too():
    logits, labels = torch.randn((6, 4), generator=torch.Generator().manual_seed(0)).double(), torch.arange(6) % 4
    loss = losses.create("adaptive_difficulty", num_groups=1, base="adafocal", reduction="none")
    plain = losses.create("adafocal", reduction="none")
    groups = torch.zeros(6, dtype=torch.int64)
    torch.testing.assert_close(loss(logits, labels, groups=groups), plain(logits, labels))
    loss.update(logits, labels, groups=groups)
    plain.update(logits, labels)
    torch.testing.assert_close(loss.focal.gammas, plain.gammas)
    assert {"doubt0", "gamma0", "gamma14"} <= set(loss.log())


def test_doubt_grows_where_the_network_is_too_sure_and_stays_within_its_bounds():
    loss = losses.create("adaptive_difficulty", num_groups=2, rate=0.5, noise=0.0, most=0.3)
    learn(loss, predictions(0.9, 0.9), predictions(0.9, 0.7))
    torch.testing.assert_close(loss.doubts, torch.tensor([0.0, 0.1], dtype=torch.float64))
    for _ in range(9):
        learn(loss, predictions(0.9, 1.0), predictions(0.9, 0.5))
    torch.testing.assert_close(loss.doubts, torch.tensor([0.0, 0.3], dtype=torch.float64))
    for _ in range(9):
        learn(loss, predictions(0.9, 1.0), predictions(0.5, 0.9))
    assert loss.doubts.tolist() == [0.0, 0.0]


def test_a_band_within_noise_moves_with_the_others():
    # 100 samples of confidence 0.9 have a standard error of 0.03: a gap that is 0.02 off the others' says nothing.
    parts = (predictions(0.9, 0.85, 4000), predictions(0.9, 0.77, 100), predictions(0.9, 0.55, 1000))
    loss = losses.create("adaptive_difficulty", num_groups=3, rate=1.0, most=0.45)
    learn(loss, *parts)
    overall = (0.05 * 4000 + 0.13 * 100 + 0.35 * 1000) / 5100
    assert loss.doubts[1].item() == pytest.approx(overall)
    assert loss.doubts[0].item() == pytest.approx(0.05, abs=0.003)
    assert loss.doubts[2].item() == pytest.approx(0.35, abs=0.003)
    exact = losses.create("adaptive_difficulty", num_groups=3, rate=1.0, most=0.45, noise=0.0)
    learn(exact, *parts)
    torch.testing.assert_close(exact.doubts, torch.tensor([0.05, 0.13, 0.35], dtype=torch.float64))


def test_an_empty_band_moves_with_all():
    loss = losses.create("adaptive_difficulty", num_groups=3, rate=1.0, most=0.3)
    logits, labels = predictions(0.9, 0.8)
    loss.update(logits, labels, groups=torch.zeros(2000, dtype=torch.int64))
    torch.testing.assert_close(loss.doubts, torch.full((3,), 0.1, dtype=torch.float64))


def test_the_strengths_are_updated_in_place():
    loss = losses.create("adaptive_difficulty", num_groups=1)
    place = loss.doubts.data_ptr()
    learn(loss, predictions(0.9, 0.5))
    assert loss.doubts.data_ptr() == place
    assert loss.doubts[0] > 0


def test_bad_groups_get_one_clear_line():
    loss = losses.create("adaptive_difficulty", num_groups=2)
    logits, labels = predictions(0.9, 0.5, 10)
    with pytest.raises(InputError, match=r"groups must lie in \[0, 2\), got 0 to 5; set num_groups"):
        loss(logits, labels, groups=torch.tensor([0, 5] * 5))
    with pytest.raises(InputError, match="one group for each validation sample"):
        loss.update(logits, labels, groups=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="whole numbers"):
        loss.update(logits, labels, groups=torch.zeros(10))


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_doubt_is_asked_for_up_to_nine_tenths_of_a_uniform_prediction(num_classes):
    loss = losses.create("adaptive_difficulty", num_groups=4)
    loss.doubts.copy_(torch.tensor([0.0, 0.2, 0.95, 0.99], dtype=torch.float64))
    found = loss.strengths(num_classes)
    most = 0.9 * (num_classes - 1) / num_classes
    for value, doubt in zip(found.tolist()[1:], (0.2, 0.95, 0.99), strict=True):
        d = min(doubt, most)
        odds = torch.log(torch.tensor((num_classes - 1) * (1 - d) / d, dtype=torch.float64))
        assert value == pytest.approx(float(1 / ((1 - d) * odds)))
    assert found[0] == 0
