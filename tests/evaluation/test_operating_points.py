"""Operating points: worked numbers, the promise by simulation, saving and applying."""

import json

import numpy as np
import pytest
import torch

import confide
from confide import Predictions
from confide.checks import InputError
from confide.evaluation import OperatingPoint, observed
from confide.evaluation.operating_points import Outcomes
from confide.evaluation.risks import candidates
from confide.numerics.binomial import upper_bound


@pytest.fixture(scope="module")
def golden():
    from pathlib import Path

    with np.load(Path(__file__).parents[1] / "golden" / "inputs_C.npz") as data:
        return Predictions(data["logits"], data["labels"])


def test_worked_bounds():
    assert upper_bound(3, 500, 0.05) == pytest.approx(0.0154337, abs=5e-8)
    assert upper_bound(3, 500, 0.005) == pytest.approx(0.0217805, abs=5e-8)
    assert upper_bound(0, 299, 0.05) < 0.01 < upper_bound(0, 298, 0.05)
    assert upper_bound(7, 7, 0.05) == 1.0


def test_worked_points(golden):
    point = confide.operating_point(golden, risk=0.3)
    assert (point.accepted, point.errors, round(point.threshold, 6)) == (400, 100, 0.547071)
    assert confide.operating_point(golden, risk=0.1).threshold is None
    point = confide.operating_point(golden, risk=0.1, method="fallback")
    assert (point.accepted, point.errors, round(point.threshold, 6)) == (150, 5, 0.765486)
    point = confide.operating_point(golden, risk=0.25, method="sgr")
    assert (point.accepted, point.errors, round(point.bound, 5)) == (332, 62, 0.24773)


def simulated(m, rng):
    """Error probability linear in the score: the true risk above a threshold t is (1 - t) / 4."""
    score = rng.random(m)
    wrong = rng.random(m) < (1 - score) / 2
    return Predictions.from_top1(np.zeros(m), wrong.astype(int), score)


@pytest.mark.parametrize("method", ["fixed_sequence", "fallback", "sgr"])
def test_the_promise_is_kept(method):
    rng, broken = np.random.default_rng(0), 0
    for _ in range(150):
        point = confide.operating_point(simulated(1000, rng), risk=0.1, confidence=0.9, method=method)
        broken += point.threshold is not None and (1 - point.threshold) / 4 > 0.1
    # at most one in ten may break: 26 of 150 has probability below 0.003
    assert broken <= 25


def test_no_threshold_is_said_in_words(golden):
    point = confide.operating_point(golden, risk=0.001)
    assert not point.certified
    assert point.coverage == 0
    assert "no threshold can promise a risk of 0.001" in point.note
    assert "2995 accepted samples" in point.note
    assert int(confide.apply_operating_point(point, golden).sum()) == 0


def test_the_reason_for_no_threshold_is_the_true_one(golden):
    # 1000 samples are enough for a risk of 0.1 (29 without errors); the first five per cent hold an error too many
    point = confide.operating_point(golden, risk=0.1)
    scores, wrong = golden.facts.sureness(), ~golden.facts.correct.numpy()
    first = Outcomes(scores, wrong, None).at(candidates(scores)[0], 0.05)
    assert f"{first.errors} errors among {first.accepted} accepted (risk at most {first.bound:.3g})" in point.note
    assert "'fallback' would accept 15.0%" in point.note
    assert "of 19 coverages none shows so low a risk" in confide.operating_point(golden, risk=0.03).note
    assert "none passes with its part" in confide.operating_point(golden, risk=0.087, method="sgr").note


def test_ties_are_never_split():
    score = np.repeat([0.9, 0.5], 50)
    outcomes = Outcomes(score, np.zeros(100, dtype=bool), None)
    found = [outcomes.at(threshold, 0.05) for threshold in candidates(score)]
    assert [(b.threshold, b.accepted) for b in found] == [(0.9, 50), (0.5, 100)]


