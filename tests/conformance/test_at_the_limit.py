"""Limits are tried where they are: exactly at them, and one step beyond."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import confide
from confide import monitor
from confide.calibrators.groups import MOST_VALUES, grouping
from confide.calibrators.linear_maps import ScaledRows
from confide.checks import InputError, as_tensor, check_kind, check_number, check_range, check_seed
from confide.decisions.rules import _cost_doubts
from confide.difficulty.combined import _directions
from confide.difficulty.label_errors import _right, _TailFits
from confide.difficulty.training_logs import as_log
from confide.evaluation.ood import _histogram
from confide.evaluation.shift import Subject, shift_words
from confide.metrics.calibration import LARGEST_GRID, POINTS_PER_WIDTH, SMALLEST_GRID, grid_for, smooth_chance
from confide.metrics.view import Design, MetricSamples, View
from confide.models.preparation import input_shape
from confide.numerics import binomial
from confide.numerics.logistic import Odds
from confide.numerics.minimise import lbfgs, truncated_newton
from confide.predictions import Predictions
from confide.random import noisy_labels
from confide.report.draw import tick_text
from confide.results import OperatingPoint
from confide.trust.combined import fact_names, shared_samples

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


def test_seeds_are_whole_numbers_up_to_their_limit():
    for value in (0, -3, 2**53, -(2**53), np.int64(5)):
        assert check_seed(value) == value
    assert all(refused(lambda v=v: check_seed(v)) for v in (True, 2.0, "3", None, 2**53 + 1, -(2**53) - 1))


def test_whole_numbers_of_options_stay_below_their_limit():
    for value, fits in ((2**63 - 1, True), (2**63, False), (-(2**63) + 1, True), (-(2**63), False), (2.0**63, False)):
        assert refused(lambda value=value: check_kind(value, "int", "x")) is not fits
    for value, fits in ((10**300 - 1, True), (10**300, False), (1e308, True)):
        assert refused(lambda value=value: check_kind(value, "float", "x")) is not fits


def test_features_of_a_file_are_a_table_and_need_no_labels(tmp_path):
    np.savez(tmp_path / "flat.npz", features=np.arange(4.0))
    with pytest.raises(InputError, match="n x d numbers"):
        confide.Features.load(tmp_path / "flat.npz")
    np.savez(tmp_path / "none.npz", other=np.eye(2))
    with pytest.raises(InputError, match="n x d numbers"):
        confide.Features.load(tmp_path / "none.npz")
    np.savez(tmp_path / "rows.npz", features=np.eye(3))
    assert confide.Features.load(tmp_path / "rows.npz").labels.tolist() == [-1, -1, -1]
    for short in ({"labels": np.arange(2)}, {"ids": np.arange(2)}):
        with pytest.raises(InputError, match="one row per sample"):
            confide.Features.load(tmp_path / "rows.npz", **short)


@pytest.mark.parametrize(
    ("costs", "threshold"),
    [
        ([[0, 1], [4, 0]], 0.2),
        ([[0, 0], [4, 0]], None),
        ([[0, 1], [0, 0]], None),
        ([[1, 2], [4, 1]], 0.25),
        ([[0, -1], [4, 0]], None),
    ],
)
def test_only_what_costs_something_has_a_threshold(costs, threshold):
    found = confide.decisions.DecisionRule.of(np.array(costs, dtype=float), 2).threshold
    assert found == (None if threshold is None else pytest.approx(threshold))


@pytest.mark.parametrize(("odd", "told"), [(9, True), (10, False)])
def test_ten_samples_that_cost_other_than_the_usual_tell_what_decisions_cost(odd, told):
    real = np.where(np.arange(40) < odd, 1.0, 0.0)
    doubts = _cost_doubts(np.full(40, real.mean()), real, Design())
    assert any(f"only {odd} of 40 samples" in doubt for doubt in doubts) is told


class Frame:
    """A table with a shape but no type of its own, as data frames are."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def to_numpy(self):
        return self.values


def test_difficulty_takes_a_data_frame_and_a_list_as_it_takes_an_array():
    rows, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    expected = confide.difficulty.score("md", rows, labels).values
    for other in (Frame(rows), rows.tolist()):
        np.testing.assert_allclose(confide.difficulty.score("md", other, labels).values, expected)


def test_without_labels_there_are_ten_centres():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    assert len(confide.difficulty.fit("kmeans", rows).model.centres) == 10
    assert len(confide.difficulty.fit("kmeans", rows, np.arange(60) % 4).model.centres) == 4
    with pytest.raises(InputError, match="at most the 60 samples"):
        confide.difficulty.fit("kmeans", rows, k=61)
    assert len(confide.difficulty.fit("kmeans", rows, k=60).model.centres) == 60


def test_the_histogram_of_equal_scores_is_one_wide():
    found = _histogram(np.full(5, 2.0), np.full(3, 2.0))
    assert found["low"][0] == 2.0
    assert found["high"][-1] == 3.0
    assert (found["known"].sum(), found["unknown"].sum()) == (5, 3)


