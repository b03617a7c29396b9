"""Limits are tried where they are: exactly at them, and one step beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import confide
from confide import monitor
from confide.calibrators.groups import MOST_VALUES, grouping
from confide.checks import InputError, check_kind, check_number, check_range
from confide.numerics import binomial
from confide.numerics.minimise import lbfgs
from confide.predictions import Predictions
from confide.random import noisy_labels
from confide.report.draw import tick_text
from confide.results import OperatingPoint

SIXTY = Predictions(3 * torch.eye(3)[torch.arange(60) % 3] + torch.linspace(0, 1, 60)[:, None], torch.arange(60) % 3)


def refused(call: Any) -> bool:
    try:
        call()
    except InputError:
        return True
    return False


@pytest.mark.parametrize(
    ("low_open", "high_open", "allowed"),
    [(False, False, (0, 1)), (True, False, (1,)), (False, True, (0,)), (True, True, ())],
)
def test_an_end_of_a_range_is_allowed_or_not(low_open, high_open, allowed):
    ends = {"low_open": low_open, "high_open": high_open}
    assert [k for k in (0, 1) if not refused(lambda k=k: check_range(k, "x", 0, 1, **ends))] == list(allowed)
    assert not refused(lambda: check_range(0.5, "x", 0, 1, **ends))
    assert all(refused(lambda v=v: check_range(v, "x", 0, 1, **ends)) for v in (-1e-12, 1 + 1e-12, float("nan")))


def test_whole_numbers_and_kinds():
    assert check_number(3.0, "x", 1, 0, 5) == 3
    assert refused(lambda: check_number(2.5, "x", 1, 0, 5))
    assert check_number(2.5, "x", 1.0, 0, 5) == 2.5
    assert [refused(lambda v=v: check_kind(v, "int", "x")) for v in (2, 2.5, "2", True)] == [False, True, True, True]
    assert [refused(lambda v=v: check_kind(v, "float", "x")) for v in (2, 2.5, "2")] == [False, False, True]


@pytest.mark.parametrize(
    "options",
    [{"delta": 0}, {"delta": 1}, {"risk": 0}, {"risk": 1}, {"most_weight": 0}],
    ids=str,
)
def test_a_watch_promises_nothing_at_the_ends(options, tmp_path):
    with pytest.raises(InputError, match="must lie in"):
        monitor.Monitor(SIXTY, file=tmp_path / "watch.jsonl", **options)


def test_fifty_samples_are_enough_for_a_watch_and_forty_nine_are_not(tmp_path):
    monitor.Monitor(SIXTY.take(np.arange(50)), file=tmp_path / "enough.jsonl")
    with pytest.raises(InputError, match="at least 50"):
        monitor.Monitor(SIXTY.take(np.arange(49)), file=tmp_path / "few.jsonl")


def test_as_many_values_of_a_column_as_groups_may_have():
    n = 3 * (MOST_VALUES + 1)
    base = Predictions(torch.randn(n, 3, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3, split="val")
    for values, fits in ((MOST_VALUES, True), (MOST_VALUES + 1, False)):
        numbers = base.replace(columns={"number": np.arange(n) % values + 0.5})
        assert refused(lambda p=numbers: grouping(p, "number", None)) is not fits


def test_rates_of_a_point_lie_between_0_and_1():
    for risk, fits in ((0.0, True), (1.0, True), (1.5, False), (-0.1, False)):
        assert refused(lambda risk=risk: OperatingPoint.from_dict({"threshold": 0.5, "risk": risk})) is not fits


def test_names_of_several_labels_are_as_many_and_different():
    for names, fits in ((("a", "b"), True), (("a", "a"), False), (("a",), False), (("a", "b", "c"), False)):
        assert refused(lambda names=names: Predictions.multilabel(np.zeros((2, 2)), label_names=names)) is not fits


def test_splits_of_one_kind_must_have_one_shape_too(tmp_path):
    y = np.arange(12) % 2
    shapes = {"train_inputs": np.zeros((12, 3)), "test_inputs": np.zeros((12, 4))}
    np.savez(tmp_path / "rows.npz", train_labels=y, test_labels=y, **shapes)
    with pytest.raises(InputError, match="one kind and shape"):
        confide.load_dataset(str(tmp_path / "rows.npz"))


def test_label_noise_of_two_classes_is_the_other_class():
    noisy = noisy_labels(np.zeros(200, dtype=np.int64), 0.25, num_classes=2, ids=np.arange(200), seed=0)
    assert set(noisy.tolist()) == {0, 1}
    with pytest.raises(InputError, match="at least two classes"):
        noisy_labels(np.zeros(3, dtype=np.int64), 0.25, num_classes=1, ids=np.arange(3), seed=0)


def test_a_search_says_whether_it_has_arrived():
    def bowl(at: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float((at - 1).square().sum()), 2 * (at - 1)

    options = {"tolerance": 1e-9, "change": 0.0, "idle": 3, "memory": 5}
    assert lbfgs(bowl, 2, iterations=50, **options).converged
    assert not lbfgs(
        lambda at: (float((at - 1).pow(4).sum()), 4 * (at - 1).pow(3)), 2, iterations=1, **options
    ).converged


def test_tails_of_many_chances_agree_with_the_exact_ones():
    """Beyond the size that is added up exactly the skewed normal takes over: it must go on where that ends."""
    chances = np.tile(np.linspace(0.55, 0.98, 100), 60)
    draws = (np.random.default_rng(0).random((4000, len(chances))) < chances).sum(axis=1)
    for right in np.quantile(draws, [0.02, 0.5, 0.98]).astype(int):
        tails = binomial.right_tails(int(right), chances)
        assert sorted(tails) == pytest.approx(sorted(((draws >= right).mean(), (draws <= right).mean())), abs=0.025)


@pytest.mark.parametrize(
    ("value", "values", "text"),
    [
        (0.5, (0, 0.25, 0.5), "0.50"),
        (0.5, (0, 0.5, 1), "0.5"),
        (20, (0, 20, 40), "20"),
        (0.02, (0, 0.02, 0.04), "0.02"),
    ],
)
def test_marks_have_the_digits_of_their_step(value, values, text):
    assert tick_text(value, values) == text
