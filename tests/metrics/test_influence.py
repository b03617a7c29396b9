"""Intervals by theory: influence values against the bootstrap, designs of samples, values inside their intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, metrics
from confide.metrics import classwise_calibration, influence
from confide.metrics.base import METRICS
from confide.metrics.calibration import Binned
from confide.metrics.influence import Influence, spread_of
from confide.metrics.resampling import bootstrap
from confide.metrics.view import Design, MetricSamples, View, metric_samples

BY_THEORY = sorted(method.word for method in METRICS if method.spec.influence is not None)
OPTIONS = {"tpr": {"threshold": 0.8}, "tnr": {"threshold": 0.8}}
WITHIN = {"halving_rejection": 0.3, "coverage_at_risk": 0.3, "fpr95": 0.3}
"""How far the two spreads may differ where an estimate jumps from one place of the ranking to another."""


def simulated(n=1500, seed=0, num_classes=3, ties=False, sharpness=1.5):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return Predictions((2 * logits).round() / 2 * sharpness if ties else sharpness * logits, labels)


@pytest.mark.parametrize("ties", [False, True])
def test_the_spread_is_that_of_the_bootstrap(ties):
    base = MetricSamples(simulated(ties=ties), resampled=True)
    words = [word for word in BY_THEORY if not METRICS.get(word).spec.whole and not METRICS.get(word).spec.costly]
    statistics = [lambda view, word=word: METRICS.get(word).spec.value(view, **OPTIONS.get(word, {})) for word in words]
    for word, draws in zip(words, bootstrap(base, statistics, resamples=300), strict=True):
        method = METRICS.get(word)
        spread = spread_of(method.spec.influence(View(base), **OPTIONS.get(word, {})), Design())
        assert math.sqrt(spread.variance) == pytest.approx(draws.std(), rel=WITHIN.get(word, 0.15)), word


@pytest.mark.parametrize("options", [{}, {"binning": "mass"}, {"classes": "present"}])
def test_the_spread_of_class_wise_errors_is_that_of_the_bootstrap(options):
    base, method = MetricSamples(simulated(1000, num_classes=4, sharpness=2.5)), METRICS.get("classwise_ece")
    draws, _ = method.spec.resample(base, options, 0)
    spread = spread_of(method.spec.influence(View(base), **options), Design())
    assert math.sqrt(spread.variance) == pytest.approx(draws.std(), rel=0.15)


@pytest.mark.parametrize("how", [True, "bootstrap"])
@pytest.mark.parametrize("word", ["mce", "mce_mass"])
def test_the_largest_gap_has_a_chance_level_and_no_interval(word, how):
    (row,) = (row for row in confide.evaluate(simulated(400), [word], how).measurements if row.metric == word)
    assert math.isfinite(row.value)
    assert math.isfinite(row.chance)
    assert not any(map(math.isfinite, row.bounds))
    assert row.note == "no interval: the largest gap jumps from bin to bin"
    (difference,) = confide.compare({"a": simulated(400), "b": simulated(400, sharpness=3.0)}, metrics=[word])
    assert math.isfinite(difference.difference)
    assert math.isnan(difference.p_value)


def records():
    """Predictions at the edges: all right, all wrong, one sample, two, all tied, one error, one class of many."""
    logits = simulated(40).logits
    right, wrong = logits.argmax(1), (logits.argmax(1) + 1) % 3
    one_error = torch.where(torch.arange(40) == 7, wrong, right)
    yield from (Predictions(logits, labels) for labels in (right, wrong, one_error))
    yield from (Predictions(logits[:n], right[:n]) for n in (1, 2))
    yield Predictions(torch.zeros(30, 3), torch.arange(30) % 3)
    yield Predictions(60 * logits, right)
    yield simulated(25, num_classes=40)
    yield simulated(400, sharpness=1.0)


@pytest.mark.parametrize("word", sorted(METRICS.names()))
def test_the_printed_value_lies_inside_its_interval(word):
    for predictions in records():
        found = getattr(metrics, word)(predictions, **OPTIONS.get(word, {}))
        low, high = METRICS.get(word).spec.range
        if math.isfinite(found.value) and math.isfinite(found.low):
            assert low <= found.low <= found.value <= found.high <= max(high, found.value), predictions


@pytest.mark.parametrize("word", [word for word in BY_THEORY if word != "debiased_ece"])  # its value knows n
def test_copies_of_a_sample_that_were_drawn_as_one_add_nothing(word):
    """Every sample three times over: the interval stays where copies are one unit, and shrinks where they are not."""
    once = simulated(400)
    rows = np.repeat(np.arange(400), 3)
    copies = Predictions(once.logits[rows], once.labels[rows], columns={"image": rows})
    method, options = METRICS.get(word), OPTIONS.get(word, {})
    widths = []
    for predictions, design in ((once, Design()), (copies, Design(clusters=rows)), (copies, Design())):
        view = View(MetricSamples(predictions, resampled=True, design=design))
        widths.append(math.sqrt(spread_of(method.spec.influence(view, **options), design).variance))
    slack = 0.35 if word in WITHIN else 0.1  # ties of copies change a few ranks
    assert widths[1] == pytest.approx(widths[0], rel=slack)
    assert widths[2] < 0.75 * widths[1]


def test_a_unit_that_is_a_column_widens_the_interval_and_names_the_samples():
    rows = np.repeat(np.arange(100), 4)
    once = simulated(100)
    p = Predictions(once.logits[rows], once.labels[rows], columns={"image": rows})
    narrow, wide = (confide.evaluate(p, ["accuracy"], unit=unit).measurements[0] for unit in ("photos", "image"))
    assert wide.high - wide.low == pytest.approx(2 * (narrow.high - narrow.low), rel=0.05)
    assert confide.evaluate(p, ["accuracy"], intervals=False, unit="image").about.unit == "image"
    given = confide.evaluate(p, ["accuracy"], unit=rows).measurements[0]
    assert (given.low, given.high) == (wide.low, wide.high)


def test_neighbours_of_many_samples_are_one_step(monkeypatch):
    predictions = simulated(3000)
    words = ["aurc", "eaurc", "augrc", "auroc", "aupr_success", "aupr_error", "fpr95", "halving_rejection"]
    exact = confide.evaluate(predictions, words).measurements[: len(words)]
    monkeypatch.setattr(influence, "CELLS", 500)
    quick = confide.evaluate(simulated(3000), words).measurements[: len(words)]
    for one, other in zip(exact, quick, strict=True):
        assert one.value == other.value
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.03)


def test_few_errors_are_named():
    labels = simulated(200).logits.argmax(1)
    labels[:3] = (labels[:3] + 1) % 3
    found = confide.evaluate(Predictions(simulated(200).logits, labels), ["aurc", "accuracy"], score="msp").measurements
    assert [m.note for m in found[:2]] == ["too few errors (3)", None]
    assert metrics.aurc(Predictions(simulated(200).logits, labels)).note == "too few errors (3)"


def test_the_bootstrap_stays_as_a_reference():
    p = simulated(300)
    theory, drawn = (confide.evaluate(p, ["accuracy", "aurc", "ece"], intervals=how) for how in (True, "bootstrap"))
    for one, other in zip(theory.measurements[:3], drawn.measurements[:3], strict=True):
        # A calibration error without what noise adds is centred otherwise.
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.6 if one.metric == "ece" else 0.3)
    with pytest.raises(
        confide.checks.InputError, match="intervals must be True, False or 'bootstrap', got 'jackknife'"
    ):
        confide.evaluate(p, intervals="jackknife")


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("from_probs", [False, True])
def test_a_device_gives_the_signed_sums_of_the_host(closed, from_probs):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 7, generator=generator)
    energy = None if from_probs else torch.logsumexp(logits, dim=1)
    block = torch.softmax(logits, dim=1) if from_probs else logits
    signs = np.random.default_rng(0).uniform(-1, 1, (7, 15))
    found = classwise_calibration._signed_sums_on_device(block, energy, signs, 15, closed)
    np.testing.assert_allclose(found, classwise_calibration._signed_sums(block, energy, signs, 15, closed), atol=1e-6)


def test_ties_that_an_equal_mass_bin_parts_move_it_as_in_the_order_given():
    generator = torch.Generator().manual_seed(1)
    logits = (2 * torch.randn(900, 3, generator=generator)).round()
    labels = torch.where(torch.rand(900, generator=generator) < 0.6, logits.argmax(1), 0)
    packed = metric_samples(Predictions(logits, labels))
    kept = replace(packed, resampled=True, _sorted={}, _vectors={})
    assert packed.ordered("msp").order is None
    sums = [Binned._of(View(base), 7, "mass", "right", "rank") for base in (packed, kept)]
    for values in ("residual", "sure"):
        first, second = (part.sums(getattr(part, values)) for part in sums)
        np.testing.assert_allclose(first, second, atol=1e-9)
    assert list(packed.parted_ties(packed.positions("mass", 7, "right")))


def freedom_by_hand(of_errors, rest, errors, right):
    return (of_errors + rest) ** 2 / (of_errors**2 / max(errors - 1, 0.5) + rest**2 / max(right - 1, 0.5))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_the_spread_of_a_mean_of_samples_drawn_alike_is_that_of_the_formula(n):
    psi, wrong = np.random.default_rng(n).normal(size=n), np.arange(n) % 3 == 0
    variance = float((psi**2).mean()) / max(n - 1, 1)
    plain = spread_of(Influence(psi, noise=0.25), Design())
    assert (plain.variance, plain.freedom, plain.units) == pytest.approx((variance + 0.25, max(n - 1, 1), n))
    kinds = spread_of(Influence(psi, share=np.full(n, 1 / n), counts=(n, 0)), Design())
    assert (kinds.variance, kinds.freedom, kinds.units) == pytest.approx((variance, max(n - 1, 1), n))
    few = spread_of(Influence(psi, errors=wrong), Design())
    parts = (psi[wrong] ** 2).sum() / n, (psi[~wrong] ** 2).sum() / n, wrong.sum(), (~wrong).sum()
    assert (few.variance, few.freedom) == pytest.approx((variance, freedom_by_hand(*parts)))
    # Without a spread at all there is nothing to share out between errors and right samples.
    assert spread_of(Influence(np.zeros(n), errors=wrong), Design()).freedom == max(n - 1, 1)


@pytest.mark.parametrize(
    ("strata", "clusters", "weights"),
    [
        ([0, 0, 0, 1, 1, 1, 1], None, None),
        ([0, 0, 0, 0, 0, 0, 1], None, None),  # a part of one sample has no spread of its own
        (None, [0, 0, 1, 1, 2, 2, 2], None),
        (None, [5, 5, 5, 5, 5, 5, 9], None),
        (None, None, [1, 1, 1, 1, 1, 1, 3]),
        ([0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 3, 3], [1, 2, 3, 4, 3, 2, 1]),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_the_spread_of_parts_units_and_weights_is_that_of_the_formula(strata, clusters, weights, counted):
    psi = np.random.default_rng(1).normal(size=7)
    wrong = np.array([True, False, False, True, False, True, False])
    share = np.full(7, 1 / 7) if weights is None else np.array(weights) / sum(weights)
    unit = np.arange(7) if clusters is None else np.array(clusters)
    part = np.zeros(7, dtype=int) if strata is None else np.array(strata)
    whole, variance, free = {}, 0.0, 0
    for stratum in set(part.tolist()):
        sums = {k: float((psi * share)[unit == k].sum()) for k in set(unit[part == stratum].tolist())}
        m, values = len(sums), np.array(list(sums.values()))
        variance += m / max(m - 1, 1) * float(((values - values.mean()) ** 2).sum())
        free, whole = free + m - 1, whole | sums
    masses = np.array([share[unit == k].sum() for k in whole])
    worth = 1 / float((masses**2).sum()) if weights is not None else len(whole) if clusters is not None else math.inf
    freedom = max(min(free, worth - 1), 1)
    if counted:
        hit = {k: bool(wrong[unit == k].any()) for k in whole}
        of_errors, rest = (sum(v**2 for k, v in whole.items() if hit[k] == side) for side in (True, False))
        freedom = min(freedom, freedom_by_hand(of_errors, rest, sum(hit.values()), len(hit) - sum(hit.values())))
    to_array = {"strata": part if strata else None, "clusters": unit if clusters else None}
    design = Design(None if weights is None else 7 * share, **to_array)
    found = spread_of(Influence(psi, errors=wrong if counted else None, noise=0.5), design)
    assert found.variance == pytest.approx(variance + 0.5)
    assert found.freedom == pytest.approx(freedom)
    assert found.units == pytest.approx(min(7.0, worth))


@pytest.mark.parametrize("n", [1, 4, 5, 8, 9])
def test_influence_made_some_samples_at_a_time_is_that_of_all_at_once(n, monkeypatch):
    values = np.random.default_rng(0).normal(size=n)
    monkeypatch.setattr(influence, "MANY_SAMPLES", 4)
    asked = []
    parts = influence.PartedInfluence.of(lambda rows: asked.append(rows) or values[rows], n, noise=0.5)
    whole = Influence(values, noise=0.5)
    assert isinstance(parts, influence.PartedInfluence) == (n > 4)
    assert parts.n == n
    assert parts.squares == pytest.approx(whole.squares)
    assert max(rows.stop - rows.start for rows in asked) <= 4
    clusters = Design(clusters=np.arange(n) // 2)
    for design in (Design(), clusters):
        assert vars(spread_of(parts, design)) == pytest.approx(vars(spread_of(whole, design)))
