"""Alarms: a false one with probability delta at most, ever; a broken promise is seen, also after a long good time."""

from __future__ import annotations

import numpy as np
import pytest

from confide.monitor.alarms import BLOCK, FRACTIONS, Wealth, calibration_bets, risk_bets


def naive(gain: np.ndarray, low: np.ndarray, delta: float) -> tuple[float, int | None]:
    """The mixture over start times written out: every start has its own wealth."""
    starts: list[tuple[float, np.ndarray]] = []
    raised = None
    for t, (x, most) in enumerate(zip(gain, low, strict=True)):
        if t % BLOCK == 0:
            j = t // BLOCK + 1
            starts.append((1 / (j * (j + 1)), np.ones((len(x), len(FRACTIONS)))))
        starts = [(weight, wealth * (1 + FRACTIONS * (x / most)[:, None])) for weight, wealth in starts]
        waiting = 1 - sum(weight for weight, _ in starts)
        total = sum(weight * wealth.mean() for weight, wealth in starts) + waiting
        if raised is None and total >= 1 / delta:
            raised = t + 1
    return total, raised


def test_wealth_is_the_mixture_over_start_times():
    rng = np.random.default_rng(0)
    wrong = (rng.random(450) < 0.12).astype(float)
    gain, low = risk_bets(wrong, 0.05, rng.uniform(0.5, 2, 450), 2.0)
    wealth = Wealth(1, 0.05)
    for part in np.split(np.arange(450), [7, 130, 300]):  # batches do not matter
        wealth.add(gain[part], low[part])
    value, raised = naive(gain, low, 0.05)
    assert wealth.value == pytest.approx(value, rel=1e-9)
    assert wealth.alarm_at == raised
    assert raised is not None


def test_a_promise_that_just_holds_is_rarely_called_broken():
    """The hardest null, risk exactly at the promise: at most delta of 300 watches of 3,000 labels."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(300):
        wealth = Wealth(1, 0.05)
        wealth.add(*risk_bets((rng.random(3000) < 0.05).astype(float), 0.05, np.ones(3000)))
        alarms += wealth.alarmed
    assert alarms / 300 <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5


@pytest.mark.parametrize(("good", "most"), [(0, 400), (5000, 900)])
def test_a_broken_promise_is_seen_also_after_a_long_good_time(good, most):
    rng = np.random.default_rng(2)
    delays = []
    for _ in range(40):
        wrong = np.concatenate([rng.random(good) < 0.03, rng.random(3000) < 0.10]).astype(float)
        wealth = Wealth(1, 0.05)
        wealth.add(*risk_bets(wrong, 0.05, np.ones(len(wrong))))
        assert wealth.alarm_at is not None
        delays.append(wealth.alarm_at - good)
    assert np.median(delays) < most


def test_inclusion_weights_undo_a_biased_choice_of_labels():
    """Samples that look hard are labelled five times as often: unweighted the alarm is false, weighted it is not."""
    rng = np.random.default_rng(3)
    hard = rng.random(20_000) < 0.2
    wrong = (rng.random(20_000) < np.where(hard, 0.12, 0.005)).astype(float)
    chance = np.where(hard, 1.0, 0.2)
    chosen = rng.random(20_000) < chance
    plain, weighted = Wealth(1, 0.05), Wealth(1, 0.05)
    plain.add(*risk_bets(wrong[chosen], 0.05, np.ones(chosen.sum())))
    weighted.add(*risk_bets(wrong[chosen], 0.05, 1 / chance[chosen], 5.0))
    assert plain.alarmed
    assert not weighted.alarmed


@pytest.mark.parametrize("sign", [-1, 1])
def test_calibration_alarms_on_both_signs_and_not_within_tolerance(sign):
    rng = np.random.default_rng(4)
    bands, tolerance = np.array([0.6, 0.8, 0.9]), np.full(5, 0.01)
    alarms = []
    for shift in (0.01, 0.06):
        count = 0
        for _ in range(20):
            confidence = rng.uniform(0.3, 0.9, 3000)
            right = (rng.random(3000) < confidence + sign * shift).astype(float)
            wealth = Wealth(10, 0.05)
            wealth.add(*calibration_bets(right, confidence, bands, tolerance, np.ones(3000)))
            count += wealth.alarmed
        alarms.append(count)
    assert alarms[0] <= 2
    assert alarms[1] == 20


def test_wealth_never_overflows():
    wealth = Wealth(1, 0.05)
    wealth.add(*risk_bets(np.ones(20_000), 0.01, np.ones(20_000)))
    assert np.isfinite(wealth.value)
    assert wealth.alarmed
