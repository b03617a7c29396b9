"""What must hold for every input: equality with plain formulas, invariances, degenerate samples."""

import math

import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from confide import Predictions, metrics
from confide.metrics import METRICS
from confide.metrics.calibration import Binned, cosines
from confide.metrics.view import Design, View, harmonic, metric_samples
from confide.numerics.binning import calibration_error

RANKING = ("aurc", "eaurc", "augrc", "auroc", "aupr_success", "aupr_error", "fpr95", "halving_rejection")


def same(found, wanted, tolerance=1e-10):
    if math.isnan(wanted):
        assert math.isnan(float(found))
    else:
        assert float(found) == pytest.approx(wanted, abs=tolerance)


@st.composite
def top_one(draw):
    """Confidences on a coarse grid (many ties, bin edges, 0 and 1) or anywhere, with right and wrong."""
    n = draw(st.integers(1, 40))
    grid = draw(st.sampled_from([2, 4, 15, 1000003]))
    steps = draw(st.lists(st.integers(0, grid), min_size=n, max_size=n))
    correct = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return np.array(steps) / grid, np.array(correct)


def record(confidence, correct):
    return Predictions.from_top1(np.zeros(len(correct)), (~correct).astype(int), confidence)


@settings(max_examples=150, deadline=None)
@given(top_one(), st.integers(1, 20))
def test_metrics_equal_the_plain_formulas(case, bins):
    confidence, correct = case
    predictions = record(confidence, correct)
    for norm in (1, 2, "max"):
        for closed in ("right", "left"):
            found = metrics.ece(predictions, bins=bins, norm=norm, closed=closed)
            same(found, naive.ece_width(confidence, correct, bins, closed, norm))
        found = metrics.ece(predictions, bins=bins, norm=norm, binning="mass")
        same(found, naive.ece_mass(confidence, correct, bins, norm))
    same(metrics.mce(predictions, bins=bins), naive.ece_width(confidence, correct, bins, norm="max"))
    same(metrics.aurc(predictions), naive.aurc(confidence, correct))
    same(metrics.auroc(predictions), naive.auroc(confidence, correct))
    same(metrics.augrc(predictions), naive.augrc(confidence, correct))
    same(metrics.aupr_success(predictions), naive.average_precision(confidence, correct))
    same(metrics.aupr_error(predictions), naive.average_precision(-confidence, ~correct))
    same(metrics.fpr95(predictions), naive.fpr_at_tpr(confidence, correct))


