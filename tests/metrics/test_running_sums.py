"""Sums kept for some samples only, and sums over bins made part by part."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

import confide
from confide.facts import facts_of
from confide.metrics import view
from confide.metrics.calibration import Smoother
from confide.metrics.classwise_calibration import energies
from confide.metrics.view import FROM_SERIES, RunningSums, harmonic, harmonic_at


@pytest.mark.parametrize("n", [1, 255, 1000, 2048])
def test_sums_kept_for_one_in_256_are_those_of_all(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(n).random(n)
    exact = np.append(0.0, values.cumsum())
    at = np.unique([0, 1, n // 3, n // 2, max(n - 1, 0), n])
    assert np.array_equal(RunningSums(lambda rows: values[rows], n).at(at), exact[at])
    if n > 512:
        monkeypatch.setattr(view, "MANY_SAMPLES", 512)
        assert np.allclose(RunningSums(lambda rows: values[rows], n).at(at), exact[at], rtol=1e-13)


def test_harmonic_numbers_by_their_series_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([0, 1, 2, FROM_SERIES - 1, FROM_SERIES, FROM_SERIES + 1, 1000, 5000], dtype=np.float64)
    table = harmonic_at(counts, 5000)
    assert np.array_equal(table, harmonic(5000)[counts.astype(int)])
    monkeypatch.setattr(view, "MANY_SAMPLES", 100)
    assert np.allclose(harmonic_at(counts, 5000), table, rtol=1e-14, atol=0)


@pytest.mark.parametrize("width", [0.005, 0.02, 0.3, 2.0])
def test_a_smoothed_curve_at_some_points_is_the_curve_there(width: float) -> None:
    masses = np.random.default_rng(0).normal(size=(2, 4001))
    places, smoother = np.array([0, 1, 77, 2000, 3999, 4000]), Smoother(masses)
    assert np.allclose(smoother.at(places, width), smoother.curve(width)[:, places], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["plain", "tied", "weighted"])
def test_a_metric_of_many_samples_made_part_by_part_is_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(2000, 5)) * 2, rng.integers(0, 5, 2000)
    logits = logits.round() if kind == "tied" else logits
    weights = rng.random(2000) if kind == "weighted" else None

    def rows() -> list[tuple[object, ...]]:
        evaluation = confide.evaluate(confide.Predictions(logits, labels, weights=weights), seed=3)
        return [(m.metric, m.group, m.score, m.value, m.low, m.high, m.p_value) for m in evaluation.measurements]

    whole = rows()
    for name in ("confide.metrics.view", "confide.metrics.calibration", "confide.evaluation.evaluate"):
        monkeypatch.setattr(import_module(name), "MANY_SAMPLES", 512)
    for one, other in zip(whole, rows(), strict=True):
        assert one[:3] == other[:3]
        assert np.allclose(
            np.array(one[3:], dtype=float), np.array(other[3:], dtype=float), rtol=1e-9, atol=1e-12, equal_nan=True
        ), one[:3]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_the_core_facts_tell_the_energy(kind: torch.dtype) -> None:
    logits = (3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0))).to(kind)
    core, every = (facts_of(logits, None, core=core) for core in (True, False))
    assert core.energy is None
    found = energies(logits[10:30], core, slice(10, 30))
    assert every.energy is not None
    assert torch.allclose(found, every.energy[10:30], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_many_samples_take_little_memory_beside_their_logits() -> None:
    from benchmarks.speed.metrics import extra_memory

    assert extra_memory(4_000_000, 10, "default") < 1.7 * 160
