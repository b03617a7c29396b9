"""temperature: the optimum to 1e-8, any scale, both bounds, the papers' grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from confide import Predictions, calibrators
from confide.calibrators.temperature_scaling import TemperedRows


def test_golden_vector(val, test, golden):
    expected = golden("temperature_scaling")
    calibrator = calibrators.fit("temperature", val)
    assert calibrator.temperature == pytest.approx(float(expected["T_nll_continuous"]), rel=1e-6)
    probs = torch.softmax(calibrator(test).logits, dim=1).numpy()
    np.testing.assert_allclose(probs, expected["test_probs_T_nll_continuous"], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("T_grid_ece_torr", {}),
        ("T_grid_nll_torr", {"criterion": "nll"}),
        ("T_grid_ece_em", {"binning": "mass"}),
    ],
)
def test_grid_is_that_of_the_papers(val, golden, key, options):
    calibrator = calibrators.fit("temperature", val, search="grid", **options)
    assert calibrator.temperature == pytest.approx(float(golden("temperature_scaling")[key]), abs=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1.0, 1e4, 1e20])
def test_recovers_the_temperature_at_any_scale(unit, made):
    logits, labels = made(6000, 5, seed=3)
    calibrator = calibrators.fit("temperature", Predictions(logits * 2.5 * unit, labels))
    assert calibrator.temperature / unit == pytest.approx(2.5, rel=0.05)
    assert not calibrator.notes
    reference = calibrators.fit("temperature", Predictions(logits * 2.5, labels)).temperature
    assert calibrator.temperature / unit == pytest.approx(reference, rel=1e-8)


def test_the_slope_is_zero_to_1e_8_at_the_temperature_found(made):
    logits, labels = made(5000, 20, seed=8)
    value = calibrators.fit("temperature", Predictions(3 * logits, labels)).temperature
    log_scale = torch.tensor(-np.log(value), dtype=torch.float64, requires_grad=True)
    loss = functional.cross_entropy(3 * logits * log_scale.exp(), labels)
    (slope,) = torch.autograd.grad(loss, log_scale, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, log_scale)
    assert abs(float(slope.detach() / curvature)) < 1e-8


def test_float32_gives_the_temperature_of_float64(made):
    logits, labels = made(5000, 50, seed=5)
    wide = calibrators.fit("temperature", Predictions(logits, labels)).temperature
    assert calibrators.fit("temperature", Predictions(logits.float(), labels)).temperature == pytest.approx(wide, 1e-6)


def test_a_large_offset_of_a_row_changes_nothing(made):
    logits, labels = made(1000, 10, seed=5)
    offset = torch.linspace(-1e6, 1e6, 1000, dtype=torch.float64)[:, None]
    plain = calibrators.fit("temperature", Predictions(logits, labels)).temperature
    assert calibrators.fit("temperature", Predictions(logits + offset, labels)).temperature == pytest.approx(
        plain, 1e-8
    )


def test_all_correct_runs_to_the_lower_bound_and_says_so(made):
    logits, _ = made(500, 4, seed=1)
    calibrator = calibrators.fit("temperature", Predictions(logits, logits.argmax(dim=1)))
    assert 0 < calibrator.temperature < 0.1
    assert any("T ran to 0" in note for note in calibrator.notes)
    assert any("every validation prediction is right" in note for note in calibrator.notes)
    assert torch.isfinite(calibrator(Predictions(logits, logits.argmax(dim=1))).logits).all()


def test_useless_logits_run_to_the_upper_bound_and_say_so(made):
    logits, _ = made(500, 4, seed=1)
    calibrator = calibrators.fit("temperature", Predictions(logits, logits.argmin(dim=1)))
    assert calibrator.temperature > 100
    assert any("T ran to infinity" in note for note in calibrator.notes)


def test_constant_logits_keep_temperature_one():
    assert calibrators.fit("temperature", Predictions(torch.zeros(50, 3), torch.arange(50) % 3)).temperature == 1.0


def test_neighbouring_floats_keep_their_order(made):
    base = torch.tensor(1.0)
    logits = torch.stack([base, torch.nextafter(base, torch.tensor(2.0))]).repeat(200, 1)
    calibrator = calibrators.fit("temperature", Predictions(*made(400, 2, seed=2)))
    assert bool((calibrator(Predictions(logits, torch.ones(200))).logits.argmax(dim=1) == 1).all())


@pytest.mark.parametrize("seed", range(20))
def test_a_few_separable_samples_do_not_break_the_search(seed):
    logits = torch.randn(14, 2, generator=torch.Generator().manual_seed(seed))
    right = calibrators.fit("temperature", Predictions(logits, logits.argmax(1)))
    assert 0 < right.temperature < 1
    assert "every validation prediction is right" in right.notes[0]
    wrong = calibrators.fit("temperature", Predictions(logits, 1 - logits.argmax(1)))
    assert wrong.temperature > 1


@pytest.mark.parametrize("criterion", ["nll", "squares"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_slopes_of_the_search_are_those_of_its_loss(criterion, weighted, made):
    """At scales on both sides of the best: what the search steps by is what it looks for."""
    logits, labels = made(60, 4, seed=5)
    weights = np.linspace(0.5, 1.5, 60) if weighted else None
    moments = TemperedRows(logits.double(), labels, weights).moments_of(criterion)
    for scale in (0.2, 1.0, 3.0):
        value, slope, curvature = moments(scale)
        below, above = (moments(scale * np.exp(step)) for step in (-1e-4, 1e-4))
        assert slope == pytest.approx((above[0] - below[0]) / 2e-4, rel=1e-5, abs=1e-7)
        assert curvature == pytest.approx((above[1] - below[1]) / 2e-4, rel=1e-5, abs=1e-7)
        shares = torch.softmax(scale * logits.double(), dim=1)
        wrong = shares - functional.one_hot(labels, 4)
        each = -shares.gather(1, labels[:, None]).log().squeeze(1) if criterion == "nll" else (wrong**2).sum(dim=1)
        assert value == pytest.approx(float((each * (1 if weights is None else torch.from_numpy(weights))).mean()))
