"""Every argument that lies in a range: its ends are taken, or not, as its words say; one step beyond is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import confide
from confide import calibrators, difficulty, metrics, sets, shift, trust
from confide.calibrators.groups import MOST_BANDS, grouping
from confide.checks import InputError
from confide.evaluation import find_slices, label_thresholds
from confide.metrics import METRICS
from confide.numerics import binning, binomial, gaussians, neighbours
from confide.predictions import Predictions
from confide.random import noisy_labels
from confide.records import Features, Scores

N = 48
DRAW = np.random.default_rng(0)
LABELS = np.arange(N) % 3
ROWS = 2 * np.eye(3, 4)[LABELS] + DRAW.normal(size=(N, 4))
LOGITS = 2 * np.eye(3)[LABELS] + 1.5 * DRAW.normal(size=(N, 3))
VAL = Predictions(LOGITS, LABELS, split="val", columns={"age": np.linspace(20, 60, N)})
TWO = Predictions(LOGITS[:, :2], (LABELS == 1).astype(int), split="val")
SEVERAL = Predictions.multilabel(LOGITS, (ROWS[:, :3] > 1).astype(int), split="val")
SCORES = Scores(np.arange(N), DRAW.normal(size=N), "rmd", {}, LABELS)
FEATURES = Features(ROWS, LABELS, np.arange(N), "drawn", "val")
BINNED = ("split_edges", "interpolated_edges", "order_edges")
EVER = 1e-9
"""How far beyond an end is beyond it."""


def watched(value: Any) -> Any:
    return shift.attack(
        lambda x: x.flatten(1)[:, :3] * torch.arange(1.0, 4),
        torch.full((3, 1, 2, 2), 0.5),
        LABELS[:3],
        "fgsm",
        epsilon=value,
    )


CASES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "neighbours": (lambda v: neighbours.nearest_neighbours(ROWS, ROWS, v), (1, N), (0, N + 1)),
    "neighbours but oneself": (
        lambda v: neighbours.nearest_neighbours(ROWS, ROWS, v, exclude_self=True), (1, N - 1), (0, N),
    ),
    "trials": (lambda v: binomial.clopper_pearson(0, v, 0.05), (0, 1), (-1,)),
    "shrinkage": (
        lambda v: gaussians.fit_gaussians(ROWS, LABELS, 3, shrinkage=v), (0.0, 1.0), (-EVER, 1 + EVER),
    ),
    "bins of equal width": (binning.width_edges, (1,), (0,)),
    "places in bins of equal width": (lambda v: binning.width_bin_of(np.full(2, 0.5), v, "right"), (1,), (0,)),
    "places in bins of equal mass": (lambda v: binning.mass_bin_of_rank(5, v), (1,), (0,)),
    **{name: (lambda v, name=name: getattr(binning, name)(np.linspace(0, 1, 9), v), (1,), (0,)) for name in BINNED},
    "threshold": (lambda v: metrics.precision(TWO, threshold=v), (0.0, 1.0), (-EVER, 1 + EVER)),
    "beta": (lambda v: metrics.f_beta(TWO, beta=v), (EVER,), (0.0,)),
    "bandwidth": (lambda v: metrics.kde_ece(VAL, bandwidth=v), (1e-3,), (0.0,)),
    "power": (lambda v: metrics.kde_ece(VAL, p=v), (1.0,), (1 - EVER,)),
    "true positive rate": (lambda v: metrics.fpr95(VAL, tpr=v), (0.0, 1.0), (-EVER, 1 + EVER)),
    "risk": (lambda v: metrics.coverage_at_risk(VAL, risk=v), (0.0, 1.0), (-EVER, 1 + EVER)),
    "coverage": (lambda v: metrics.risk_at_coverage(VAL, coverage=v), (EVER, 1.0), (0.0, 1 + EVER)),
    **{
        f"bins of {m.word}": (lambda v, word=m.word: getattr(metrics, word)(VAL, bins=v), (1,), (0,))
        for m in METRICS
        if "bins" in m.options
    },
    "rows of a stream": (lambda v: calibrators.fit_stream("temperature", [VAL], rows=v), (1,), (0,)),
    "bands": (lambda v: grouping(VAL, "age", v), (2,), (1, MOST_BANDS + 1)),
    "shrinkage of groups": (
        lambda v: calibrators.fit("temperature", VAL, by="age", bands=2, shrinkage=v), (0.0, 1.0), (-EVER,),
    ),
    "folds": (lambda v: calibrators.choose(VAL, ["temperature"], folds=v), (2, N // 2), (1, N // 2 + 1)),
    "bounds": (
        lambda v: calibrators.fit("ensemble_temperature", VAL, bounds=(v, 5.0)), (0.1,), (0.0, float("inf")),
    ),
    "base": (
        lambda v: difficulty.score("entropy", np.full((1, 1, 4, 2), 0.5), [0, 1, 0, 1], base=v),
        (1.5,), (1.0, float("inf")),
    ),
    "hardest": (lambda v: difficulty.verdicts(ROWS, LABELS, hardest=v), (0.0, 1.0), (-EVER, 1 + EVER)),
    "rate of false verdicts": (lambda v: difficulty.verdicts(ROWS, LABELS, max_fdr=v), (0.0, 1.0), (-EVER, 1 + EVER)),
    "rounds": (lambda v: difficulty.verdicts(ROWS, LABELS, rounds=v), (1,), (0,)),
    "part": (
        lambda v: difficulty.explain(FEATURES, SCORES, ("a", "b"), np.eye(2, 4), each=1, part=v),
        (0.1, 0.5), (0.0, 0.5 + EVER),
    ),
    "temperature of weights": (lambda v: difficulty.weights(SCORES, temperature=v), (0.1,), (0.0,)),
    "constant of weights": (lambda v: difficulty.weights(SCORES, c=v), (0.0,), (-EVER,)),
    "bands of difficulty": (
        lambda v: difficulty.error_by_difficulty(SCORES, LABELS == 1, bands=v), (1, N), (0, N + 1),
    ),
    "groups of difficulty": (lambda v: difficulty.groups(SCORES, groups=v), (2, N), (1, N + 1)),
    "fraction": (lambda v: difficulty.harden(SCORES, fraction=v), (EVER, 1.0), (0.0, 1 + EVER)),
    "similarity": (
        lambda v: difficulty.harden(SCORES, features=FEATURES, similarity=v), (0.9, 1.0), (0.0, 1 + EVER),
    ),
    "copies": (
        lambda v: trust.augmented(lambda x: (x, x), torch.eye(3), torch.arange(3), lambda x, _: x, times=v), (1,), (0,),
    ),
    "promised coverage": (lambda v: sets.fit("lac", VAL, v), (EVER, 1 - EVER), (0.0, 1.0)),
    "clusters": (lambda v: sets.fit("lac", VAL, 0.8, by="cluster", clusters=v), (1,), (0,)),
    "capacity": (
        lambda v: confide.decisions.decide(VAL, costs=1 - np.eye(3), capacity=v), (0, 1), (-1, 1.5),
    ),
    "promised risks": (lambda v: confide.operating_point(VAL, risk={"error": v}), (EVER, 1 - EVER), (0.0, 1.0)),
    "beta of labels": (lambda v: label_thresholds(SEVERAL, f_beta=v), (EVER,), (0.0,)),
    "precision of labels": (lambda v: label_thresholds(SEVERAL, precision=v), (EVER, 1 - EVER), (0.0, 1.0)),
    "confidence of labels": (
        lambda v: label_thresholds(SEVERAL, precision=0.5, confidence=v), (EVER, 1 - EVER), (0.0, 1.0),
    ),
    "level of slices": (lambda v: find_slices(VAL, level=v), (EVER, 1 - EVER), (0.0, 1.0)),
    "number of slices": (lambda v: find_slices(VAL, most=v), (1,), (0,)),
    "confidence of a point": (
        lambda v: confide.operating_point(VAL, risk=0.3, confidence=v), (EVER, 1 - EVER), (0.0, 1.0),
    ),
    "risk of a point": (lambda v: confide.operating_point(VAL, risk=v), (EVER, 1 - EVER), (0.0, 1.0)),
    "coverage of a point": (lambda v: confide.operating_point(VAL, coverage=v), (EVER, 1.0), (0.0, 1 + EVER)),
    "epsilon": (watched, (0.0, 1.0), (-EVER, 1 + EVER)),
    "rate of noise": (
        lambda v: noisy_labels(LABELS, v, num_classes=3, ids=np.arange(N)), (0.0, 1.0), (-EVER, 1 + EVER),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_argument_takes_what_lies_in_its_range_and_nothing_beyond(name: str) -> None:
    call, allowed, beyond = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in allowed:
            call(value)
        for value in beyond:
            with pytest.raises(InputError):
                call(value)
