"""The same methods where data are odd: few samples, two classes, a class without samples, ties, logits far apart."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import torch

import confide
from confide import calibrators, decisions, difficulty, metrics, sets, trust
from confide.calibrators import CALIBRATORS
from confide.checks import InputError
from confide.difficulty import DIFFICULTY
from confide.evaluation.curves import SMOOTH_AT
from confide.predictions import Predictions
from confide.records import Features
from confide.trust import TRUST
from tests.kept import entries

SLOW = ("parameterised_temperature", "ensemble_temperature", "steep_slope", "confidnet")
"""Fits that take a second each are looked at on plain data alone."""


def or_line(call: Callable[[], Any]) -> Any:
    """What a call gives, or the line with which it refuses."""
    try:
        return call()
    except InputError as error:
        return str(error)


@cache
def odd(shape: str, split: str = "val") -> Predictions:
    """Predictions of 160 samples bent into a shape."""
    whole = entries.predictions(split)
    logits, labels = whole.logits, whole.labels
    match shape:
        case "one":
            return whole.take(np.array([5]))
        case "pair":
            return whole.take(np.array([5, 17]))
        case "few":
            return whole.take(np.arange(13))
        case "right":
            return whole.take(np.flatnonzero(whole.facts.correct.numpy())[:37])
        case "wrong":
            return whole.take(np.flatnonzero(~whole.facts.correct.numpy()))
        case "two":
            return Predictions(logits[:61, :2], (labels[:61] == 1).long(), split=split)
        case "gap":
            spare = torch.full((len(labels), 1), -1.5, dtype=logits.dtype)
            return Predictions(torch.cat([logits[:, :2], spare, logits[:, 2:]], dim=1)[:101], labels[:101] % 2 * 3)
        case "ties":
            return Predictions((logits[:97] / 4).round(), labels[:97], split=split)
        case "equal":
            return Predictions(torch.zeros(23, 3), labels[:23] % 3, split=split)
        case "sure":
            return Predictions(40 * logits[:59], labels[:59], split=split)
        case "zeros":
            probs = torch.softmax(logits[:59], dim=1)
            kept = torch.where(probs < 0.02, 0.0, probs)
            return Predictions.from_probs(kept / kept.sum(dim=1, keepdim=True), labels[:59], split=split)
    raise AssertionError(shape)


SHAPES = ("one", "pair", "few", "right", "wrong", "two", "gap", "ties", "equal", "sure", "zeros")
FITTED = ("few", "two", "gap", "ties", "sure", "zeros")


def metric_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for shape in SHAPES:
        yield f"metrics {shape}", partial(_measured, shape)
        yield (
            f"evaluate {shape}",
            lambda shape=shape: or_line(lambda: entries.rows(confide.evaluate(odd(shape), "all"))),
        )
    for method in metrics.METRICS:
        for place, corner in enumerate(method.corners):
            yield (
                f"{method.word}{place + 1}",
                lambda method=method, corner=corner: {
                    shape: or_line(partial(_cornered, method.word, shape, corner))
                    for shape in ("few", "two", "ties", "right")
                },
            )


def _measured(shape: str) -> Any:
    return {
        word: or_line(lambda word=word: entries.numbers(getattr(metrics, word)(odd(shape)))) for word in metrics.names()
    }


def _cornered(word: str, shape: str, corner: Mapping[str, Any]) -> Any:
    return entries.numbers(getattr(metrics, word)(odd(shape), **corner))


def fitted_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for shape in FITTED:
        for method in CALIBRATORS:
            if method.word not in SLOW:
                yield f"calibrators {method.word} {shape}", partial(or_line, partial(_calibrated, method.word, shape))
        for word in sets.names():
            yield f"sets {word} {shape}", partial(or_line, partial(_sets, word, shape))
        for word in TRUST.names():
            if word not in SLOW:
                yield f"trust {word} {shape}", partial(or_line, partial(_trusted, word, shape))
        yield f"decide {shape}", partial(or_line, partial(_decided, shape))
        yield f"point {shape}", partial(or_line, partial(_points, shape))
    for word in DIFFICULTY.names():
        yield f"difficulty {word}", partial(_difficult, word)


def beyond_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is done from so many samples on, with these limits lowered."""
    whole = {
        name: partial(lambda make: entries.rows(confide.evaluate(make(), "all")), make)
        for name, make in (("plain", entries.predictions), ("weighted", entries.weighted), ("unit", entries.by_unit))
    }
    for name, make in whole.items():
        yield f"kernel {name}", partial(_lowered, "metrics.kernel_calibration", {"LARGEST": 50}, make)
        yield f"cells {name}", partial(_lowered, "metrics.influence", {"CELLS": 64}, make)
        yield f"slow {name}", partial(_lowered, "evaluation.evaluate", {"MOST_FOR_SLOW": 50}, make)
    coarse = {"SMOOTH_CELLS": 50, "SMOOTH_PLACES": np.rint(SMOOTH_AT * 50).astype(np.intp)}
    coarse["SMOOTH_EDGES"] = (np.arange(1, 51) - 0.5) / 50
    yield "smooth", partial(_lowered, "evaluation.curves", coarse, whole["plain"])
    for limits in ({"WIDE_WORK": 10}, {"CURVATURE_ROWS": 40}, {"FOLD_ROWS": 30}):
        for word, own in (("matrix", {}), ("dirichlet", {}), ("vector", {}), ("dirichlet", {"on": "weighted"})):
            make = partial(entries.calibrated, word, **own)
            yield f"{next(iter(limits))} {word} {own}", partial(_lowered, "calibrators.linear_maps", limits, make)
    for word in ("second_opinion", "travelling", "dac"):
        make = partial(entries.calibrated, word)
        yield f"folds {word}", partial(_lowered, "calibrators.fitting", {"FOLD_ELEMENTS": 100}, make)
    yield "verdicts", partial(_lowered, "difficulty.label_errors", {"CALIBRATION_ROWS": 50}, entries._verdicts)