def test_attacks_are_among_all_shifts_where_every_model_can_be_attacked():
    plain, open_to_it = Subject(lambda x: (x, None)), Subject(lambda x: (x, None), attacked=lambda x: x)
    attacks = set(confide.shift.ATTACKS.names())
    assert attacks <= set(shift_words("all", {"a": open_to_it}))
    assert not attacks & set(shift_words("all", {"a": open_to_it, "b": plain}))
    assert set(shift_words("attacks", {"b": plain})) == attacks
    assert not attacks & set(shift_words("corruptions", {"a": open_to_it}))
    first = next(iter(confide.shift.names()))
    assert shift_words(first, {"a": plain}) == (first,)
    assert shift_words([first, first], {"a": plain}) == (first,)
    with pytest.raises(InputError, match="at least one shift"):
        shift_words([], {"a": plain})
    grey = set(shift_words("all", {"a": plain}, channels=1))
    coloured = {m.word for m in confide.shift.SHIFTS if m.spec.colour}
    assert coloured
    assert grey == set(shift_words("all", {"a": plain})) - coloured


def test_a_grid_is_as_fine_as_its_width_asks_for():
    at = POINTS_PER_WIDTH / SMALLEST_GRID
    assert grid_for(at) == SMALLEST_GRID
    assert grid_for(at * (1 - 1e-12)) == 4 * SMALLEST_GRID
    assert grid_for(0.0) == LARGEST_GRID


def test_a_log_of_predictions_keeps_their_ids_or_takes_those_given():
    named = Predictions(torch.eye(3), torch.arange(3), ids=["a", "b", "c"])
    assert as_log(named).ids.tolist() == ["a", "b", "c"]
    assert as_log(named, ids=["x", "y", "z"]).ids.tolist() == ["x", "y", "z"]
    assert as_log(named, labels=[2, 1, 0]).labels.tolist() == [2, 1, 0]
    assert as_log(named).labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("ids", [np.array(["a", "b", "c", "d"]), np.arange(4) + 7])
def test_a_log_on_disk_keeps_the_kind_of_its_ids(ids, tmp_path):
    recorder = confide.difficulty.Recorder(ids, np.arange(4) % 2, folder=tmp_path / "log")
    for epoch in range(2):
        recorder.record(epoch, ids, torch.eye(2)[torch.arange(4) % 2])
        recorder.finish_epoch()
    opened = as_log(tmp_path / "log")
    assert opened.ids.tolist() == ids.tolist()
    assert opened.ids.dtype.kind == ids.dtype.kind


def test_a_class_of_one_sample_counts_among_the_directions():
    labels = np.append(np.arange(40) % 3, 3)
    rows = 4 * np.eye(4, 6)[labels] + np.random.default_rng(0).normal(size=(41, 6))
    fitted = confide.difficulty.fit("rmd", rows, labels)
    assert len(_directions(fitted.model)) == 3


def test_the_tail_of_right_labels_is_the_likeliest():
    draw = np.random.default_rng(0)
    pairs = np.round(4000 * np.exp(-np.arange(40) / 9)).astype(np.int64)
    labels = draw.binomial(pairs, 0.01 + 0.3 * np.exp(-0.3 * np.arange(40) / 3))
    for floor in (0.0, 0.005, 0.02):
        tails = _TailFits(pairs, labels, flat=False)
        value, found = tails.fit(floor, 1.0)
        for step in ((1e-3, 0, 0), (-1e-3, 0, 0), (0, 1e-3, 0), (0, -1e-3, 0)):
            rate = floor + (1 - floor) * _right(found + step, tails.margin, 1.0)
            other = -(tails.labels * np.log(rate) + tails.others * np.log1p(-rate)).sum()
            assert other > value - 1e-6


def test_rows_of_another_width_are_not_the_same_samples():
    ids, rows = np.arange(4), np.arange(12.0).reshape(4, 3)
    assert shared_samples(ids, rows, ids, rows) == 4
    assert shared_samples(ids, rows, ids, rows[:, :2]) == 0
    assert shared_samples(ids, rows, ids.astype(str), rows) == 4
    assert shared_samples(ids, rows, ids + 4, rows) == 0
    half = np.where(np.arange(4)[:, None] < 2, rows, -rows - 9)
    assert shared_samples(ids, rows, ids, half) == 0  # half of them is not most of them
    half[2] = rows[2]
    assert shared_samples(ids, rows, ids, half) == 4


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_label_that_no_class_has_is_named(wrong):
    rows, labels = np.random.default_rng(1).normal(size=(60, 2)), np.arange(60) % 3
    own = np.random.default_rng(0).normal(size=(60, 2))
    noisy = Predictions(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), labels, split="val")
    reference = confide.Features(rows, np.append(labels[:-1], wrong), np.arange(60), "drawn", "train")
    with pytest.raises(InputError, match=f"has label {wrong}, but there are 3 classes"):
        confide.trust.fit("combined", noisy, own, reference=reference)


