"""Curves of an evaluation: what the bands of a report hold."""

from __future__ import annotations

import numpy as np
import pytest

import confide
from confide.evaluation import evaluate
from confide.evaluation.curves import SMOOTH_EDGES, _cell_starts, _spaced_ranks, reliability, risk_coverage
from confide.metrics.base import metric_samples
from confide.metrics.view import Design, Sorted, View
from confide.numerics.binomial import wilson_interval


def curve(evaluation, kind: str, size: int | None = None):
    found = [c for c in evaluation.curves if c.kind == kind and c.score in (None, "msp")]
    return next(c for c in found if size is None or len(c.columns["count"]) == size)


def halved(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """400 calibrated pairs: the surer half is right 9 times of 10, the other half 6 times of 10."""
    sure = np.repeat([0.9, 0.6], 200) + rng.uniform(0, 1e-3, 400)
    return rng.random(400) < sure, sure


DESIGNS = {
    "plain": Design(),
    "weights": Design(np.random.default_rng(3).choice([0.5, 1.0, 3.0], 400)),
    "unit": Design(clusters=np.arange(400) // 2),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_band_of_risk_and_coverage_holds_the_true_risk_in_95_of_100_draws(design):
    rng, held, draws = np.random.default_rng(0), 0, 250
    for _ in range(draws):
        right, sure = halved(rng)
        if design == "unit":
            right = right.reshape(-1, 2)[:, [0, 0]].reshape(-1)  # both of a unit are right, or both wrong
        samples = metric_samples(confide.Predictions.from_pairs(right, sure), design=DESIGNS[design])
        columns = risk_coverage(View(samples), "msp", "msp", True).columns
        half = int(np.argmin(np.abs(np.array(columns["threshold"]) - 0.9)))
        held += columns["risk_low"][half] <= 0.1 <= columns["risk_high"][half]
    assert 0.91 * draws <= held <= 0.99 * draws


def test_without_intervals_there_is_no_band():
    columns = curve(
        evaluate(confide.Predictions.from_pairs([1, 0, 1], [0.9, 0.8, 0.7]), ["accuracy"], False), "risk_coverage"
    )
    assert "risk_low" not in columns.columns


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("bins", [10, 15, 20])
def test_every_number_of_bins_has_its_own_chance_level_and_test(binning, bins):
    rng = np.random.default_rng(1)
    sure = rng.uniform(0.3, 1.0, 2000)
    predictions = confide.Predictions.from_pairs(rng.random(2000) < sure - 0.05, sure)
    columns = curve(evaluate(predictions, ["accuracy"]), f"reliability_{binning}", bins).columns
    test = confide.metrics.calibration_test(predictions, "ece", bins=bins, binning=binning)
    assert columns["chance"][0] == pytest.approx(test.mean, rel=0.05)
    assert columns["chance_high"][0] == pytest.approx(test.high, rel=0.05)
    assert columns["p_value"][0] == pytest.approx(test.p_value, abs=0.02)


def test_the_test_in_bins_rejects_calibrated_samples_in_5_of_100_draws():
    rng, rejected, draws = np.random.default_rng(2), 0, 300
    for _ in range(draws):
        sure = rng.beta(5, 1, 300)
        predictions = confide.Predictions.from_pairs(rng.random(300) < sure, sure)
        columns = reliability(View(metric_samples(predictions)), "width", 20, True, 0).columns
        rejected += columns["p_value"][0] < 0.05
    assert rejected <= 0.05 * draws + 3 * (0.05 * 0.95 * draws) ** 0.5


def test_cells_of_the_smooth_curve_begin_where_a_search_finds_them() -> None:
    rng = np.random.default_rng(0)
    values = np.sort(np.concatenate([rng.random(500), SMOOTH_EDGES[::7], np.nextafter(SMOOTH_EDGES[::9], 0), [0, 1]]))
    found = _cell_starts(Sorted(values[::-1], *np.ones((3, len(values)), dtype=np.intp)))
    assert np.array_equal(found, np.searchsorted(values, SMOOTH_EDGES))


@pytest.mark.parametrize(("n", "points"), [(1, 1), (2, 2), (299, 299), (300, 300), (301, 300), (100_000, 300)])
def test_a_curve_has_at_most_three_hundred_ranks_the_first_and_the_last_among_them(n, points):
    ranks = _spaced_ranks.__wrapped__(n)
    assert len(ranks) == points
    assert (ranks[0], ranks[-1]) == (0, n - 1)
    assert (np.diff(ranks) > 0).all()
    assert np.ptp(np.diff(ranks)) <= 1 if points > 1 else True


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("units", [False, True])
def test_accepted_samples_are_worth_what_their_sums_over_units_say(weighted, units):
    draws = np.random.default_rng(0)
    n, right = 40, draws.random(40) < 0.7
    sure = draws.permutation(np.linspace(0.3, 1, n))
    more = {"weights": draws.uniform(0.2, 3, n)} if weighted else {}
    if units:
        more |= {"unit": "visit", "visit": np.arange(n) // 3}
    predictions = confide.Predictions.from_pairs(right, sure, **more)
    found = risk_coverage(View(metric_samples(predictions)), "msp", "msp", bands=True).columns
    weights = predictions.relative_weights if weighted else np.ones(n)
    visit = np.arange(n) // 3 if units else np.arange(n)
    order = np.argsort(-sure)
    for k in (0, 5, 20, n - 1):
        rows = order[: k + 1]
        total = weights[rows].sum()
        risk = (weights[rows] * ~right[rows]).sum() / total
        assert found["coverage"][k] == pytest.approx(total / n)
        assert found["risk"][k] == pytest.approx(risk)
        accepted = np.bincount(visit[rows], weights[rows], n)
        wrong = np.bincount(visit[rows], weights[rows] * ~right[rows], n)
        alone, least = total**2 / (weights[rows] ** 2).sum(), total**2 / (accepted**2).sum()
        variance = ((wrong - risk * accepted) ** 2).sum() / total**2
        worth = np.clip(risk * (1 - risk) / variance if variance > 1e-15 else 0.0, least, alone) if units else alone
        low, high = wilson_interval(risk, float(worth), 1.959963984540054)
        assert (found["risk_low"][k], found["risk_high"][k]) == pytest.approx((low, high), abs=1e-5)
