"""Estimates without labels: right where their assumption holds, and drift that keeps its level."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import confide
from confide.checks import InputError
from confide.monitor.estimates import AccuracyEstimate, WatchBatch, WatchReference


def drawn(rng, n: int, *, spread: float = 2.0, noise: float = 0.0, difficulty: bool = False) -> confide.Predictions:
    """Labels drawn from the model's own probabilities; `noise` of them are then drawn anew."""
    logits = spread * rng.normal(size=(n, 5))
    probs = np.exp(logits)
    probs /= probs.sum(1, keepdims=True)
    labels = (rng.random((n, 1)) > probs.cumsum(1)).sum(1)
    hard = rng.random(n) < noise
    labels = np.where(hard, rng.integers(0, 5, n), labels)
    columns = {"difficulty": rng.normal(size=n) + 3 * hard} if difficulty else {}
    return confide.Predictions(logits, labels, columns=columns)


def accuracy(p: confide.Predictions) -> float:
    return float(p.facts.correct.double().mean())


def test_intervals_cover_the_batch_where_calibration_holds():
    """Harder samples, told by lower confidence: mean confidence and the difference cover the accuracy of a batch."""
    rng = np.random.default_rng(0)
    inside = {"confidence": 0, "difference": 0}
    for _ in range(100):
        reference = WatchReference.of(drawn(rng, 1000))
        batch = drawn(rng, 500, spread=1.5)
        for estimate in reference.estimates(WatchBatch.of(batch)):
            if estimate.method in inside:
                inside[estimate.method] += estimate.low <= accuracy(batch) <= estimate.high
    assert min(inside.values()) >= 88


def test_atc_is_the_share_above_the_threshold_of_the_reference():
    rng = np.random.default_rng(1)
    p = drawn(rng, 2000)
    reference = WatchReference.of(p)
    found = {e.method: e.value for e in reference.estimates(WatchBatch.of(p))}
    assert found["atc"] == pytest.approx(accuracy(p), abs=1e-3)
    assert found["difference"] == pytest.approx(accuracy(p))
    assert found["confidence"] == pytest.approx(float(p.facts.confidence.double().mean()))


def test_difficulty_tells_what_confidence_does_not():
    """A third of the labels become noise, confidence stays: only the estimate that knows difficulty follows."""
    rng = np.random.default_rng(2)
    reference = WatchReference.of(drawn(rng, 4000, noise=0.1, difficulty=True))
    batch = drawn(rng, 4000, noise=0.4, difficulty=True)
    found = {e.method: e for e in reference.estimates(WatchBatch.of(batch))}
    error = {name: abs(e.value - accuracy(batch)) for name, e in found.items()}
    assert error["confidence"] > 0.15
    assert error["difficulty"] < 0.6 * min(error["confidence"], error["atc"], error["difference"])


def test_the_regression_on_shifted_cells_leads_and_covers_new_ones():
    rng = np.random.default_rng(3)
    levels = np.linspace(0, 0.6, 20)
    cells = [drawn(rng, 800, noise=level, difficulty=True) for level in levels]
    reference = WatchReference.of(drawn(rng, 2000, noise=0.05, difficulty=True), cells)
    covered = 0
    for level in rng.uniform(0, 0.6, 20):
        batch = drawn(rng, 800, noise=level, difficulty=True)
        estimate = reference.estimates(WatchBatch.of(batch))[0]
        assert estimate.method == "regression"
        assert abs(estimate.value - accuracy(batch)) < 0.08
        covered += estimate.low <= accuracy(batch) <= estimate.high
    assert covered >= 16


@pytest.mark.parametrize("move", [-1.0, -0.4, 0.0, 0.6])
def test_the_ece_without_labels_is_that_with_labels_where_all_chances_moved_alike(move):
    rng = np.random.default_rng(7)
    confidence = rng.beta(5, 1.2, 40_000)
    right = rng.random(40_000) < expit(logit(confidence) + move)
    reference = WatchReference.of(confide.Predictions.from_pairs(rng.random(40_000) < confidence, confidence))
    batch = WatchBatch(confidence)
    known = AccuracyEstimate("labels", right.mean(), right.mean() - 0.01, right.mean() + 0.01)
    found = reference.calibration_error(batch, known)
    truth = float(confide.metrics.debiased_ece(confide.Predictions.from_pairs(right, confidence), norm=1))
    assert found.value == pytest.approx(truth, abs=0.004)
    assert found.low <= found.value <= found.high
    # As wide as the accuracy's, and from 0 on where that holds the confidence.
    assert found.high - found.low == pytest.approx(0.02 if move else found.high, abs=1e-3)
    assert found.low == pytest.approx(0.0, abs=1e-3) or move