def test_whole_numbers_without_a_sign_fit_up_to_the_largest_with_one():
    largest = np.iinfo(np.int64).max
    assert as_tensor(np.array([largest], dtype=np.uint64), "x").tolist() == [largest]
    assert refused(lambda: as_tensor(np.array([largest + 1], dtype=np.uint64), "x"))
    assert as_tensor(np.array([], dtype=np.uint64), "x").tolist() == []


def test_a_number_is_no_truth_value_and_no_word():
    assert all(refused(lambda v=v: check_number(v, "x", 1.0, 0, 5)) for v in (True, "3", None, [1]))
    assert check_number(None, "x", None, 0, 5) is None
    for value in (np.float32(2.5), np.int64(2), np.float64(2.5)):
        assert type(check_number(value, "x", 1.0, 0, 5)) in (int, float)


@pytest.mark.parametrize("abstain", [None, 0.3, (0.1, 0.2)])
def test_a_rule_with_and_without_abstaining_is_read_as_it_was_written(abstain, tmp_path):
    rule = confide.decisions.DecisionRule.of(np.array([[0.0, 1.0], [4.0, 0.0]]), 2, abstain=abstain)
    rule.save(tmp_path / "rule.json")
    again = confide.decisions.load(tmp_path / "rule.json")
    assert (again.abstain is None) is (abstain is None)
    if abstain is not None:
        np.testing.assert_array_equal(again.abstain, np.broadcast_to(abstain, 2))


def test_stages_of_an_evaluation_have_titles_and_raw_has_none():
    after = confide.calibrators.fit("temperature", SIXTY.replace(split="val"))(SIXTY)
    plain, moved = confide.evaluate(SIXTY, ["ece"]), confide.evaluate(after, ["ece"], stage="temperature")
    assert dict(plain.stage_titles) == {}
    assert list(moved.stage_titles) == ["temperature"]


@pytest.mark.parametrize(("rows", "dtype"), [(4, torch.float64), (5, torch.float32)])
def test_searches_over_as_many_logits_as_fit_are_in_float64(rows, dtype, monkeypatch):
    monkeypatch.setattr("confide.calibrators.linear_maps.VECTOR_FLOAT64_ELEMENTS", 12)
    logits = torch.eye(3)[torch.arange(rows) % 3]
    assert ScaledRows(logits, torch.arange(rows) % 3).dtype == dtype
    assert ScaledRows(logits.double(), torch.arange(rows) % 3).dtype == torch.float64


def test_a_search_that_cannot_fall_ends_where_it_is():
    rises = {"tolerance": 1e-9, "change": 0.0}

    def wrong(at: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(at.sum()), -torch.ones(2, dtype=torch.float64)

    found = lbfgs(wrong, 2, iterations=50, idle=3, memory=5, **rises)
    assert (found.at.tolist(), found.steepest, found.converged) == ([0.0, 0.0], 1.0, True)
    function = SimpleNamespace(measure=wrong, product=lambda direction: direction, inverse=lambda: lambda slope: slope)
    found = truncated_newton(function, torch.zeros(2, dtype=torch.float64), iterations=50, **rises)
    assert (found.at.tolist(), found.steepest, found.converged) == ([0.0, 0.0], 1.0, True)


def test_chance_of_a_smooth_error_is_one_number_however_it_is_drawn(monkeypatch):
    view = View(MetricSamples(SIXTY))
    single = smooth_chance(view, 100, np.random.default_rng(0))
    monkeypatch.setattr("confide.metrics.calibration.SINGLE_DRAWS", 59)
    many = smooth_chance(view, 100, np.random.default_rng(0))
    assert not np.array_equal(single, many)
    assert many.mean() == pytest.approx(single.mean(), rel=0.15)


def test_the_shape_of_inputs_that_are_no_array_is_that_of_the_first():
    class Listed:
        def __init__(self, rows: np.ndarray) -> None:
            self.rows = rows

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, places: Any) -> np.ndarray:
            return self.rows[places]

    rows = np.zeros((4, 3, 5, 6))
    assert [input_shape(SimpleNamespace(inputs=own)) for own in (rows, Listed(rows))] == [(3, 5, 6)] * 2


def test_of_confidences_alone_one_fact_is_known_and_of_probabilities_all_but_the_energy():
    pairs = Predictions.from_pairs([1, 0, 1], [0.5, 0.6, 0.9])
    probs = Predictions.from_probs(SIXTY.probabilities(), SIXTY.labels)
    assert [len(fact_names(own)) for own in (pairs, probs, SIXTY)] == [1, 3, 4]
    assert fact_names(SIXTY)[3] == "energy"


def test_samples_that_cannot_be_lost_choose_the_line_nearest_to_the_identity():
    sure = Odds(np.full(20, 800.0), np.ones(20, dtype=bool), np.ones(20))
    chosen = sure.chosen_map(np.arange(20) % 2, (1.0, 10.0, 100.0))
    np.testing.assert_array_equal(chosen, sure.line(100.0))