def _lowered(module: str, limits: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    owner = sys.modules[f"confide.{module}"]
    before = {name: getattr(owner, name) for name in limits}
    entries.predictions.cache_clear()
    try:
        for name, limit in limits.items():
            setattr(owner, name, limit)
        return make()
    finally:
        for name, limit in before.items():
            setattr(owner, name, limit)
        entries.predictions.cache_clear()


def rows_of(shape: str, split: str) -> Features:
    """Features of as many samples, whose labels are the record's own."""
    record = odd(shape, split)
    return Features(
        entries.features(split)[: len(record)], record.labels.numpy(), np.arange(len(record)), "drawn", split
    )


def _calibrated(word: str, shape: str) -> Any:
    beside, known = {}, {}
    if CALIBRATORS.get(word).spec.wants != "nothing":
        beside = {"features": rows_of(shape, "test").values}
        known = {"features": rows_of(shape, "val").values, "fitted": rows_of(shape, "train")}
    fit_on = odd(shape).replace(split="val")
    calibrator = calibrators.fit(word, fit_on, **known)
    after = calibrator(odd(shape, "test"), **beside)
    notes = [_still(note) for note in calibrator.notes]
    if any("every validation prediction is right" in note for note in notes):
        # The likelihood rises without end: where the search stops hangs on the processor.
        finite = bool(np.isfinite(after.facts.nll.numpy()).all())
        return {"finite": finite, "predicted": after.facts.predicted, "notes": notes}
    return {"confidence": after.facts.confidence, "nll": after.facts.nll, "notes": notes}


def _still(text: str) -> str:
    """Its first words without the numbers that a search ended with."""
    return re.sub(r" an NLL of \S+", " an NLL", text.partition(" with a slope of ")[0][:60])


def _sets(word: str, shape: str) -> Any:
    found = sets.fit(word, odd(shape).replace(split="val"), 0.8)
    result = sets.measure(found, odd(shape, "test"))
    return {"sizes": found(odd(shape, "test")).sum(dim=1), "result": result}


def _trusted(word: str, shape: str) -> Any:
    method = TRUST.get(word)
    known: dict[str, Any] = {}
    if method.spec.wants == "features":
        known = {"features": rows_of(shape, "val")}
    if method.spec.wants == "members":
        return None
    fitted = (
        trust.fit(word, odd(shape).replace(split="val"), *known.values()) if method.spec.trained else trust.fit(word)
    )
    values = fitted(odd(shape, "test"), *([rows_of(shape, "test")] if known else []))
    return {"values": values, "threshold": fitted.threshold}


def _decided(shape: str) -> Any:
    test = odd(shape, "test")
    classes = test.num_classes
    costs = (np.arange(classes)[:, None] - np.arange(classes)[None]) ** 2 + (
        np.arange(classes)[:, None] > np.arange(classes)[None]
    )
    found = {
        f"{abstain} {capacity}": decisions.decide(test, costs=costs.astype(float), abstain=abstain, capacity=capacity)
        for abstain in (None, 0.3)
        for capacity in (None, 0, 3)
    }
    return {name: {"actions": own.actions, **_plain(vars(own))} for name, own in found.items()}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (int, float, str, tuple, list, np.ndarray, torch.Tensor)
    return {k: v for k, v in values.items() if isinstance(v, kinds) and not (isinstance(v, float) and math.isinf(v))}


def _points(shape: str) -> Any:
    asked: dict[str, dict[str, Any]] = {
        "risk": {"risk": 0.3},
        "coverage": {"coverage": 0.5},
        "sgr": {"risk": 0.4, "method": "sgr"},
        "fallback": {"risk": 0.3, "method": "fallback"},
        "class": {"coverage": 0.7, "per_class": True},
        "risks": {"risk": {"error": 0.5}},
    }
    found = {}
    for name, options in asked.items():
        point = or_line(lambda options=options: confide.operating_point(odd(shape).replace(split="val"), **options))
        found[name] = point if isinstance(point, str) else point.to_dict()
        if not isinstance(point, str) and point.certified:
            found[f"{name} seen"] = vars(confide.evaluation.operating_points.observed(point, odd(shape, "test")))
    return found


def _difficult(word: str) -> Any:
    """Of few rows, of two equal ones, of a constant column, of a class of one sample."""
    rows, labels = entries.features("train")[:17].copy(), entries.labels("train")[:17] % 3
    if DIFFICULTY.get(word).spec.source == "log":
        log = np.random.default_rng(3).dirichlet(np.ones(3), size=(1, 2, 17))
        log[0, 0, 3] = (1.0, 0.0, 0.0)
        return np.asarray(difficulty.score(word, log, labels).values)
    twins = rows.copy()
    twins[4], labels_of_one = twins[9], labels.copy()
    labels_of_one[labels_of_one == 2], labels_of_one[0] = 1, 2
    constant = rows.copy()
    constant[:, 2] = 1.0
    cases = {
        "few": (rows, labels),
        "twins": (twins, labels),
        "constant": (constant, labels),
        "one": (rows, labels_of_one),
    }
    return {
        name: or_line(lambda case=case: np.asarray(difficulty.score(word, *case).values))
        for name, case in cases.items()
    }
