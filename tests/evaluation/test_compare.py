"""compare: paired differences, their tests and level, Holm, refusals."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import confide
from confide import Predictions, metrics
from confide.checks import InputError
from confide.evaluation.compare import drawn_test, holm, student_tail
from confide.metrics.influence import Spread
from confide.results import ComparedRow


def pair(n=500, seed=0, sharp=2.5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return Predictions(sharp * logits, labels), Predictions(logits, labels)


def test_temperature_is_better_where_it_should_be():
    a, b = pair()
    found = {c.metric: c for c in confide.compare(a, b, names=("net/raw", "net/temperature"), resamples=300)}
    assert found["nll"].better == "b"
    assert found["ece_mass"].better == "b"
    assert (found["nll"].a, found["nll"].b) == (ComparedRow("net", "raw"), ComparedRow("net", "temperature"))
    assert found["nll"].difference == pytest.approx(float(metrics.nll(b)) - float(metrics.nll(a)))
    assert found["nll"].low < found["nll"].difference < found["nll"].high < 0
    assert found["accuracy"].difference == 0
    assert found["accuracy"].p_value == 1
    assert found["accuracy"].better is None


def test_holm_is_over_all_pairs_of_a_metric():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, math.nan, 0.01]) == pytest.approx([0.5, math.nan, 0.02], nan_ok=True)
    a, b = pair(n=100)
    found = confide.compare({"a": a, "b": b, "c": b}, metrics=["nll", "brier"], resamples=50)
    assert len(found) == 3 * 2
    for metric in ("nll", "brier"):
        family = [c for c in found if c.metric == metric]
        assert [c.p_holm for c in family] == pytest.approx(holm([c.p_value for c in family]))


def test_the_paired_test_keeps_its_level():
    """Two networks that differ only by noise: neither is better."""
    rejected = np.zeros(2)
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        common = 2 * torch.randn(80, 3, generator=generator, dtype=torch.float64)
        labels = torch.multinomial(torch.softmax(common, 1), 1, generator=generator).squeeze(1)
        noisy = [
            Predictions(common + torch.randn(80, 3, generator=generator, dtype=torch.float64), labels) for _ in range(2)
        ]
        found = confide.compare(*noisy, metrics=["aurc", "brier"], resamples=80)
        rejected += [c.p_value <= 0.05 for c in found]
    # 100 draws at 0.05: more than 13 has probability below 0.001
    assert (rejected <= 13).all()


def test_two_models_that_err_alike_in_opposite_directions_are_not_told_apart():
    """Confidences 0.1 above and below the truth: a permutation of rows claimed a better one nearly twice as often."""
    claimed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        chance = rng.uniform(0.6, 0.8, 300)
        right = rng.random(300) < chance
        sides = [Predictions.from_pairs(right, chance + gap) for gap in (0.1, -0.1)]
        claimed += confide.compare(*sides, metrics=["ece"], resamples=100)[0].p_value <= 0.05
    # 60 draws at 0.05: more than 8 has probability 0.004
    assert claimed <= 8


def test_p_values_below_the_number_of_draws_come_from_the_normal_tail():
    draws = np.random.default_rng(0).standard_normal(200)
    assert drawn_test(0.5, draws + 0.5)[2] == 2 * (1 + (draws <= -0.5).sum()) / 201
    assert drawn_test(6.0, draws + 6)[2] == pytest.approx(math.erfc(6 / math.sqrt(2)), rel=5)
    assert drawn_test(0.0, draws)[2] == 1.0


def test_other_ids_are_refused_and_another_order_is_not():
    a, b = pair(n=50)
    mixed = b.take(np.random.default_rng(0).permutation(50))
    found = confide.compare(a, mixed, metrics=["nll"], resamples=20)[0]
    assert found.difference == pytest.approx(float(metrics.nll(b)) - float(metrics.nll(a)))
    with pytest.raises(InputError, match="ids of 'b' differ"):
        confide.compare(a, Predictions(b.logits, b.labels, ids=np.arange(1, 51)))
    with pytest.raises(InputError, match="same labels"):
        confide.compare(a, Predictions(b.logits, (b.labels + 1) % 4))
    with pytest.raises(InputError, match="at least two"):
        confide.compare({"a": a})
    with pytest.raises(InputError, match="cannot be compared"):
        confide.compare(a, b, metrics=["confidence_gap"])


def test_classwise_error_is_compared():
    a, b = pair(n=300)
    found = confide.compare(a, b, metrics=["classwise_ece"])[0]
    assert found.difference == pytest.approx(float(metrics.classwise_ece(b)) - float(metrics.classwise_ece(a)))
    assert found.better == "b"
    assert found.low <= found.difference <= found.high < 0
    same = confide.compare(a, a, metrics=["classwise_ece"])[0]
    assert same.p_value == 1.0


def test_a_change_of_scale_does_not_hide_a_better_ranking():
    generator = np.random.default_rng(3)
    n = 1500
    correct = generator.random(n) < 0.8
    labels = np.zeros(n, dtype=int)
    prediction = np.where(correct, 0, 1)
    signal = correct + generator.normal(size=n)
    noisy = signal + 1.2 * generator.normal(size=n)

    def said(values, sharpness):
        return Predictions.from_top1(labels, prediction, 0.5 + 0.5 / (1 + np.exp(-sharpness * values)))

    def p_of(rows):
        return next(row.p_value for row in rows if row.metric == "auroc")

    same = p_of(confide.compare(said(noisy, 1.0), said(signal, 1.0), metrics=["auroc"], resamples=200))
    other = p_of(confide.compare(said(noisy, 1.0), said(signal, 0.01), metrics=["auroc"], resamples=200))
    assert same < 0.01
    assert other == pytest.approx(same, abs=1e-9)


@pytest.mark.parametrize(
    ("difference", "variance", "p"), [(0.1, 0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0), (0.1, 1e-30, 0.0)]
)
def test_a_difference_that_nothing_varies_is_not_tested(difference, variance, p):
    assert student_tail(difference, Spread(variance, 7.0, 8.0)) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("freedom", [1.0, 3.0, 12.0, 400.0])
def test_the_tail_of_a_difference_is_that_of_student(freedom):
    for deviations in (0.1, 1.0, 2.5, 6.0):
        found = student_tail(-deviations * 0.2, Spread(0.04, freedom, 9.0))
        assert found == pytest.approx(2 * stats.t.sf(deviations, freedom), rel=0.25 if freedom < 2 else 0.05)
