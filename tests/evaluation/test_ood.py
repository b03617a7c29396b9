"""Known or OOD: metrics against scikit-learn, every score, intervals, refusals, what the report draws."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from confide import report, trust
from confide.checks import InputError
from confide.evaluation.ood import Side, _histogram, _roc, ood
from confide.predictions import Predictions
from confide.records import Features


def predictions(n, strength, prefix, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 4
    logits = torch.randn(n, 4, generator=generator)
    logits[torch.arange(n), labels] += strength
    return Predictions(logits, labels, ids=np.array([f"{prefix}{i}" for i in range(n)]), split="test")


@pytest.fixture(scope="module")
def sets():
    return predictions(400, 4.0, "known", 0), predictions(300, 1.0, "ood", 1)


@pytest.fixture(scope="module")
def features():
    random = np.random.default_rng(0)
    centres = random.normal(0, 4, (4, 8))
    train = Features(
        centres[np.arange(800) % 4] + random.normal(size=(800, 8)), np.arange(800) % 4, np.arange(800), "x"
    )
    known = centres[np.arange(400) % 4] + random.normal(size=(400, 8))
    return train, known, random.normal(0, 4, (300, 8))


def test_metrics_are_those_of_scikit_learn(sets):
    known, ood_set = sets
    found = ood(known, ood_set, name="others", intervals=False)
    truth = np.r_[np.ones(400), np.zeros(300)]
    score = np.concatenate([p.facts.confidence.double().numpy() for p in sets])
    where = {"score": "msp", "group": "ood=others"}
    assert found.value("auroc", **where) == pytest.approx(roc_auc_score(truth, score))
    assert found.value("aupr_in", **where) == pytest.approx(average_precision_score(truth, score), abs=2e-3)
    assert found.value("aupr_out", **where) == pytest.approx(average_precision_score(1 - truth, -score), abs=2e-3)
    wrong, right, _ = roc_curve(truth, score, drop_intermediate=False)
    assert found.value("fpr95", **where) == pytest.approx(wrong[right >= 0.95][0])


def test_every_score_is_measured_with_an_interval(sets, features):
    train, known, ood_features = features
    found = ood(
        Side(sets[0], known),
        Side(sets[1], ood_features),
        reference=train,
        trust_predictors={"mine": lambda p, rows: -np.linalg.norm(rows, axis=1)},
    )
    scores = {m.score for m in found.measurements}
    assert scores == {"msp", "max_logit", "energy", "entropy", "margin", "md", "rmd", "knn", "trust:mine"}
    assert len(found.measurements) == 4 * 9
    for row in found.measurements:
        assert row.low <= row.value <= row.high
        assert row.group == "ood=others"
        assert row.n == 700
    # Features far from every class are told apart by distance.
    for score in ("md", "knn"):
        assert found.value("auroc", score=score) > 0.95


def test_a_trust_predictor_is_a_score(sets):
    found = ood(*sets, trust_predictors={"margin": trust.fit("margin")}, intervals=False)
    assert found.value("auroc", score="trust:margin") == found.value("auroc", score="margin")


def test_probabilities_leave_out_what_needs_logits(sets):
    turned = [Predictions.from_probs(p.probabilities(), p.labels, p.ids, "test") for p in sets]
    found = ood(*turned, intervals=False)
    assert {m.score for m in found.measurements} == {"msp", "entropy", "margin"}


def test_the_report_draws_histogram_and_roc(sets, tmp_path):
    found = ood(*sets, name="digits", intervals=False)
    roc = next(c for c in found.curves if c.kind == "ood_roc" and c.score == "msp")
    assert roc.columns["false_positive"][-1] == roc.columns["true_positive"][-1] == 1
    area = (
        np.trapezoid(roc.columns["true_positive"], roc.columns["false_positive"]) if hasattr(np, "trapezoid") else None
    )
    if area is not None:
        assert area == pytest.approx(found.value("auroc", score="msp"), abs=0.01)
    histogram = next(c for c in found.curves if c.kind == "ood_histogram")
    assert sum(histogram.columns["known"]) == 400
    assert sum(histogram.columns["unknown"]) == 300
    report.write_report(found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Telling digits from known" in page


def test_shared_ids_are_refused_in_one_line(sets):
    with pytest.raises(InputError, match="must not share ids with the test set, but 400 do, first 'known0'"):
        ood(sets[0], sets[0], name="same")


def test_empty_sets_and_other_models_are_refused(sets):
    empty = sets[1].take(np.arange(0))
    with pytest.raises(InputError, match="OOD set 'others' must have samples, got none"):
        ood(sets[0], empty)
    other = Predictions(torch.randn(5, 7), torch.zeros(5, dtype=torch.int64), ids=np.arange(5))
    with pytest.raises(InputError, match="both sets must be predicted by one model, got 4 and 7"):
        ood(sets[0], other)


def test_features_must_come_with_their_reference(sets, features):
    with pytest.raises(InputError, match="need features of both sets"):
        ood(sets[0], sets[1], reference=features[0])


@pytest.mark.parametrize("points", [199, 200, 201, 450])
def test_a_roc_curve_of_many_scores_has_two_hundred_thresholds_the_ends_among_them(points):
    known, unknown = np.arange(points) / 2.0, np.arange(points)[::2] / 2.0
    found = _roc(known, unknown)
    assert len(found["true_positive"]) == min(points, 200) + 1
    for name, part in (("true_positive", known), ("false_positive", unknown)):
        assert (found[name][0], found[name][-1]) == (0, 1)
        assert (np.diff(found[name]) >= 0).all()
        assert found[name][1] == pytest.approx((part >= known.max()).mean())


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_histogram_of_equal_scores_has_one_full_bin(value):
    found = _histogram(np.full(7, value), np.full(3, value))
    assert (found["known"].max(), found["known"].sum()) == (7, 7)
    assert (found["unknown"].max(), found["unknown"].sum()) == (3, 3)
    assert (found["low"][0], found["high"][-1]) == (value, value + 1)
