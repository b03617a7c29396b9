"""Every registered metric: facts, corners, range, file and word, finite values at extreme logits."""

import inspect
import math

import pytest
import torch

from confide import Measurement, Predictions, metrics
from confide.metrics import METRICS

WORDS = (
    *("accuracy", "nll", "brier", "ece", "classwise_ece", "debiased_ece", "sweep_ece", "kde_ece", "smooth_ece", "mce"),
    *("aurc", "eaurc", "augrc", "auroc", "aupr_success", "aupr_error", "fpr95", "tpr", "tnr"),
    *("coverage_at_risk", "risk_at_coverage", "separability_kl", "separability_bhattacharyya"),
)


def predictions(n=90, classes=6, scale=2.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n, classes, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / scale, 1), 1, generator=generator).squeeze(1)
    return Predictions(logits, labels)


def test_every_public_word_is_there():
    assert set(WORDS) <= set(metrics.names())


@pytest.mark.parametrize("method", METRICS, ids=lambda m: m.word)
def test_facts_are_complete(method):
    assert method.paper
    assert method.spec.info.better in ("higher", "lower", "neither")
    assert method.spec.info.kind in ("mean", "calibration", "ranking", "separation")
    low, high = method.spec.range
    assert low < high
    meaning = method.spec.info.meaning
    assert method.spec.info.title
    assert meaning.endswith(".")
    assert meaning[0].isupper()
    assert method.summary
    for option in method.options:
        assert f"{option}:" in inspect.getdoc(method.function)


@pytest.mark.parametrize("method", METRICS, ids=lambda m: m.word)
def test_word_is_a_function_of_the_package(method):
    assert getattr(metrics, method.word) is method.function


@pytest.mark.parametrize(
    ("word", "corner"), [(m.word, c) for m in METRICS for c in ({}, *m.corners)], ids=lambda v: str(v)
)
def test_every_corner_stays_in_its_range(word, corner):
    found = METRICS.get(word).function(predictions(), **corner)
    assert isinstance(found, Measurement)
    low, high = METRICS.get(word).spec.range
    if corner.get("norm") == 1 and word == "debiased_ece":
        low = -1.0
    assert low <= float(found) <= high
    assert found.n == 90


@pytest.mark.parametrize("word", metrics.names())
def test_huge_logits_give_numbers(word):
    value = float(METRICS.get(word).function(predictions(scale=1e4)))
    assert math.isfinite(value) or math.isnan(value)
    if word not in ("separability_kl", "separability_bhattacharyya"):
        assert math.isfinite(value)


@pytest.mark.parametrize("word", [m.word for m in METRICS if m.spec.info.kind in ("ranking", "separation")])
def test_any_score_ranks(word):
    record = predictions()
    for score in ("msp", "entropy", "margin", "max_logit", "energy", record.facts.margin, record.facts.margin.numpy()):
        assert math.isfinite(float(METRICS.get(word).function(record, score=score)))
