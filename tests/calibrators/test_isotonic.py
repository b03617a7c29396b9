"""isotonic: the released codes' answers, scikit-learn's regression, order kept, rows of zeros."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

from confide import Predictions, calibrators
from confide.calibrators.binary_maps import venn_abers_table
from confide.calibrators.probability_maps import isotonic_nodes


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("ovr_normalised_caltrain", "one_vs_rest"),
        ("irm_test", "one_map"),
        ("irova_test_unnormalised", "ranked"),
    ],
)
def test_golden_vector(val, test, golden, key, form):
    expected = golden("isotonic")[key]
    probs = np.exp(calibrators.fit("isotonic", val, form=form)(test).logits.numpy())
    np.testing.assert_allclose(probs, expected / expected.sum(axis=1, keepdims=True), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_nodes_from_chunks_are_the_isotonic_regression(seed):
    random = np.random.default_rng(seed)
    # Rounded scores: ties between hits and misses must be pooled.
    scores = np.round(random.random(300), 2)
    hits = random.random(300) < scores**2
    nodes, levels = isotonic_nodes([scores[:17], scores[17:220], scores[220:]], scores[hits])
    reference = IsotonicRegression(out_of_bounds="clip").fit(scores, hits)
    at = np.linspace(0, 1, 501)
    np.testing.assert_allclose(np.interp(at, nodes, levels), reference.predict(at), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_map_never_changes_the_argmax(made, dtype):
    logits, labels = made(300, 6, seed=1)
    fresh = Predictions(made(3000, 6, seed=2)[0].to(dtype), torch.zeros(3000))
    calibrator = calibrators.fit("isotonic", Predictions(logits.to(dtype), labels), form="one_map")
    assert bool((calibrator(fresh).facts.prediction == fresh.facts.prediction).all())


def test_a_row_of_zeros_keeps_its_probabilities():
    # Only rows that are sure of class 0 or 1 hit; a row of thirds maps to 0 everywhere.
    sure = torch.log(torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]]).double()).repeat(20, 1)
    vague = torch.log(torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]]).double()).repeat(20, 1)
    labels = torch.cat([torch.arange(60) % 3, (torch.arange(60) + 2) % 3])
    calibrator = calibrators.fit("isotonic", Predictions(torch.cat([sure, vague]), labels))
    row = Predictions(torch.log(torch.tensor([[0.02, 0.04, 0.94]]).double()), torch.tensor([0]))
    assert torch.isfinite(calibrator(row).logits).all()
    empty = Predictions(torch.full((1, 3), -1.0).double(), torch.tensor([0]))
    zero = calibrators.Calibrator(
        "isotonic",
        {
            "nodes": torch.tensor([[0.0, 0.5, 1.0]] * 3).double(),
            "levels": torch.tensor([[0.0, 0.0, 1.0]] * 3).double(),
            "ranking": torch.tensor(0.0).double(),
        },
        3,
    )
    torch.testing.assert_close(zero(empty).logits.exp(), torch.full((1, 3), 1 / 3).double())


def test_a_class_without_samples_keeps_its_map(made):
    logits, labels = made(500, 3, seed=2)
    calibrator = calibrators.fit("isotonic", Predictions(logits[labels != 2], labels[labels != 2]))
    assert calibrator.nodes[2, 0].item() == 0.0
    assert calibrator.levels[2, -1].item() == 1.0


def test_what_was_never_seen_stays_possible(made):
    logits, labels = made(400, 10, seed=4)
    val, other = Predictions(logits[:200], labels[:200]), Predictions(logits[200:], labels[200:])
    loss = {a: float(calibrators.fit("isotonic", val, pseudo_count=a)(other).facts.need("nll").mean()) for a in (0, 1)}
    assert loss[1] < loss[0] - 0.1
    assert float(calibrators.fit("isotonic", val, pseudo_count=1)(other).logits.exp().min()) > 1 / (2 * (200 + 10))


@pytest.mark.parametrize("seed", range(6))
def test_venn_abers_is_two_regressions_with_the_new_point_in(seed):
    """Few points, so that the first of them are pooled; the new one lies on, between and beyond them."""
    random = np.random.default_rng(seed)
    scores, hits = random.integers(1, 6, 7) / 8, random.random(7) < 0.5
    tables = venn_abers_table(scores, hits)
    edges = [0.0, *tables["scores"], 1.0]
    for place in range(len(tables["table"])):
        first = edges[place // 2 + place % 2]
        new = (first + edges[place // 2 + 1]) / 2  # twice the same where the new point lies on a known one
        low, high = (
            IsotonicRegression().fit(np.append(scores, new), np.append(hits, label)).predict([new])[0]
            for label in (0.0, 1.0)
        )
        assert tables["table"][place] == pytest.approx(high / (1 - low + high), abs=1e-12)
