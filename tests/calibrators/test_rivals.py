"""Calibrators of others against their authors' formulas, written out naively."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from confide import Features, Predictions, calibrators, trust
from confide.calibrators.binary_maps import _Steps, centred_nodes, platt_line, venn_abers_table
from confide.calibrators.per_sample import bin_of, kernel_density
from confide.checks import InputError

DRAW = np.random.default_rng(0)
N, CLASSES = 400, 4
LABELS = DRAW.integers(CLASSES, size=N)
LOGITS = 3 * (np.eye(CLASSES)[LABELS] + DRAW.normal(size=(N, CLASSES)))
VAL = Predictions(LOGITS, LABELS, split="val")
ROWS = DRAW.normal(size=(N, 5)) * np.exp(0.3 * DRAW.normal(size=(N, 1)))
TRAIN = Features(DRAW.normal(size=(300, 5)), np.arange(300) % CLASSES, np.arange(300), "drawn", "train")


def nll(logits: np.ndarray) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(logits)), LABELS]).mean())


@pytest.mark.parametrize("digits", [6, 1])
def test_venn_abers_is_two_isotonic_fits_for_every_new_point(digits):
    scores = np.round(DRAW.random(60), digits)  # with one digit most scores are tied
    hits = DRAW.random(60) < scores
    tables = venn_abers_table(scores, hits)
    for new in [-0.5, *np.round(DRAW.random(30), digits), *scores[:5], 1.5]:
        p0, p1 = (
            IsotonicRegression().fit(np.append(scores, new), np.append(hits, hit)).predict([new])[0] for hit in (0, 1)
        )
        place = np.searchsorted(tables["scores"], new) + np.searchsorted(tables["scores"], new, side="right")
        assert tables["table"][place] == pytest.approx(p1 / (1 - p0 + p1), abs=1e-12)


def test_centred_isotonic_joins_the_centres_of_the_steps():
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.9])
    hits = np.array([0, 1, 0, 1, 1, 1], dtype=bool)
    # Steps: {.1} 0, {.2, .3} 1/2, {.4, .5, .9} 1.
    tables = centred_nodes(scores, hits)
    np.testing.assert_allclose(tables["nodes"], [0.1, 0.25, 0.6])
    np.testing.assert_allclose(tables["levels"], [0.0, 0.5, 1.0])


def test_platt_is_logistic_regression_on_smoothed_targets():
    scores, hits = DRAW.random(200), DRAW.random(200) < 0.4
    right, wrong = hits.sum(), (~hits).sum()
    target = np.where(hits, (right + 1) / (right + 2), 1 / (wrong + 2))
    odds = np.log(scores / (1 - scores))[:, None]
    twice, weight = np.vstack([odds, odds]), np.concatenate([target, 1 - target])
    peer = LogisticRegression(C=1e10, tol=1e-10).fit(twice, np.repeat([1, 0], 200), sample_weight=weight)
    line = platt_line(scores, hits)
    np.testing.assert_allclose([line["slope"][0], line["shift"][0]], [peer.coef_[0, 0], peer.intercept_[0]], atol=1e-5)


def test_top_versus_all_calibrates_the_top_class_and_keeps_it():
    fitted = calibrators.fit("top_versus_all", VAL)
    after, facts = fitted(VAL), VAL.facts
    assert torch.equal(after.facts.prediction, facts.prediction)
    peer = IsotonicRegression(out_of_bounds="clip").fit(facts.confidence.numpy(), facts.correct.numpy())
    expected = peer.predict(facts.confidence.numpy())
    # Below 1/c no class can lead.
    inside = (expected > 1 / CLASSES) & (expected < 1)
    np.testing.assert_allclose(after.facts.confidence.numpy()[inside], expected[inside], atol=2e-6)


@pytest.mark.parametrize("word", ["structured_vector", "structured_matrix"])
def test_structured_scaling_minimises_the_authors_objective(word):
    fitted = calibrators.fit(word, VAL)
    base = torch.log_softmax(VAL.logits / calibrators.fit("temperature", VAL).temperature, dim=1).numpy()
    between = word == "structured_matrix"

    def objective(unknowns: np.ndarray) -> float:
        scales, shifts = unknowns[:CLASSES], unknowns[CLASSES : 2 * CLASSES]
        matrix = np.zeros((CLASSES, CLASSES))
        if between:
            matrix[~np.eye(CLASSES, dtype=bool)] = unknowns[2 * CLASSES :]
        penalty = CLASSES / N * (np.square(scales).sum() + np.square(shifts).sum())
        penalty += CLASSES * (CLASSES - 1) / N * np.square(matrix).sum()
        return nll(base + base * scales + base @ matrix.T + shifts) + penalty

    size = 2 * CLASSES + (CLASSES * (CLASSES - 1) if between else 0)
    peer = minimize(objective, np.zeros(size), tol=1e-12)
    parts = [fitted.scales, fitted.shifts, *([fitted.matrix[~torch.eye(CLASSES, dtype=bool)]] if between else [])]
    assert objective(torch.cat(parts).numpy()) <= peer.fun + 1e-9


def test_dac_finds_the_best_line_of_the_density_and_contains_temperature():
    fitted = calibrators.fit("dac", VAL, features=ROWS, fitted=TRAIN, neighbours=7)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ROWS, np.asarray(TRAIN.values))]
    distances = np.linalg.norm(unit[0][:, None] - unit[1].astype(np.float32), axis=2)
    signal = np.sort(distances, axis=1)[:, :7].mean(axis=1)

    def loss(weights: np.ndarray) -> float:
        return nll(LOGITS / np.maximum(weights[0] + weights[1] * signal, 1e-3)[:, None])

    peer = min(
        minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).fun
        for start in ([1.0, 0.0], [0.5, 2.0])
    )
    found = loss(fitted.weights.numpy())
    assert fitted.weights[1] >= 0
    assert found <= peer + 1e-7 or fitted.weights[1] == 0
    assert found <= nll(LOGITS / calibrators.fit("temperature", VAL).temperature) + 1e-12
    np.testing.assert_allclose(nll(fitted(VAL, ROWS).logits.numpy()), found, rtol=1e-6)


def test_dac_of_several_layers_weighs_each_and_is_no_worse_than_one_of_them():
    fitted = calibrators.fit("dac", VAL, features=ROWS, fitted=TRAIN, layers=(2, -1))
    rows, points = (np.asarray(part, dtype=np.float64) for part in (ROWS, TRAIN.values))
    signals = []
    for part in (slice(0, 2), slice(2, 5)):
        unit = [x[:, part] / np.linalg.norm(x[:, part], axis=1, keepdims=True) for x in (rows, points)]
        signals.append(np.sort(np.linalg.norm(unit[0][:, None] - unit[1], axis=2), axis=1)[:, :10].mean(axis=1))
    temperature = fitted.weights[0].item() + np.stack(signals, axis=1) @ fitted.weights[1:].numpy()
    np.testing.assert_allclose(fitted(VAL, ROWS).logits, LOGITS / temperature[:, None], rtol=1e-5)
    alone = calibrators.fit("dac", VAL, features=ROWS[:, :2], fitted=replace(TRAIN, values=TRAIN.values[:, :2]))
    assert nll(fitted(VAL, ROWS).logits.numpy()) <= nll(alone(VAL, ROWS[:, :2]).logits.numpy()) + 1e-6
    with pytest.raises(InputError, match="add up to the 5 of the features"):
        calibrators.fit("dac", VAL, features=ROWS, fitted=TRAIN, layers=(2, 2))


def test_procal_by_bins_moves_confidence_by_what_its_bin_is_off():
    fitted = calibrators.fit(
        "procal", VAL, features=ROWS, fitted=TRAIN, form="bin_mean_shift", proximity_bins=2, bins=3
    )
    distances = np.linalg.norm(ROWS[:, None] - np.asarray(TRAIN.values, dtype=np.float32), axis=2)
    near = np.sort(distances, axis=1)[:, :10].mean(axis=1)
    confidence, right = VAL.facts.confidence.double().numpy(), VAL.facts.correct.numpy()
    expected = np.empty(N)
    for half in (near <= np.median(near), near > np.median(near)):
        low, high = np.quantile(confidence[half], [1 / 3, 2 / 3])
        for inside in (confidence <= low, (confidence > low) & (confidence <= high), confidence > high):
            cell = half & inside
            expected[cell] = confidence[cell] + right[cell].mean() - confidence[cell].mean()
    after = fitted(VAL, ROWS).facts.confidence.numpy()
    assert np.abs(after - np.clip(expected, 1 / CLASSES, 1)).max() < 1e-5


def test_procal_is_bayes_rule_on_two_densities():
    fitted = calibrators.fit("procal", VAL, features=ROWS, fitted=TRAIN, neighbours=3)
    distances = np.linalg.norm(ROWS[:, None] - np.asarray(TRAIN.values, dtype=np.float32), axis=2)
    near = np.sort(distances, axis=1)[:, :3].mean(axis=1)
    confidence, right = VAL.facts.confidence.double().numpy(), VAL.facts.correct.numpy()
    pairs = np.stack([confidence, np.exp(-near / near.mean())], axis=1)

    def density(points: np.ndarray, at: np.ndarray) -> float:
        widths = 1.06 * points.std(axis=0) * len(points) ** (-1 / 6)
        gaps = (at - points) / widths
        return float((np.exp(-np.square(gaps) / 2) / (np.sqrt(2 * np.pi) * widths)).prod(axis=1).mean())

    after = fitted(VAL, ROWS).facts.confidence.numpy()
    for k in range(20):
        ratio = (~right).sum() / right.sum() * density(pairs[~right], pairs[k]) / density(pairs[right], pairs[k])
        assert after[k] == pytest.approx(max(1 / (1 + ratio), 1 / CLASSES), abs=1e-5)
    np.testing.assert_allclose(kernel_density(pairs, pairs[:3]), [density(pairs, at) for at in pairs[:3]])


def test_parameterised_temperature_is_never_worse_than_one_temperature_on_its_own_criterion():
    fitted = calibrators.fit("parameterised_temperature", VAL, criterion="nll")
    one = calibrators.fit("temperature", VAL)
    assert nll(fitted(VAL).logits.numpy()) < nll(one(VAL).logits.numpy())
    # T by hand for one sample: relu layers of the ten largest logits less the largest, in units of T.
    rows = np.sort(LOGITS[0])[::-1]
    rows = (rows - rows[0]) / one.temperature
    for layer in range(3):
        rows = fitted.values[f"weight{layer}"].numpy() @ rows + fitted.values[f"bias{layer}"].numpy()
        rows = np.maximum(rows, 0) if layer < 2 else np.abs(rows)
    np.testing.assert_allclose(fitted(VAL).logits[0], LOGITS[0] / (rows * one.temperature), rtol=1e-6)


def test_maxlogit_pnorm_is_the_normalised_logit_that_ranks_best():
    fitted = trust.fit("maxlogit_pnorm", VAL)
    centred = LOGITS - LOGITS.mean(axis=1, keepdims=True)

    def area(values: np.ndarray) -> float:
        errors = ~VAL.facts.correct.numpy()[np.argsort(-values, kind="stable")]
        return float((errors.cumsum() / np.arange(1, N + 1)).mean())

    scores = {p: centred.max(axis=1) / (np.abs(centred) ** p).sum(axis=1) ** (1 / p) for p in range(1, 11)}
    scores |= {0: centred.max(axis=1), None: VAL.facts.confidence.double().numpy()}
    best = min(scores, key=lambda p: area(scores[p]))
    assert fitted.scorer.p == best
    np.testing.assert_allclose(fitted(VAL).numpy(), scores[best], rtol=1e-6)


def test_one_score_alone_has_a_venn_abers_table():
    table = venn_abers_table(np.full(4, 0.3), np.array([True, False, False, False]))["table"]
    p0, p1 = 1 / 5, 2 / 5  # the new point as a miss and as a hit among the four
    np.testing.assert_allclose(table, [p1 / (1 + p1), p1 / (1 - p0 + p1), 1 / (2 - p0)])


def test_steps_of_every_beginning_are_isotonic_regressions():
    draws = np.random.default_rng(0)
    for n in (1, 2, 3, 8, 20):
        weights = draws.integers(1, 4, n).astype(float)
        hits = np.floor(draws.random(n) * (weights + 1))
        steps = _Steps.of(weights, hits)
        assert steps.top[0] == -1
        for size in range(1, n + 1):
            levels, place = [], int(steps.top[size])
            while place >= 0:
                levels.append((steps.hits[place] / steps.weight[place], steps.weight[place]))
                place = int(steps.before[place])
            rising = [level for level, _ in reversed(levels)]
            assert all(a < b for a, b in itertools.pairwise(rising))
            # The largest of the smallest means of the rates around a place.
            rates = [
                max(min(hits[a : b + 1].sum() / weights[a : b + 1].sum() for b in range(k, size)) for a in range(k + 1))
                for k in range(size)
            ]
            np.testing.assert_allclose(np.unique(np.round(rising, 12)), np.unique(np.round(rates, 12)))
            assert sum(own for _, own in levels) == weights[:size].sum()


def test_a_confidence_or_proximity_at_an_edge_belongs_below_it():
    values = {"bands": torch.tensor([0.5]), "edges": torch.tensor([[0.25, 0.75], [0.5, 0.75]], dtype=torch.float64)}
    near = np.array([0.5, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75])
    confidence = np.array([0.25, 0.3, 0.75, 0.8, 0.5, 0.75, 1.0])
    band, place = bin_of(values, confidence, near)
    assert band.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert place.tolist() == [0, 1, 1, 2, 0, 1, 2]