def test_the_ece_without_labels_knows_what_difficulty_tells_of_the_reference():
    """Two fifths of the labels are noise, in the reference too, and difficulty tells which."""
    rng = np.random.default_rng(8)
    reference = WatchReference.of(drawn(rng, 4000, noise=0.4, difficulty=True))
    batch = drawn(rng, 4000, noise=0.4, difficulty=True)
    found = reference.calibration_error(WatchBatch.of(batch), reference.estimates(WatchBatch.of(batch))[0])
    truth = float(confide.metrics.debiased_ece(batch, norm=1))
    assert truth > 0.15
    assert found.value == pytest.approx(truth, abs=0.03)
    assert found.low < truth < found.high


def test_other_class_shares_are_not_taken_for_hardness():
    """Clean batches of all kinds of class shares, after lessons from cells in which one class swallows the others."""
    rng = np.random.default_rng(6)

    def batch(n: int, noise: float, shares: np.ndarray) -> confide.Predictions:
        labels = rng.choice(5, n, p=shares)
        sharp = np.array([4.4, 4.2, 4.0, 3.8, 3.6])[labels] * (1 - noise)
        logits = rng.normal(size=(n, 5)) + sharp[:, None] * np.eye(5)[labels]
        logits[:, 0] += 4 * noise  # a shifted network names one class
        return confide.Predictions(logits, labels)

    even = np.full(5, 0.2)
    cells = [batch(500, level, even) for level in np.linspace(0.1, 0.9, 24)]
    reference = WatchReference.of(batch(3000, 0.0, even), cells)
    errors, inside = [], 0
    for _ in range(20):
        clean = batch(1000, 0.0, rng.dirichlet(np.ones(5)))
        estimate = reference.estimates(WatchBatch.of(clean))[0]
        errors.append(abs(estimate.value - accuracy(clean)))
        inside += estimate.low <= accuracy(clean) <= estimate.high
    assert np.mean(errors) < 0.03
    assert inside >= 17
    shifted = batch(1000, 0.55, even)
    assert abs(reference.estimates(WatchBatch.of(shifted))[0].value - accuracy(shifted)) < 0.08


def test_cells_of_one_kind_of_shift_are_left_out_together():
    rng = np.random.default_rng(7)
    reference = drawn(rng, 1000, noise=0.05)
    levels = np.linspace(0, 0.6, 12)
    cells = [drawn(rng, 300, noise=level) for level in levels]
    of_two_kinds = [cell.with_column("shift", ["weak" if k < 6 else "strong"] * 300) for k, cell in enumerate(cells)]
    alone, together = (WatchReference.of(reference, some).by_cells for some in (cells, of_two_kinds))
    assert together.error > 1.1 * alone.error  # strong noise is told from weak noise alone


def test_drift_keeps_its_level_and_sees_a_change():
    rng = np.random.default_rng(4)
    reference = WatchReference.of(drawn(rng, 2000))
    small = {"confidence": 0, "classes": 0}
    for _ in range(150):
        for drift in WatchReference.of(drawn(rng, 500)).drift(WatchBatch.of(drawn(rng, 500))):
            small[drift.what] += drift.p_value < 0.05
    assert max(small.values()) <= 150 * 0.05 + 3 * (150 * 0.05 * 0.95) ** 0.5
    assert small["classes"] > 0
    moved = {d.what: d.p_value for d in reference.drift(WatchBatch.of(drawn(rng, 1000, spread=1.0)))}
    assert moved["confidence"] < 1e-6


def test_what_the_reference_has_its_batches_need():
    rng = np.random.default_rng(5)
    reference = WatchReference.of(drawn(rng, 200, difficulty=True))
    with pytest.raises(InputError, match="need one; add it"):
        reference.statistics(WatchBatch.of(drawn(rng, 100)))
    with pytest.raises(InputError, match="at least 50"):
        WatchReference.of(drawn(rng, 20))


def test_the_interval_of_an_estimate_is_that_of_so_many_draws():
    reference = WatchReference(10**9, 0.8, 0.8, 0.8, {}, (), (), (0.1, 0.1))
    by_method = {e.method: e for e in reference.estimates(WatchBatch(np.full(400, 0.8)))}
    for method in ("confidence", "difference"):
        estimate = by_method[method]
        assert estimate.value == pytest.approx(0.8)
        assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * np.sqrt(0.8 * 0.2 / 400), rel=1e-3)


def test_difficulty_counts_where_reference_and_batch_have_it():
    rng = np.random.default_rng(8)
    known, plain = drawn(rng, 200, difficulty=True), drawn(rng, 200)
    of_both = [
        {e.method for e in WatchReference.of(reference).estimates(WatchBatch.of(batch))}
        for reference in (known, plain)
        for batch in (known, plain)
    ]
    assert ["difficulty" in methods for methods in of_both] == [True, False, False, False]


def test_lessons_from_cells_are_the_same_every_time():
    rng = np.random.default_rng(9)
    reference, cells = drawn(rng, 400, noise=0.05), [drawn(rng, 200, noise=level) for level in np.linspace(0, 0.6, 12)]
    batch = WatchBatch.of(drawn(rng, 500, noise=0.3))
    estimate = WatchReference.of(reference, cells).estimates(batch)[0]
    assert (estimate.method, estimate.value) == ("regression", pytest.approx(0.582607, abs=1e-5))