def test_coverage_asks_for_a_share_and_bounds_its_risk(golden):
    point = confide.operating_point(golden, coverage=0.5)
    assert point.accepted == 500
    assert point.bound == pytest.approx(upper_bound(point.errors, 500, 0.05))


def test_a_saved_point_is_applied_alike(golden, tmp_path):
    point = confide.operating_point(golden, risk=0.3)
    point.save(tmp_path / "point.json")
    again = OperatingPoint.load(tmp_path / "point.json")
    assert again == point
    accepted = confide.apply_operating_point(again, golden)
    assert accepted.dtype == torch.bool
    assert int(accepted.sum()) == 400
    text = json.loads((tmp_path / "point.json").read_text())
    assert text["score"] == "msp"
    assert text["threshold"] == point.threshold
    seen = observed(again, golden)
    assert seen.coverage == 0.4
    assert seen.risk == 0.25


def test_thresholds_per_predicted_class(golden):
    point = confide.operating_point(golden, risk=0.45, confidence=0.8, per_class=True)
    accepted, said = confide.apply_operating_point(point, golden).numpy(), golden.facts.prediction.numpy()
    confidence = golden.facts.confidence.numpy()
    for k, own in point.classes.items():
        mask = said == int(k)
        wanted = confidence[mask] >= own.threshold if own.threshold is not None else np.zeros(mask.sum(), bool)
        np.testing.assert_array_equal(accepted[mask], wanted)
    assert int(accepted.sum()) == point.accepted > 0


def test_a_point_is_applied_where_no_label_is_known(golden):
    point = confide.operating_point(golden, risk=0.3)
    assert int(confide.apply_operating_point(point, Predictions(golden.logits)).sum()) == 400
    facts = golden.facts
    pairs = Predictions.from_pairs(facts.correct, facts.confidence)
    assert int(confide.apply_operating_point(confide.operating_point(pairs, risk=0.3), pairs).sum()) == 400


def test_scores_given_as_values_are_given_again(golden):
    margin = golden.facts.margin
    point = confide.operating_point(golden, risk=0.3, score=margin)
    with pytest.raises(InputError, match="pass the same score"):
        confide.apply_operating_point(point, golden)
    assert int(confide.apply_operating_point(point, golden, score=margin).sum()) == point.accepted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either risk= or coverage="),
        ({"risk": 0.1, "coverage": 0.5}, "either risk= or coverage="),
        ({"risk": 0.0}, "risk must lie in"),
        ({"risk": 0.1, "confidence": 1.0}, "confidence must lie in"),
        ({"risk": 0.1, "method": "best"}, "method must be one of"),
    ],
)
def test_bad_questions(golden, options, message):
    with pytest.raises(InputError, match=message):
        confide.operating_point(golden, **options)


def test_a_class_that_is_predicted_once_gets_no_promise_and_harms_no_other():
    labels = torch.arange(200) % 2
    logits = 5.0 * torch.eye(3)[labels]
    logits[0] = torch.tensor([0.0, 0.0, 9.0])  # the only sample predicted as class 2, and wrong
    point = confide.operating_point(confide.Predictions(logits, labels), risk=0.1, per_class=True)
    alone = confide.operating_point(confide.Predictions(logits[1:], labels[1:]), risk=0.1, per_class=True)
    assert point.threshold == pytest.approx(alone.threshold, nan_ok=True)
    assert 0 < point.coverage < 1
    assert point.errors == 0


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.0001, 1.5, float("nan")])
def test_a_coverage_outside_its_range_is_refused(coverage):
    predictions = confide.Predictions(torch.eye(3), torch.arange(3))
    with pytest.raises(confide.checks.InputError, match="coverage must"):
        confide.operating_point(predictions, coverage=coverage)


def test_a_coverage_of_one_accepts_every_sample():
    predictions = confide.Predictions(torch.eye(3), torch.arange(3))
    assert confide.operating_point(predictions, coverage=1.0).coverage == 1.0