@pytest.mark.parametrize("bins", [255, 256, 257, 700])
def test_bins_are_numbered_in_as_many_bits_as_they_need(bins):
    rng = np.random.default_rng(bins)
    confidence = np.append(rng.random(3000), np.arange(bins + 1) / bins)
    correct = rng.random(len(confidence)) < confidence
    predictions, unit = record(confidence, correct), rng.permutation(np.arange(len(confidence)) % 400)
    for norm in (1, 2, "max"):
        for closed in ("right", "left"):
            found = metrics.ece(predictions, bins=bins, norm=norm, closed=closed)
            same(found, naive.ece_width(confidence, correct, bins, closed, norm))
        found = metrics.ece(predictions, bins=bins, norm=norm, binning="mass")
        same(found, naive.ece_mass(confidence, correct, bins, norm))
    # Cells of a unit and a bin are numbered together.
    binned = Binned.of(View(metric_samples(predictions, design=Design(clusters=unit))), bins, "width")
    place = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence) - 1, 0, None)
    sums = np.zeros((unit.max() + 1, bins))
    np.add.at(sums, (unit, place), confidence - correct)
    np.testing.assert_allclose(binned.unit_sums(binned.residual), sums, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_rankings_made_part_by_part_equal_the_plain_formulas(at_once, monkeypatch):
    """Ties end, begin and lie across the parts; runs of right and of wrong samples do too."""
    monkeypatch.setattr("confide.metrics.view.SEGMENTS", at_once)
    rng = np.random.default_rng(at_once)
    for grid in (2, 6, 40, 1 << 20):
        confidence = rng.integers(0, grid + 1, 90) / grid
        correct = rng.random(90) < 0.2 + 0.7 * confidence
        predictions = record(confidence, correct)
        same(metrics.aurc(predictions), naive.aurc(confidence, correct))
        same(metrics.auroc(predictions), naive.auroc(confidence, correct))
        same(metrics.augrc(predictions), naive.augrc(confidence, correct))
        same(metrics.aupr_success(predictions), naive.average_precision(confidence, correct))
        same(metrics.aupr_error(predictions), naive.average_precision(-confidence, ~correct))


def test_ranks_are_counted_in_as_many_bits_as_they_need():
    """Of more samples than 16 bits hold, in one tie and without any."""
    rng = np.random.default_rng(0)
    for confidence in (np.full(70_000, 0.5), np.linspace(0, 1, 70_000)):
        correct = rng.random(70_000) < 0.9
        ranks = View(metric_samples(record(confidence, correct))).ranks("msp")
        assert (ranks.n, ranks.wrong) == (70_000, (~correct).sum())


@settings(max_examples=60, deadline=None)
@given(top_one(), st.floats(0, 1), st.floats(0.01, 1))
def test_risk_and_coverage_equal_the_plain_formulas(case, risk, coverage):
    confidence, correct = case
    predictions, n = record(confidence, correct), len(correct)
    shares = [0.0]
    for value in np.unique(confidence):
        inside = confidence >= value
        if (~correct[inside]).sum() <= risk * inside.sum() * (1 + 1e-12):
            shares.append(inside.mean())
    same(metrics.coverage_at_risk(predictions, risk=risk), max(shares))
    wanted = max(1, math.ceil(coverage * n * (1 - 1e-12) - 1e-9))
    expected, left = 0.0, wanted
    for value in np.unique(confidence)[::-1]:
        tied = confidence == value
        take = min(left, tied.sum())
        expected, left = expected + take * (~correct[tied]).mean(), left - take
    same(metrics.risk_at_coverage(predictions, coverage=coverage), expected / wanted)


@settings(max_examples=40, deadline=None)
@given(top_one())
def test_augrc_identity_with_auroc(case):
    confidence, correct = case
    predictions = record(confidence, correct)
    accuracy, auroc = correct.mean(), float(metrics.auroc(predictions))
    first = 0.0 if math.isnan(auroc) else (1 - auroc) * accuracy * (1 - accuracy)
    same(metrics.augrc(predictions), first + (1 - accuracy) ** 2 / 2)


@settings(max_examples=40, deadline=None)
@given(top_one(), st.randoms(use_true_random=False))
def test_order_of_the_samples_does_not_matter(case, random):
    confidence, correct = case
    order = list(range(len(correct)))
    random.shuffle(order)
    before, after = record(confidence, correct), record(confidence[order], correct[order])
    for word in (*RANKING, "accuracy", "ece", "mce", "smooth_ece", "confidence_gap"):
        same(getattr(metrics, word)(after), float(getattr(metrics, word)(before)), 1e-9)


def logits_and_labels(n=300, classes=7, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return logits.to(dtype), labels


WHOLE = [word for word in METRICS.names() if word != "kde_ece"]


@pytest.mark.parametrize("word", [*WHOLE, "kde_ece"])
def test_adding_a_constant_to_the_logits_changes_nothing(word):
    logits, labels = logits_and_labels()
    metric = getattr(metrics, word)
    before, after = metric(Predictions(logits, labels)), metric(Predictions(logits + 100.0, labels))
    assert float(after) == pytest.approx(float(before), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("word", WHOLE)
def test_float32_logits_give_the_float64_values(word):
    logits, labels = logits_and_labels(n=2000, dtype=torch.float32)
    metric = getattr(metrics, word)
    low, high = metric(Predictions(logits, labels)), metric(Predictions(logits.double(), labels))
    assert float(low) == pytest.approx(float(high), rel=2e-5, abs=1e-6)


def test_very_sure_float32_predictions_keep_their_ranking():
    """In float32 all these confidences round to 1; their ranking is still that of float64."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.zeros(500, 3)
    logits[:, 0] = 18 + 12 * torch.rand(500, generator=generator)
    labels = (torch.rand(500, generator=generator) < 0.3).long()
    exact = Predictions(logits.double(), labels)
    rounded = Predictions(logits, labels)
    assert float(rounded.facts.confidence.min()) == 1.0
    for word in ("aurc", "auroc", "aupr_error", "fpr95"):
        assert float(getattr(metrics, word)(rounded)) == pytest.approx(float(getattr(metrics, word)(exact)), abs=1e-4)


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("bins", [1, 3, 15, 100])
def test_classwise_error_equals_a_loop_over_classes(bins, closed):
    logits, labels = logits_and_labels()
    probs = naive.softmax(logits.numpy())
    wanted = [naive.ece_width(probs[:, k], labels.numpy() == k, bins, closed) for k in range(probs.shape[1])]
    same(metrics.classwise_ece(Predictions(logits, labels), bins=bins, closed=closed), np.mean(wanted))


def test_classwise_mass_error_equals_a_loop_over_classes():
    logits, labels = logits_and_labels()
    probs = naive.softmax(logits.numpy())
    wanted = [naive.ece_mass(probs[:, k], labels.numpy() == k, 10) for k in range(probs.shape[1])]
    same(metrics.classwise_ece(Predictions(logits, labels), bins=10, binning="mass"), np.mean(wanted))


def test_smooth_error_is_where_the_smoothed_error_equals_its_width():
    generator = np.random.default_rng(3)
    confidence = np.concatenate([generator.random(40), [0.0, 1.0, 1.0]])
    correct = generator.random(43) < confidence * 0.8
    width = float(metrics.smooth_ece(record(confidence, correct)))
    assert naive.smooth_error(confidence, correct, width) == pytest.approx(width, abs=1e-5)


@pytest.mark.parametrize("word", METRICS.names())
@pytest.mark.parametrize("labels", ["right", "wrong"])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_all_correct_all_wrong_and_few_samples_are_defined(word, labels, n):
    logits, _ = logits_and_labels(n=n)
    said = logits.argmax(dim=1)
    predictions = Predictions(logits, said if labels == "right" else (said + 1) % 7)
    value = float(getattr(metrics, word)(predictions))
    low, high = METRICS.get(word).spec.range
    assert math.isnan(value) or low - 1e-12 <= value <= high + 1e-12


def test_values_of_one_sample():
    predictions = Predictions.from_top1([0], [0], np.array([0.8]))
    for word, wanted in (("accuracy", 1.0), ("ece", 0.2), ("mce", 0.2), ("smooth_ece", 0.2), ("aurc", 0.0)):
        same(getattr(metrics, word)(predictions), wanted)
    assert math.isnan(float(metrics.auroc(predictions)))
    assert math.isnan(float(metrics.aupr_error(predictions)))
    same(metrics.aupr_success(predictions), 1.0)


def test_confidence_of_exactly_one_is_in_the_last_bin():
    predictions = Predictions.from_probs([[0.0, 1.0], [1.0, 0.0]], [1, 1])
    assert float(metrics.ece(predictions)) == 0.5
    assert float(metrics.ece(predictions, closed="left")) == 0.5


def test_a_rounded_probability_stays_on_its_bin_edge():
    """0.6 is the edge 9/15 and belongs below it, also in float32 and although logarithms would move it."""
    for kind in (np.float32, np.float64):
        probs = np.array([[0.6, 0.4], [0.62, 0.38]], dtype=kind)
        sums = metrics.ece(Predictions.from_probs(probs, [0, 1]))
        # alone in their bins: (|0.6 - 1| + |0.62 - 0|) / 2
        assert float(sums) == pytest.approx((0.4 + 0.62) / 2, abs=1e-6)


def test_ruled_out_classes_have_zero_probability():
    logits = torch.tensor([[0.0, 1.0, -math.inf], [2.0, 0.0, -math.inf]])
    facts = Predictions(logits, [1, 0]).facts
    two = Predictions(logits[:, :2], [1, 0]).facts
    torch.testing.assert_close(facts.entropy, two.entropy)
    torch.testing.assert_close(facts.brier, two.brier)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_calibration_error_of_arrays_is_that_of_the_metric(binning, bins):
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(500, 4, generator=generator, dtype=torch.float64)
    record = Predictions(logits, torch.randint(4, (500,), generator=generator))
    confidence, correct = record.facts.confidence.double().numpy(), record.facts.correct.numpy()
    expected = float(metrics.ece(record, bins=bins, binning=binning))
    assert calibration_error(confidence, correct, bins, binning) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("score", "corner"), [([0.5, 0.5, 0.5], 1.0), ([0.9, 0.9, 0.1], 1.0), ([0.1, 0.9, 0.9], 0.0)])
def test_scores_that_are_all_equal_have_a_corner_of_the_curve_too(score, corner):
    """The curve of one segment ends in a traceback no more; of two, its middle is a corner."""
    predictions = Predictions.from_pairs([0, 1, 1], score)
    assert metrics.fpr95(predictions, form="corner").value == corner


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_harmonic_sums_and_cosines_of_a_grid_are_those_of_their_definition(n):
    assert harmonic.__wrapped__(n).tolist() == pytest.approx(
        [sum(1 / j for j in range(1, k + 1)) for k in range(n + 1)]
    )
    places = (0, 1, 3, 8)
    wanted = [[math.cos(math.pi * k * j / 8) for j in places] for k in range(n)]
    assert cosines.__wrapped__(n, 8, places).tolist() == [pytest.approx(row, abs=1e-12) for row in wanted]
