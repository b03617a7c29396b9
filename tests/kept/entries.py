"""Small worked cases over every registry, whose numbers are kept: a change of one is meant, or it is an error.

An entry is a name such as `calibrators/beta` and a function that works it out from drawn data. `python -m tests.kept`
writes tests/kept/FAMILY.json anew; look at the difference before it is committed.
"""

from __future__ import annotations

import atexit
import json
import math
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import confide
from confide import calibrators, decisions, difficulty, losses, metrics, models, sets, shift, trust
from confide.calibrators import CALIBRATORS
from confide.difficulty import DIFFICULTY
from confide.evaluation import compare_groups, find_slices, label_thresholds
from confide.models import MODELS
from confide.numerics import binning, binomial, gaussians, logistic, neighbours
from confide.predictions import Predictions
from confide.records import Features
from confide.shift import attacks
from confide.trust import TRUST

N, C, D = 160, 4, 6
NAMES = ("ant", "bee", "cat", "dog")


@cache
def features(split: str, n: int = N) -> np.ndarray:
    draws = np.random.default_rng({"train": 1, "val": 2, "test": 3}[split])
    return 1.2 * np.random.default_rng(0).normal(size=(C, D))[labels(split, n)] + draws.normal(size=(n, D))


@cache
def labels(split: str, n: int = N) -> np.ndarray:
    """The last class is rare: one sample in twenty."""
    draws = np.random.default_rng({"train": 4, "val": 5, "test": 6}[split])
    return draws.choice(C, n, p=(0.4, 0.3, 0.25, 0.05))


@cache
def predictions(split: str = "val", n: int = N) -> Predictions:
    centres = 1.2 * np.random.default_rng(0).normal(size=(C, D))
    distance = ((features(split, n)[:, None] - centres[None]) ** 2).sum(axis=2)
    site = np.array(["north", "south", "west"])[np.arange(n) % 3]
    columns = {"site": site, "age": np.linspace(20, 80, n)}
    return Predictions(-0.9 * distance, labels(split, n), split=split, columns=columns, class_names=NAMES)


def weighted(split: str = "val") -> Predictions:
    return predictions(split).weighted(np.linspace(0.5, 2.0, N))


def by_unit(split: str = "val") -> Predictions:
    units = np.arange(N) // 4
    return predictions(split).replace(columns={**predictions(split).columns, "visit": units}, unit="visit")


def rows_of(split: str) -> Features:
    return Features(features(split), labels(split), predictions(split).ids, "drawn", split)


def brief(values: Any) -> Any:
    """Some values of an array, its mean and its spread; texts and numbers as they are."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    if is_dataclass(values) and not isinstance(values, type):
        values = asdict(values)
    if isinstance(values, np.ndarray) and values.ndim:
        flat = values.reshape(-1)
        if flat.dtype.kind not in "fiub":
            return [str(v) for v in flat[:12]]
        flat = flat.astype(np.float64)
        some = flat[np.unique(np.linspace(0, len(flat) - 1, 9).astype(int))] if len(flat) else flat
        return (
            [*map(brief, some.tolist()), {"mean": brief(float(flat.mean())), "sd": brief(float(flat.std()))}]
            if len(flat)
            else []
        )
    if isinstance(values, Mapping):
        return {str(key): brief(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        if len(values) > 12 and all(isinstance(v, (int, float)) for v in values):
            return brief(np.array(values))
        if len(values) > 12 and not isinstance(values[0], str):
            values = [values[k] for k in np.linspace(0, len(values) - 1, 9).astype(int)]
        return [brief(v) for v in values]
    if isinstance(values, (np.floating, np.integer, np.bool_, np.ndarray)):
        values = values.item()
    if isinstance(values, float):
        return float(f"{values:.8g}") if math.isfinite(values) else str(values)
    return values if values is None or isinstance(values, (bool, int, str)) else str(values)


# Calibrators.


def calibrated(word: str, on: str = "plain", **options: Any) -> Any:
    fitted_on, beside = {"plain": predictions, "weighted": weighted}[on](), {}
    known: dict[str, Any] = {}
    if CALIBRATORS.get(word).spec.wants != "nothing":
        beside = {"features": features("test")}
        known = {"features": features("val"), "fitted": rows_of("train")}
    calibrator = calibrators.fit(word, fitted_on, **known, **options)
    return torch.softmax(calibrator(predictions("test"), **beside).logits.double(), dim=1)


def calibrator_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for method in CALIBRATORS:
        for place, corner in enumerate(({}, *method.corners)):
            yield f"{method.word}{place or ''}", partial(calibrated, method.word, **corner)
    for word in ("temperature", "vector", "beta", "isotonic", "histogram", "dirichlet", "spline"):
        yield f"{word} weighted", partial(calibrated, word, "weighted")
        yield f"{word} prior", partial(calibrated, word, prior=(0.1, 0.2, 0.3, 0.4))
    yield "temperature by site", partial(calibrated, "temperature", by="site")
    yield "temperature by age", partial(calibrated, "temperature", by="age", bands=3)
    yield "choose", lambda: calibrators.choose(predictions(), ["temperature", "vector", "histogram"], folds=3)


# Metrics and evaluations.


def measured(word: str, make: Callable[[], Predictions]) -> Any:
    return numbers(getattr(metrics, word)(make()))


def numbers(found: Any) -> Any:
    """Every number of a measurement: its interval, and what chance would show."""
    if not isinstance(found, confide.Measurement):
        return float(found)
    return [found.value, found.low, found.high, found.chance, found.chance_high, found.p_value, found.n]


def rows(evaluation: Any) -> Any:
    """Every number of an evaluation, by what it is of."""
    kept = {
        f"{m.metric} {m.stage} {m.score} {m.group}": [m.value, *(m.bounds or ()), m.chance, m.p_value, m.n]
        for m in evaluation.measurements
    }
    curves = {f"{c.kind} {k}": vars(c) for k, c in enumerate(evaluation.curves)}
    return {
        "rows": kept,
        "curves": curves,
        "about": {
            k: v
            for k, v in vars(evaluation.about).items()
            if k in ("class_names", "label_counts", "weighted_by", "effective_samples", "unit")
        },
    }


def metric_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for word in metrics.names():
        for name, make in (("plain", predictions), ("weighted", weighted), ("unit", by_unit)):
            yield f"{word} {name}", partial(measured, word, make)


def evaluation_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    def whole(make: Callable[[], Predictions], *args: Any, **options: Any) -> Any:
        return rows(confide.evaluate(make(), *args, **options))

    for name, make in (("plain", predictions), ("weighted", weighted), ("unit", by_unit)):
        yield f"evaluate {name}", partial(whole, make, "all")
        yield f"evaluate bootstrap {name}", partial(whole, make, ["accuracy", "ece", "auroc", "nll"], "bootstrap")
    yield "evaluate prior", partial(whole, predictions, prior=(0.1, 0.2, 0.3, 0.4))
    yield "evaluate by", partial(whole, predictions, ["accuracy", "ece"], by=["site", "class"])
    yield "evaluate strata", partial(whole, predictions, ["accuracy", "ece"], strata="site")
    pairs = partial(confide.Predictions.from_pairs, [1, 0, 1, 1, 0, 1] * 10, np.linspace(0.3, 1, 60))
    yield "evaluate pairs", partial(whole, pairs)
    several = partial(
        Predictions.multilabel, features("val")[:, :3], (features("train")[:, :3] > 0).astype(int), split="val"
    )
    yield "evaluate several labels", partial(whole, several)
    top = Predictions.from_top1
    yield "evaluate top1", partial(whole, partial(top, labels("val"), labels("test"), np.linspace(0.2, 1, N)))
    sharper = Predictions(predictions().logits * 1.7 + torch.linspace(0, 1, C), predictions().labels, split="val")
    yield "compare", lambda: confide.compare(predictions(), sharper)
    yield "compare weighted", lambda: confide.compare(weighted(), sharper, metrics=["accuracy", "ece", "nll"])
    group = (
        [predictions("val"), sharper],
        [Predictions(p.logits * 0.6, p.labels, split="val") for p in (predictions(), sharper)],
    )
    yield "compare groups", lambda: compare_groups(*group, metrics=["accuracy", "nll"])
    for name, options in {
        "risk": {"risk": 0.25},
        "coverage": {"coverage": 0.8},
        "sgr": {"risk": 0.25, "method": "sgr"},
        "fallback": {"risk": 0.3, "method": "fallback"},
        "class": {"coverage": 0.7, "per_class": True},
        "risks": {"risk": {"error": 0.3, "fpr[ant]": 0.5}},
        "margin": {"risk": 0.25, "score": "margin"},
        "expected": {"risk": {"fpr": 0.3}, "promise": "expectation"},
        "one": {"coverage": 1.0},
        "nothing": {"risk": 1e-4},
    }.items():
        yield f"operating point {name}", partial(_point, options)
    yield "slices", lambda: find_slices(predictions("test", 1200)).to_dict()
    limits = {"costs": {"miss": 3, "false_alarm": 1}}, {"f_beta": 1.0}, {"precision": 0.6}
    for options in limits:
        yield f"thresholds {next(iter(options))}", lambda options=options: vars(label_thresholds(several(), **options))
    yield "sketch", lambda: rows(confide.evaluation.evaluate_sketch(confide.evaluation.sketch_of(predictions())))
    yield (
        "ood",
        lambda: confide.evaluation.ood(
            predictions(),
            Predictions(0.3 * predictions("test").logits.flip(1), split="test", ids=np.arange(1000, 1000 + N)),
        ),
    )


def _point(options: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        point = confide.operating_point(predictions(), **options)
        accepted = confide.apply_operating_point(point, predictions("test")) if point.certified else None
    return {"point": point.to_dict(), "accepted": accepted}


# Sets, decisions, watches.


def set_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    def fitted(word: str, **options: Any) -> Any:
        coverage = options.pop("coverage", 0.8)
        beside = {"weights": np.linspace(2, 0.1, N)} if "weights" in options else {}
        found = sets.fit(word, predictions(), coverage, **options)
        inside = found(predictions("test"), **beside)
        return {
            "sizes": inside.sum(dim=1),
            "classes": inside.double(),
            "limits": found.limits(predictions("test"), **beside),
            "notes": list(found.notes),
        }

    for word in sets.names():
        yield word, partial(fitted, word)
        for by in ("class", "cluster", "site"):
            yield f"{word} {by}", partial(fitted, word, by=by)
        yield f"{word} bands", partial(fitted, word, by="age", bands=3)
        yield f"{word} edges", partial(fitted, word, by="age", edges=(30.0, 50.0))
    yield "lac weights", partial(fitted, "lac", weights=np.linspace(0.1, 2, N))
    yield "lac full", partial(fitted, "lac", coverage=0.999)
    yield "lac empty", partial(fitted, "lac", coverage=0.5, allow_empty=True)


def decision_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    costs = np.array([[0, 1, 2, 3], [1, 0, 1, 4], [2, 2, 0, 1], [5, 5, 5, 0]], dtype=float)
    cases: dict[str, dict[str, Any]] = {
        "costs": {"costs": costs},
        "abstain": {"costs": costs, "abstain": 0.4},
        "capacity": {"costs": costs, "capacity": 20},
        "classes": {"costs": [1, 5, 2, 1], "abstain": 0.3, "capacity": 7},
    }
    for name, options in cases.items():
        for kind, make in (("plain", predictions), ("weighted", weighted)):
            yield f"{name} {kind}", partial(_decided, make, options)


def _decided(make: Callable[..., Predictions], options: dict[str, Any]) -> Any:
    decided = decisions.decide(make("test"), **options)
    return {
        "actions": decided.actions,
        "result": decided.result("model", "raw") if callable(getattr(decided, "result", None)) else vars(decided),
    }


def visible(page: str) -> list[str]:
    """The words of a page, and where its lines are drawn."""
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page)
    body = re.sub(r"v?\d+\.\d+\.\d+\w*(\+\w+)?|[0-9a-f]{7,40}|\d{4}-\d\d-\d\d[T ]?[\d:+Z.]*", "", body)
    return [" ".join(part.split()) for part in re.split(r"<[^>]*>", body) if part.strip()]


# Trust, difficulty, numerics.


def trust_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for method in TRUST:
        for place, corner in enumerate(({}, *method.corners)):
            yield f"{method.word}{place or ''}", partial(_trusted, method.word, dict(corner))


def _trusted(word: str, options: dict[str, Any]) -> Any:
    quick = {name: value for name, value in {"epochs": 2, "folds": 2}.items() if name in TRUST.get(word).options}

    def evidence(split: str) -> Any:
        if TRUST.get(word).spec.wants != "members":
            return features(split)
        noise = np.random.default_rng(9).normal(size=(3, N, C))
        return predictions(split).logits + torch.from_numpy(noise)

    fitted = trust.fit(word, predictions(), evidence("val"), **quick | options)
    return {
        "values": fitted(predictions("test"), evidence("test")),
        "threshold": fitted.threshold,
        "scale": fitted.scale,
    }


def difficulty_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for method in DIFFICULTY:
        for place, corner in enumerate(({}, *method.corners)):
            yield f"{method.word}{place or ''}", partial(_difficult, method.word, dict(corner))
    yield "verdicts", _verdicts


def _difficult(word: str, options: dict[str, Any]) -> Any:
    if DIFFICULTY.get(word).spec.source == "log":
        log = np.random.default_rng(7).dirichlet(np.ones(C), size=(2, 3, N))
        return np.asarray(difficulty.score(word, log, labels("val"), **options).values)
    fitted = difficulty.fit(word, rows_of("train"), **options)
    own = np.asarray(difficulty.score(word, features("train"), labels("train"), **options).values)
    return {"own": own, "other": np.asarray(fitted.score(rows_of("val")).values)}


def _verdicts() -> Any:
    wrong = labels("train", 400).copy()
    wrong[::20] = (wrong[::20] + 1) % C
    found = difficulty.verdicts(features("train", 400), wrong)
    return {
        name: value
        for name, value in vars(found).items()
        if isinstance(value, (np.ndarray, float, int, str, dict, tuple))
    }


def numeric_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    values, weights = np.random.default_rng(0).random(97), np.linspace(0.2, 3, 97)
    losses, at = np.random.default_rng(1).random(60), np.array([0.0, 1 / 15, 0.2, 0.5, 1.0, *values[:20]])
    for bins in (1, 2, 15):
        for name in ("split_edges", "interpolated_edges", "order_edges"):
            edges = getattr(binning, name)
            yield f"{name} {bins}", lambda edges=edges, bins=bins: [edges(values, bins), edges(values, bins, weights)]
        for closed in ("right", "left"):
            yield (
                f"width_bin_of {bins} {closed}",
                lambda bins=bins, closed=closed: binning.width_bin_of(at.copy(), bins, closed).tolist(),
            )
        yield (
            f"mass_bin_of_rank {bins}",
            lambda bins=bins: [
                binning.mass_bin_of_rank(97, bins).tolist(),
                binning.mass_bin_of_rank(97, bins, weights).tolist(),
            ],
        )
    for events, n in ((0, 1), (1, 1), (0, 40), (3, 40), (20, 40), (40, 40), (999, 5000)):
        yield (
            f"bounds {events} {n}",
            lambda events=events, n=n: [
                binomial.upper_bound(events, n, 0.05),
                binomial.lower_bound(events, n, 0.05),
                binomial.clopper_pearson(events, n, 0.9),
                [binomial.binomial_p(events, n, rate) for rate in (0.01, 0.1, 0.5, 0.99)],
                [
                    binomial.hoeffding_bentkus_p(events + 0.25 * (events < n), n, mean)
                    for mean in (0.01, 0.1, 0.5, 0.99)
                ],
                binomial.mean_upper_bound(events, n, 0.05),
                binomial.wilson_interval(events / n, n, 1.96),
            ],
        )
    yield (
        "weighted bounds",
        lambda: [
            binomial.weighted_upper_bound(losses, weights[:60], 0.1),
            [binomial.weighted_mean_p(losses, weights[:60], m) for m in (0.3, 0.5, 0.7, 0.9)],
            binomial.right_tails(30, np.linspace(0.2, 0.9, 50)),
        ],
    )
    signals, correct = features("val"), labels("val") == predictions().facts.predicted.numpy()
    yield (
        "logistic",
        lambda: [
            vars(logistic.fit_logistic(signals, correct)),
            vars(logistic.fit_logistic(signals, correct, 0.1, np.linspace(0.5, 2, N))),
            logistic.platt_targets(correct),
            logistic.platt_targets(correct, np.linspace(0.5, 2, N)),
        ],
    )
    yield (
        "linear classifier",
        lambda: vars(
            logistic.fit_linear_classifier(torch.from_numpy(signals).float(), torch.from_numpy(labels("val")), C, 1.0)
        ),
    )
    for shrinkage in ("auto", "ledoit_wolf", "oas", 0.0, 0.3):
        yield f"gaussians {shrinkage}", partial(_gaussian, shrinkage)
    for k in (1, 3, 20):
        for own in (True, False):
            points = features("val") if own else features("train")
            yield (
                f"neighbours {k} {own}",
                lambda k=k, own=own, points=points: neighbours.nearest_neighbours(
                    features("val"), points, k, exclude_self=own
                ),
            )
    for distance in ("l2", "cosine"):
        yield (
            f"centres {distance}",
            lambda distance=distance: [
                neighbours.nearest_centre(signals, signals[:5], distance=distance),
                neighbours.distances_to(signals, signals[:5], np.arange(N) % 5, distance=distance),
            ],
        )
    many = np.random.default_rng(3).random((4, 3000))
    for k in (1, 2, 7, 60, 2999):
        yield (
            f"smallest {k}",
            lambda k=k: np.sort(np.take_along_axis(many, neighbours.smallest_of_rows(many, k), axis=1), axis=1),
        )


def _gaussian(shrinkage: Any) -> Any:
    fitted = gaussians.fit_gaussians(features("train"), labels("train"), C, shrinkage=shrinkage)
    fit = gaussians.class_fit(fitted, features("val"))
    own = [gaussians.own_distances(fitted, features("val"), labels("val"), relative=flag) for flag in (True, False)]
    return {"fit": vars(fit), "own": own, "shares": gaussians.class_shares(fitted)}


# Images and networks.


def shift_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    y, x = np.mgrid[0:32, 0:32] / 32
    tones = np.random.default_rng(0).uniform(0.2, 0.8, (2, 3, 1, 1)) + 0.3 * np.sin(2 * np.pi * (1.5 * x + 2.5 * y))
    images = (tones.clip(0, 1) * 255).astype(np.uint8)
    large = np.repeat(np.repeat(images, 3, axis=2), 3, axis=3)
    for word in shift.names():
        for severity in (1, 5):
            for name, pictures in (("small", images), ("large", large), ("grey", images[:, :1])):
                if name == "small" or severity == 5:
                    yield f"{word} {severity} {name}", partial(_corrupted, pictures, word, severity)


def _corrupted(images: np.ndarray, word: str, severity: int) -> Any:
    try:
        return shift.corrupt(images, word, severity, ids=np.arange(len(images)), seed=2)
    except confide.checks.InputError as error:
        return str(error)


def model_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    shapes: dict[str, tuple[int, ...]] = {"image": (3, 8, 8), "any": (12,), "text": (20,)}
    for method in MODELS:
        if not method.spec.named and not method.word.endswith("_imagenet"):
            for place, corner in enumerate(({}, *method.corners)):
                yield (
                    f"{method.word}{place or ''}",
                    partial(_network, method.word, shapes[method.spec.takes], dict(corner)),
                )


def _network(word: str, shape: tuple[int, ...], options: dict[str, Any]) -> Any:
    """Its parameters by name and number, and what it says of constant inputs once they are all alike."""
    network = models.create(word, shape, 4, **options).eval()
    sizes = {name: list(p.shape) for name, p in network.named_parameters()}
    with torch.no_grad():
        for k, p in enumerate(network.parameters()):
            p.copy_(torch.linspace(-0.1, 0.12, p.numel()).roll(k).reshape(p.shape))
        inputs = torch.arange(math.prod(shape)).reshape(1, *shape) % 7
        outputs = network(inputs if MODELS.get(word).spec.takes == "text" else inputs / 7)
    return {"count": len(sizes), "sizes": sum(math.prod(s) for s in sizes.values()), "outputs": outputs}


# Trainings and losses.


def training_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "adam": {"optimizer": "adam", "learning_rate": 0.01},
        "adamw": {"optimizer": "adamw", "learning_rate": 0.01},
        "constant": {"schedule": "constant"},
        "cosine": {"schedule": "cosine", "nesterov": True},
        "sum": {"reduction": "sum", "clip_norm": 2.0},
        "step": {"schedule": "step", "schedule_options": {"milestones": [1]}},
        "crop": {"augment": "crop_flip", "mirror": True},
        "noise": {"label_noise": 0.3, "choose": "nll"},
        "average": {"average": 0.5},
        "focal": {"loss": "focal", "choose": "brier", "choose_after": 1},
        "adafocal": {"loss": "adafocal"},
        "groups": {"loss": "group_dro", "loss_options": {"num_groups": 3}, "group_by": "label", "sampling": "groups"},
        "seed": {"seed": 3, "batch_size": 37},
    }
    for name, options in cases.items():
        yield name, partial(_trained, options)
    yield "without val", partial(_trained, {"val_fraction": 0.2}, val=False)
    for schedule, own in (
        ("one_cycle", {}),
        ("one_cycle", {"warmup": 1}),
        ("cosine", {}),
        ("constant", {}),
        ("step", {"milestones": [2, 3]}),
    ):
        yield f"schedule {schedule} {own}", partial(_schedule, schedule, own)


def _trained(options: dict[str, Any], val: bool = True) -> Any:
    from tests.training.conftest import make_dataset

    settings = confide.training.Settings(**{"model": "mlp", "epochs": 2, "batch_size": 32, "device": "cpu", **options})
    with TemporaryDirectory() as folder:
        dataset = make_dataset(96, size=8, val=val)
        trained = confide.training.fit(dataset, settings, folder=Path(folder) / "run")
        told = confide.training.predict(trained, dataset, "test")
        log = {name: values for name, values in trained.log.items() if "second" not in name}
        return {"log": log, "logits": told.logits}


def _schedule(word: str, own: dict[str, Any]) -> Any:
    from confide.training.settings import cycled_momenta, learning_rates

    settings = confide.training.Settings(schedule=word, schedule_options=own, epochs=4, device="cpu")
    return [[rates(settings, steps) for rates in (learning_rates, cycled_momenta)] for steps in (1, 2, 5)]


def loss_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Values and gradients: of a batch, of one sample, of equal logits, of logits far apart, in both precisions."""
    from tests.conformance.test_losses import CASES, SOFT

    for word, options in CASES:
        # Which of samples that are all but sure comes first hangs on the rounding of a processor.
        far = () if (word, options.get("form")) == ("aurc", "released") else ((6, 40.0),)
        for n, scale in ((12, 2.0), (1, 2.0), (6, 0.0), *far):
            yield f"{word} {options} {n} {scale}", partial(_loss, word, options, n, scale)
        if word in SOFT:
            yield f"{word} {options} soft", partial(_loss, word, options, 12, 2.0, soft=True)


def _loss(word: str, options: dict[str, Any], n: int, scale: float, soft: bool = False) -> Any:
    from tests.conformance.test_losses import batch, needs_of

    results = []
    for kind in (torch.float64, torch.float32)[: 1 + (n == 12)]:
        logits, own = batch(n, 5, scale)
        if soft:
            own = logits.flip(0).softmax(dim=1).to(kind)
        logits = logits.to(kind).requires_grad_()
        module = losses.create(word, reduction="none", **options)
        values = module(logits, own, **needs_of(word, n))
        values.sum().backward()
        gradient = logits.grad
        if (word, options.get("form"), scale) == ("selective_au", "released", 0.0):
            gradient = gradient.sum(dim=0)  # which of equal scores is the quantile is for torch's sort to say
        results.append({"values": values, "gradient": gradient})
    return results


# Scores used further, attacks, files and data.


def use_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    values = np.random.default_rng(0).normal(size=N).round(1)
    right = np.random.default_rng(1).random(N) < 0.7
    for normalize in ("none", "rank", "minmax", "standard"):
        for temperature in (0.3, 1.0):
            yield (
                f"weights {normalize} {temperature}",
                lambda n=normalize, t=temperature: _or_line(
                    lambda: difficulty.weights(values, normalize=n, temperature=t)
                ),
            )
    for bands in (1, 2, 3, 7, N):
        yield f"errors {bands}", lambda bands=bands: difficulty.error_by_difficulty(values, right, bands=bands)
    for count in (2, 3, 5):
        yield f"groups {count}", lambda count=count: difficulty.groups(values, groups=count)
    yield "groups at", lambda: difficulty.groups(values, threshold=float(values[3]))
    scores = [
        confide.Scores(np.arange(N), v, name)
        for name, v in (("rmd", values), ("md", values + 0.5 * right), ("x", -values))
    ]
    yield "agreement", lambda: difficulty.agreement(scores)
    for fraction in (0.001, 0.1, 0.5, 1.0):
        for stratify in (True, False):
            rows = rows_of("val")
            own = confide.Scores(rows.ids, values, "rmd", {}, rows.labels)
            yield (
                f"harden {fraction} {stratify}",
                lambda f=fraction, s=stratify, o=own: _or_line(
                    lambda: vars(difficulty.harden(o, fraction=f, stratify=s))
                ),
            )
            yield (
                f"harden apart {fraction} {stratify}",
                lambda f=fraction, s=stratify, o=own, r=rows: _or_line(
                    lambda: vars(difficulty.harden(o, features=r, fraction=f, stratify=s, similarity=0.9))
                ),
            )
    images = torch.from_numpy(np.random.default_rng(5).random((4, 3, 8, 8))).float()
    weight = torch.linspace(-1, 1, 3 * 64 * 4).reshape(4, -1)
    for word in attacks.names():
        yield (
            f"attack {word}",
            lambda word=word: attacks.attack(
                lambda x: x.flatten(1) @ weight.T, images, torch.arange(4), word, ids=np.arange(4)
            ),
        )
    texts = {
        "semicolons.csv": "id;label;p0;p1\na;0;0.7;0.3\nb;1;0.2;0.8\n",
        "tabs.csv": "y\tprob\n1\t0.7\n0\t0.2\n",
        "top.csv": "label,prediction,confidence\ncat,dog,.5\ndog,dog,1\n",
        "named.csv": "label,prob_cat,prob_dog,site\ncat,0.6,0.4,x\ndog,0.3,0.7,y\n",
        "pairs.jsonl": '{"correct": 1, "confidence": 0.8}\n{"correct": 0, "confidence": 0.4}\n',
        "logits.jsonl": '{"label": 0, "logits": [1, 2.5, 0]}\n{"label": 2, "logits": [0, 0, 3]}\n',
        "ragged.jsonl": '{"label": 0, "logits": [1, 2]}\n{"label": 1, "logits": [1]}\n',
        "empty.csv": "",
        "header.csv": "label,p0,p1\n",
        "several.csv": "label_a,prob_a,label_b,prob_b\n1,0.5,0,0.2\n0,0.1,1,0.9\n",
        "weights.csv": "label,p0,p1,weight\n0,0.7,0.3,2\n1,0.2,0.8,1\n",
    }
    for name, text in texts.items():
        yield f"read {name}", partial(_read, name, text)
    for name, text in {
        "texts.csv": "text,label\n" + "".join(f"word {k},{'ab'[k % 2]}\n" for k in range(30)),
        "rows.csv": "x1,x2,label\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(30)),
        "texts.jsonl": "".join(
            f'{{"text": "word {k}", "label": "{"ab"[k % 2]}", "split": "{("train", "test")[k % 3 == 0]}"}}\n'
            for k in range(30)
        ),
        "none.csv": "a,b\n1,2\n",
    }.items():
        yield f"data {name}", partial(_data, name, text)


def _or_line(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except confide.checks.InputError as error:
        return str(error)


def _read(name: str, text: str) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        record = _or_line(lambda: Predictions.load(path))
        if isinstance(record, str):
            return record.replace(folder, "FOLDER")
        own = {
            "n": len(record),
            "labels": record.labels if record.has_labels else None,
            "ids": list(record.ids[:3]),
            "names": record.class_names,
            "columns": record.columns,
        }
        return {**own, "confidence": record.facts.confidence, "weights": record.weights, "unit": record.unit}


def _data(name: str, text: str) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        dataset = _or_line(lambda: confide.load_dataset(str(path)))
        if isinstance(dataset, str):
            return dataset.replace(folder, "FOLDER")
        splits = {name: [len(split), list(split.ids[:4]), split.labels] for name, split in dataset.splits.items()}
        return {"kind": dataset.kind, "names": dataset.class_names, "splits": splits}


# Answers of language models, pixels and boxes.


def told(make: Callable[[], Any]) -> Any:
    """All that a record tells, and what was warned of; or the one line that refuses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = _or_line(make)
    lines = [str(warning.message) for warning in caught]
    if isinstance(record, str):
        return {"line": record, "warned": lines}
    facts = record.facts
    return {
        "shown": repr(record),
        "ids": [str(own) for own in record.ids[:30]],
        "labels": record.labels.tolist() if record.has_labels else None,
        "right": None if facts.right is None else facts.correct.tolist(),
        "confidence": facts.sureness().tolist() if len(record) else [],
        "columns": {name: [str(v) for v in own[:60]] for name, own in record.columns.items()},
        "unit": record.unit,
        "split": record.split,
        "names": record.class_names,
        "warned": lines,
    }


def answer_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import answers

    rows = [[-1.0, -2.0, -4.0], [-3.0, -2.0], [0.0, -0.5, -9.0]]
    choices: dict[str, Any] = {
        "plain": ((rows, [0, 1, 2]), {}),
        "lengths": ((rows, [0, 1, 2]), {"lengths": [[1, 2, 3], [4, 1], [9, 1, 1]]}),
        "lengths of nothing": ((rows,), {"lengths": [[1, 2, 3], [4, 0], [9, 1, 1]]}),
        "lengths of others": ((rows,), {"lengths": [[1, 2], [4, 1], [9, 1, 1]]}),
        "topics": ((rows, [0, 0, 0]), {"topics": ["a", "b", "a"], "split": "val", "ids": ["x", "y", "z"]}),
        "few topics": ((rows,), {"topics": ["a"]}),
        "one choice": (([[0.0], [1.0, 2.0]],), {}),
        "words": (([["a", "b"]],), {}),
        "nested": (([[[1.0, 2.0]]],), {}),
        "infinite": (([[0.0, float("inf")]],), {}),
        "no list": ((5,), {}),
        "a word": (("ab",), {}),
        "label beyond": ((rows, [0, 2, 0]), {}),
        "label a word": ((rows, ["0", 1, 0]), {}),
        "label at the end": ((rows, [2, 1, 2]), {}),
        "few labels": ((rows, [0, 1]), {}),
        "many choices": (([list(range(26)), list(range(3))],), {}),
        "more choices": (([list(range(27))],), {}),
        "none": (([],), {}),
    }
    for name, (args, options) in choices.items():
        yield f"choice {name}", lambda a=args, o=options: told(lambda: answers.multiple_choice(*a, **o))
    texts = [
        "85 %",
        "I am 0.7 sure",
        "likely",
        "unlikely, 3/10",
        "nothing",
        "100",
        "1",
        "0",
        "almost certain",
        "7 of 10",
    ]
    texts += ["between 60 % and 80 %", "120 %", "-5 %", "1.0", "ten", "Confidence: 9/10", "50", "0,5", "90%.", ""]
    yield "stated", lambda: [answers.parse_confidence(text) for text in texts]
    yield "stated out of ten", lambda: [answers.parse_confidence(text, out_of=10) for text in texts]
    right = [k % 2 for k in range(len(texts))]
    for name, options in {
        "plain": {},
        "unparsed": {"unparsed": 0.5},
        "questions": {"questions": [k // 2 for k in range(len(texts))], "topics": ["a"] * len(texts)},
        "out of range": {"unparsed": 1.5},
    }.items():
        yield f"verbalised {name}", lambda o=options: told(lambda: answers.verbalised(texts, right, **o))
    yield "verbalised of nothing", lambda: told(lambda: answers.verbalised(["nothing"], [1]))
    yield "verbalised without judgement", lambda: told(lambda: answers.verbalised(texts))
    samples = [["Paris", "paris.", "Rome"], ["a", "b"], ["x", "x", "y", "y"], ["The end", "end"]]
    for name, (args, options) in {
        "plain": ((samples,), {}),
        "references": ((samples, ["Paris", "b", "y", "an end"]), {}),
        "several references": ((samples, [["Rome", "Paris"], "b", ["z"], "end"]), {}),
        "answers": ((samples, ["Paris", "b", "y", "end"]), {"answers": ["Rome", "b", "z", "end"]}),
        "judged": ((samples,), {"correct": [[1, 1, 0], [0, 1], [1, 1, 0, 0], [0, 0]]}),
        "judged once": ((samples,), {"correct": [1, 0, 1, 0]}),
        "judged oddly": ((samples,), {"correct": [[1, 1, 0], [0, 1], [1, 1, 0], [0, 0]]}),
        "own rule": ((samples,), {"same": lambda a, b: a[0] == b[0]}),
        "one sample": (([["a"], ["b", "b"]],), {}),
        "no sample": (([[], ["b", "b"]],), {}),
    }.items():
        yield f"agreement {name}", lambda a=args, o=options: told(lambda: answers.agreement(*a, **o))
    yield "normalised", lambda: [answers.normalised(text) for text in ("The  Cat.", "an A", "7,5 %", " x\ty ", "")]
    tables = {
        "stated.csv": ("id,said,right,q,t\na,85 %,1,q1,x\nb,unlikely,0,q1,y\nc,none,1,q2,x\n", {"stated": "said"}),
        "judged.csv": ("id,said,right\na,85 %,1\nb,unlikely,0\n", {"stated": "said", "correct": "right"}),
        "asked.csv": (
            "said,right,q,t\n85 %,1,q1,x\n0.2,0,q1,y\n",
            {"stated": "said", "correct": "right", "question": "q", "topic": "t", "split": "val"},
        ),
        "samples.jsonl": (
            '{"s": ["a", "a", "b"], "ref": "a", "ok": [1, 1, 0]}\n{"s": ["c", "d"], "ref": "d", "ok": [0, 1]}\n',
            {"samples": "s", "reference": "ref"},
        ),
        "judged.jsonl": (
            '{"s": ["a", "a", "b"], "ok": [1, 1, 0]}\n{"s": ["c", "d"], "ok": [0, 1]}\n',
            {"samples": "s", "correct": "ok"},
        ),
        "json.csv": (
            's,ref\n"[""a"", ""a"", ""b""]","[""b"", ""a""]"\n"[""c""]",d\n',
            {"samples": "s", "reference": "ref"},
        ),
        "scalars.csv": ("s\na\nb\n", {"samples": "s"}),
        "choices.jsonl": ('{"l": [-1, -2], "y": 0}\n{"l": [-3, -2], "y": 0}\n', {"log_probs": "l", "label": "y"}),
        "both.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "l", "stated": "y"}),
        "neither.jsonl": ('{"l": [-1, -2], "y": 0}\n', {}),
        "question.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "l", "question": "y"}),
        "unknown.jsonl": ('{"l": [-1, -2], "y": 0}\n', {"log_probs": "x"}),
    }
    for name, (text, options) in tables.items():
        yield f"table {name}", partial(_of_file, "from_table", name, text, options)
    uqlm = "response,ref,score,ok,t\nParis,paris,0.9,1,a\n1900,1901,0.4,0,b\nx,x,,1,a\n"
    for options in (
        {"correct": "ok"},
        {"references": "ref"},
        {"topic": "t", "split": "test"},
        {"correct": "no"},
        {"score": "ref"},
    ):
        yield f"uqlm {options}", partial(_of_file, "from_uqlm", "u.csv", uqlm, {"score": "score", **options})
    yield (
        "uqlm alone",
        partial(_of_file, "from_uqlm", "u.csv", "answer,ref,score\na,a,1\n", {"score": "score", "references": "ref"}),
    )

    def line(number: int, **own: Any) -> str:
        return json.dumps({"doc_id": number, "target": "1", "filtered_resps": [["-3.1", "x"], ["-0.4", "y"]], **own})

    doc, calls = {"doc": {"subject": "law"}}, {"arguments": [["q", " left"], ["q", " rightmost"]]}
    generated = {"filtered_resps": ["85 %"], "resps": [["85 %"]], "exact": 1.0, "metrics": ["exact"]}
    several = {"filtered_resps": ["a"], "resps": [["a", "a", "b"]], "exact": 0.0}
    for name, (lines, options) in {
        "places": ([line(0, acc=1.0), line(1, target="0", acc=0.0)], {}),
        "judged otherwise": ([line(0, acc=0.0), line(1, acc=1.0)], {}),
        "per length": (
            [line(0, acc_norm=1.0, **calls), line(1, target="0", acc_norm=0.0, **calls)],
            {"per_length": True},
        ),
        "texts": ([line(0, target="rightmost", **calls)], {}),
        "named calls": (
            [line(0, target="left", arguments={"a": {"x": "q", "y": "left"}, "b": {"x": "q", "y": "r"}})],
            {},
        ),
        "unknown text": ([line(0, target="middle", **calls)], {}),
        "topic": ([line(0, **doc), line(1, **doc)], {"topic": "subject", "split": "test"}),
        "no topic": ([line(0, **doc), line(1)], {"topic": "subject"}),
        "near topic": ([line(0, **doc)], {"topic": "subjects"}),
        "generated": ([line(0, **generated), line(1, **{**generated, "exact": 0.0})], {}),
        "generated by name": ([line(0, **generated, other=0.0)], {"metric": "other"}),
        "two metrics": ([line(0, **{**generated, "metrics": ["exact", "f1"]})], {}),
        "no metric": ([line(0, **{**generated, "metrics": None})], {}),
        "a fraction": ([line(0, **{**generated, "exact": 0.5})], {}),
        "sampled": ([line(0, **several), line(1, **several)], {"metric": "exact"}),
        "sampled once": (
            [line(0, **several), line(1, **{**several, "resps": [["a"]]})],
            {"metric": "exact", "unparsed": 0.3},
        ),
        "mixed": ([line(0), line(1, **generated)], {}),
        "lacking": (['{"doc_id": 0, "target": 1}'], {}),
        "empty": ([line(0, filtered_resps=[])], {}),
        "odd document": ([line(0, doc=[1])], {}),
        "a list": (["[1]"], {}),
        "no answers": ([""], {}),
    }.items():
        yield (
            f"lm-eval {name}",
            partial(_of_file, "from_lm_eval", "samples_arc_2024-05-01T10-00-00.jsonl", "\n".join(lines), options),
        )


def _of_file(function: str, name: str, text: str, options: dict[str, Any]) -> Any:
    from confide import answers

    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(text)
        out = told(lambda: getattr(answers, function)(Path(folder) / name, **options))
        return json.loads(json.dumps(out).replace(folder, "FOLDER"))


def dense_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import dense

    draw = np.random.default_rng(2)
    logits = draw.normal(size=(2, 3, 5, 4))
    masks = np.where(draw.random((2, 5, 4)) < 0.2, 255, draw.integers(0, 3, (2, 5, 4)))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for name, options in {
        "plain": {},
        "boundary": {"boundary": [1, 2]},
        "one edge": {"boundary": [1.5]},
        "no edge": {"boundary": []},
        "edges down": {"boundary": [2, 1]},
        "most": {"most": 4, "seed": 1},
        "most all": {"most": 100},
        "most none": {"most": 0},
        "names": {"class_names": ["a", "b", "c"], "ids": ["x", "y"], "split": "val"},
        "few ids": {"ids": ["x"]},
    }.items():
        yield f"pixels {name}", lambda o=options: told(lambda: dense.pixels(logits, masks, **o))
    yield "pixels of probabilities", lambda: told(lambda: dense.pixels(probs=probs, labels=masks))
    yield "pixels of one image", lambda: told(lambda: dense.pixels(logits[:1], masks[:1], boundary=[1]))
    yield "pixels that fit not", lambda: told(lambda: dense.pixels(logits, masks[:, :4]))
    yield "pixels of more masks", lambda: told(lambda: dense.pixels(logits[:1], masks))
    yield "pixels all ignored", lambda: told(lambda: dense.pixels(logits, np.full_like(masks, 255)))
    yield (
        "pixels of another index",
        lambda: told(lambda: dense.pixels(logits, np.where(masks == 255, 7, masks), ignore_index=7)),
    )
    edges = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 255, 1, 1]])
    yield "distance", lambda: dense.boundary_distance(edges).tolist()
    yield "distance of one class", lambda: np.isinf(dense.boundary_distance(np.zeros((3, 3), int))).tolist()
    yield "distance of a row", lambda: dense.boundary_distance(np.array([[0, 0, 0, 1]])).tolist()
    whole = dense.pixels(logits, masks, ids=["x", "y"])
    yield "maps", lambda: [[str(v) for v in part.reshape(-1)] for part in dense.maps(whole, "y")]
    yield "maps of nobody", lambda: _or_line(lambda: dense.maps(whole, "z"))
    yield "are pixels", lambda: [dense.are_pixels(whole), dense.are_pixels(predictions())]
    found = [
        [[0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]],
        [[0, 0, 31, 31], [0, 0, 32, 32], [0, 0, 96, 96], [5, 5, 5, 9]],
    ]
    sure, kinds = [[0.9, 0.8, 0.7], [0.5, 0.6, 0.7, 0.4]], [[0, 0, 1], [0, 1, 1, 0]]
    real, real_kinds = [[[0, 0, 10, 10], [50, 50, 58, 60]], [[0, 0, 33, 33], [0, 0, 90, 90]]], [[0, 1], [1, 1]]
    for name, options in {
        "plain": {},
        "low": {"iou": 0.1},
        "exact": {"iou": 1.0},
        "zero": {"iou": 0.0},
        "beyond": {"iou": 1.1},
        "at": {"iou": 0.8},
        "names": {"class_names": ["cat", "dog"], "ids": ["x", "y"], "split": "val"},
    }.items():
        yield f"boxes {name}", lambda o=options: told(lambda: dense.boxes(found, sure, kinds, real, real_kinds, **o))
    for name, parts in {
        "few scores": (found, [[0.9, 0.8], sure[1]], kinds, real, real_kinds),
        "few classes": (found, sure, [[0, 0], kinds[1]], real, real_kinds),
        "few real classes": (found, sure, kinds, real, [[0], [1, 1]]),
        "few images": (found, sure[:1], kinds, real, real_kinds),
        "halves": (found, sure, [[0, 0.5, 1], kinds[1]], real, real_kinds),
        "no boxes": ([[], []], [[], []], [[], []], real, real_kinds),
        "none real": (found, sure, kinds, [[], []], [[], []]),
        "three corners": ([[[0, 0, 1]], []], [[0.5], []], [[0], []], real, real_kinds),
        "words": ([["a"], []], [[0.5], []], [[0], []], real, real_kinds),
        "no image": ([], [], [], [], []),
        "a number": (5, sure, kinds, real, real_kinds),
    }.items():
        yield f"boxes of {name}", lambda p=parts: told(lambda: dense.boxes(*p))
    yield "overlaps", lambda: dense.overlaps(np.array(found[0], float), np.array(real[0], float)).tolist()
    yield "areas", lambda: dense.areas(np.array([[0, 0, 2, 3], [2, 2, 1, 5]], float)).tolist()
    box = {"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}
    names = {"categories": [{"id": 3, "name": "cup"}, {"id": 9, "name": "pot"}]}
    for name, (detected, known) in {
        "one": ([{**box, "score": 0.8}], {"annotations": [box], **names}),
        "crowd": ([{**box, "score": 0.8}], {"annotations": [{**box, "iscrowd": 1}], **names}),
        "shifted": (
            [{**box, "bbox": [2, 0, 10, 10], "score": 0.8}],
            {"annotations": [box, {**box, "image_id": 8}], **names},
        ),
        "unknown": ([{**box, "category_id": 4, "score": 0.8}], {"annotations": [box], **names}),
        "lacking": ([{"image_id": 7}], {"annotations": [box], **names}),
        "no list": ({"a": 1}, {"annotations": [box], **names}),
    }.items():
        yield f"coco {name}", partial(_coco, detected, known)


def _coco(detected: Any, known: Any) -> Any:
    from confide import dense

    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("d.json", "a.json")]
        for path, content in zip(paths, (detected, known), strict=True):
            path.write_text(json.dumps(content))
        return json.loads(json.dumps(told(lambda: dense.from_coco(*paths))).replace(folder, "FOLDER"))


# Charts: every line, text and colour of the axes.


def plot_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import plot
    from confide.results import Curve, Evaluation

    test, many = predictions("test"), Predictions(np.eye(31), np.arange(31))
    other = Predictions(0.5 * test.logits, test.labels, split="test")
    scores = confide.Scores(test.ids, np.linspace(0, 1, N) ** 2, "rmd")

    @cache
    def two() -> Evaluation:
        parts = [
            confide.evaluate(record, ["accuracy"], model=name, stage=stage, scores=scores)
            for record, name, stage in ((test, "a", "raw"), (other, "b", "raw"), (other, "b", "vector"))
        ]
        return confide.evaluation.join(parts)

    def boxes(kind: str, model: str) -> Curve:
        columns = ("severity", "low", "lower_quartile", "median", "upper_quartile", "high")
        values = {name: [k + 0.1 * place for k in range(3)] for place, name in enumerate(columns)}
        return Curve(kind, {**values, "severity": [0, 1, 3]}, model)

    shifted = [
        Evaluation((), tuple(boxes(kind, m) for kind in ("shift_boxes", "shift_ece_boxes") for m in models))
        for models in (("a",), ("a", "b"), tuple("abcdef"))
    ]
    for name, make in {
        "reliability": lambda: plot.reliability(test),
        "reliability mass": lambda: plot.reliability(test, binning="mass", bins=10),
        "reliability stage": lambda: plot.reliability(two(), stage="vector"),
        "reliability bins": lambda: plot.reliability(test, bins=7),
        "risk": lambda: plot.risk_coverage(test),
        "risks": lambda: plot.risk_coverage(two()),
        "risks of a stage": lambda: plot.risk_coverage(two(), stage="vector"),
        "risk of nothing": lambda: plot.risk_coverage(test, score="nobody"),
        "difficulty": lambda: plot.difficulty(test, scores=scores),
        "difficulties": lambda: plot.difficulty(two()),
        "difficulty of nothing": lambda: plot.difficulty(test),
        "confusion": lambda: plot.confusion(test),
        "confusion of counts": lambda: plot.confusion(other, share=False),
        "confusion of six": lambda: plot.confusion(Predictions(np.eye(6), [0, 1, 2, 3, 4, 4])),
        "confusion of five": lambda: plot.confusion(Predictions(np.eye(5), [0, 1, 2, 3, 3])),
        "confusion of 31": lambda: plot.confusion(many),
        "confusion of 30": lambda: plot.confusion(Predictions(np.eye(30), np.arange(30))),
        "sets": lambda: plot.sets(sets.fit("lac", predictions(), 0.8), test),
        "sets without samples": lambda: plot.sets(sets.fit("lac", predictions(), 0.8)),
        "sets without labels": lambda: plot.sets(sets.fit("lac", predictions(), 0.8), Predictions(test.logits)),
        "shift": lambda: plot.shift(shifted[0]),
        "shift of two": lambda: plot.shift(shifted[1]),
        "shift of six": lambda: plot.shift(shifted[2], of="ece"),
        "shift of nothing": lambda: plot.shift(two()),
    }.items():
        yield name, lambda make=make: _drawn(make)


def _drawn(make: Callable[[], Any]) -> Any:
    import matplotlib as mpl
    from matplotlib import pyplot
    from matplotlib.colors import to_hex

    mpl.use("agg")
    ax = _or_line(make)
    if isinstance(ax, str):
        return ax
    colours = {
        type(own).__name__ + str(k): [to_hex(c) for c in (own.get_edgecolor() if own.get_edgecolor().size else [])]
        for k, own in enumerate(ax.collections)
    }
    drawn = {
        "lines": [[own.get_xdata(), own.get_ydata(), to_hex(own.get_color()), own.get_label()] for own in ax.lines],
        "texts": [[*own.get_position(), own.get_text(), to_hex(own.get_color())] for own in ax.texts],
        "offsets": [np.asarray(own.get_offsets()).reshape(-1) for own in ax.collections],
        "paths": [[np.round(path.vertices, 6).reshape(-1) for path in own.get_paths()[:20]] for own in ax.collections],
        "colours": colours,
        "patches": [[own.get_x(), own.get_width(), own.get_height()] for own in ax.patches if hasattr(own, "get_x")],
        "images": [np.asarray(own.get_array()) for own in ax.images],
        "labels": [ax.get_xlabel(), ax.get_ylabel(), ax.get_title()],
        "limits": [*ax.get_xlim(), *ax.get_ylim()],
        "ticks": [[own.get_text(), own.get_rotation()] for own in ax.get_xticklabels()] if ax.images else None,
        "legend": None if ax.get_legend() is None else [t.get_text() for t in ax.get_legend().get_texts()],
        "frame": [side for side, own in ax.spines.items() if own.get_visible()],
        "grid": [own.get_visible() for own in ax.get_ygridlines()[:1]],
        "integer": bool(ax.xaxis.get_major_locator().__dict__.get("_integer")),
        "new": ax.figure.get_size_inches().tolist(),
    }
    pyplot.close(ax.figure)
    return drawn


# What people see: printed tables.


@cache
def inputs_of_commands() -> Path:
    """Small files of every kind that a command reads."""
    kept = TemporaryDirectory()
    atexit.register(kept.cleanup)
    folder = Path(kept.name).resolve()
    for split in ("val", "test"):
        record = predictions(split)
        record.save(folder / f"{split}.npz")
        weighted(split).save(folder / f"{split}_weighted.npz")
        Predictions(0.6 * record.logits, record.labels, split=split).save(folder / f"{split}_other.npz")
        Predictions(record.logits[:, [1, 0, 2, 3]], record.labels, split=split).save(folder / f"{split}_worse.npz")
        Predictions(record.logits, split=split).save(folder / f"{split}_unlabelled.npz")
        (folder / f"{split}_shards").mkdir()
        for k, rows in enumerate(np.array_split(np.arange(N), 3)):
            record.take(rows).save(folder / f"{split}_shards" / f"{k}.parquet")
        confide.Scores(record.ids, np.linspace(-1, 1, N) ** 3, "rmd", {}, record.labels.numpy()).save(
            folder / f"{split}_scores.parquet"
        )
        rows_of(split).save(folder / f"{split}_features.npz")
    rows_of("train").save(folder / "train_features.npz")
    Predictions.multilabel(features("val")[:, :3], (features("train")[:, :3] > 0).astype(int), split="val").save(
        folder / "several.npz"
    )
    sure = np.where(np.arange(900).reshape(300, 3) % 2, 4.0, -4.0)
    Predictions.multilabel(sure, (sure > 0).astype(int), split="val").save(folder / "sure.npz")
    two = predictions("test")
    Predictions(two.logits[:, :2], (two.labels == 1).long(), split="test").save(folder / "two.npz")
    (folder / "costs.csv").write_text("0,1,2,3\n1,0,1,2\n2,1,0,1\n3,2,1,0\n")
    (folder / "costs.yaml").write_text("[[0, 1, 1, 1], [5, 0, 5, 5], [1, 1, 0, 1], [1, 1, 1, 0]]\n")
    (folder / "audited.csv").write_text("id,label\n" + "".join(f"{k},{int(two.labels[k])}\n" for k in range(60)))
    (folder / "bad.csv").write_text("name,label\na,1\n")
    (folder / "stated.csv").write_text(
        "said,right,topic,question\n85 %,1,a,q1\nlikely,0,b,q1\n0.3,1,a,q2\nno idea,0,b,q3\n"
    )
    images = (np.random.default_rng(0).integers(0, 120, (120, 6, 6)) + 60 * (np.arange(120) % 2)[:, None, None]).astype(
        np.uint8
    )
    np.savez(folder / "images.npz", images=images, labels=np.arange(120) % 2)
    np.savez(folder / "others.npz", images=images[:, ::-1] // 2, labels=np.arange(120) % 2)
    (folder / "image_scores.csv").write_text(
        "id,score\n" + "".join(f"sample-{k:05d},{(k * 37) % 120 / 10}\n" for k in range(120))
    )
    masks = np.random.default_rng(1)
    np.savez(
        folder / "masks.npz",
        logits=masks.normal(size=(3, 4, 6, 5)).astype(np.float32),
        labels=np.where(masks.random((3, 6, 5)) < 0.1, 255, masks.integers(0, 4, (3, 6, 5))),
    )
    settings = confide.training.Settings(model="mlp", epochs=1, device="cpu")
    confide.training.fit(confide.load_dataset(str(folder / "images.npz")), settings, folder=folder / "model")
    calibrators.fit("temperature", predictions()).save(folder / "calibrator.json")
    sets.fit("lac", predictions(), 0.8).save(folder / "sets.json")
    confide.operating_point(predictions(), 0.3).save(folder / "point.json")
    confide.operating_point(predictions(), {"error": 0.3, "fpr[ant]": 0.5}).save(folder / "risks.json")
    trust.fit("mcp").save(folder / "trust.json")
    return folder


def printed(*words: str) -> Any:
    """What a command prints in a folder with small files; the workers of an engine are this process."""
    from confide import scale
    from confide.cli.main import main

    def map_items(function: Callable[[Any], Any], items: Any, *, engine: str, workers: int, what: str) -> None:
        print(f"{engine}, {workers} workers: {what}, {len(items)}")
        for item in items:
            function(item)

    with TemporaryDirectory() as name, patch.object(scale, "map_items", map_items):
        folder = Path(name).resolve() / "work"
        shutil.copytree(inputs_of_commands(), folder)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main([word.replace("@", f"{folder}/") for word in words])
            except SystemExit as stop:
                status = stop.code
        text, said = (stream.getvalue().replace(str(folder), "FOLDER") for stream in (out, err))
        result = {"status": status, "said": said.splitlines(), "written": _written(folder)}
        if "--json" in words and text:
            return {**result, "printed": brief(_without_times(json.loads(text)))}
        lines = [line.rstrip() for line in text.splitlines() if " s, " not in line and " ms a sample" not in line]
        return {**result, "printed": lines}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in ("time", "versions") and "second" not in k}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def _written(folder: Path) -> list[str]:
    """New files of a command, the names of parts without what their paths make of them."""
    known = inputs_of_commands()
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = {re.sub(r"-[0-9a-f]{16}\b", "-KEY", str(path)) for path in files if not (known / path).exists()}
    return sorted(names)


COMMANDS = """
evaluate @test.npz --out @e
evaluate @test.npz
evaluate @test_weighted.npz --out @e --metrics all
evaluate @several.npz --out @e
evaluate @test.npz --out @e --by site --no-intervals
evaluate @test.npz --out @e --by site class --metrics accuracy ece --title Mine
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect nll<9
evaluate @test.npz --out @e --metrics core --expect accuracy>0.99 --json
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect-surely accuracy>0.89
evaluate @test.npz --out @e --metrics accuracy --expect accuracy>0.5 --expect-surely
evaluate @test.npz --out @e --expect-surely
evaluate @test.npz --out @e --no-intervals --expect-surely accuracy>0.5
evaluate @test.npz --out @e --scores @test_scores.parquet --metrics accuracy
evaluate @test.npz --out @e --score margin --metrics auroc accuracy
evaluate @test.npz --out @e --prior 0.1 0.2 0.3 0.4 --metrics accuracy nll
evaluate @test.npz --out @e --prior ant=0.1 bee=0.2 cat=0.3 dog=0.4 --metrics accuracy
evaluate @test.npz --out @e --prior ant=x --metrics accuracy
evaluate @test.npz --out @e --unit site --metrics accuracy
evaluate @test_shards --out @e --sketch --metrics accuracy auroc --by site
evaluate @test_shards --exact --metrics auroc --no-intervals
evaluate @test_shards --out @e --engine local --metrics core --expect accuracy>0.99
evaluate @test_shards --out @e --engine local --workers 5 --metrics auroc --expect accuracy>0.5 --title Mine
evaluate @test_shards --out @e --sketch --metrics core --expect-surely ece<0.5
evaluate @test_unlabelled.npz --out @e
compare @test.npz @test_other.npz
compare @test.npz @test_other.npz --json
compare @test.npz @test_other.npz @test_worse.npz --metrics accuracy nll --names a b c
compare @test.npz @test_other.npz --names a
compare @test.npz @test.npz --metrics accuracy
compare @test_weighted.npz @test_other.npz --metrics core --unit site
compare @test.npz @test_other.npz --against @test_worse.npz @val.npz --metrics accuracy
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --metrics accuracy nll --names x y
compare @test.npz @test_other.npz --against @test_worse.npz @test.npz @test_worse.npz --metrics all
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --json --metrics core
compare @test.npz @test_other.npz --against @test_worse.npz @test_worse.npz --names x
calibrate --fit @val.npz --apply @test.npz --methods temperature histogram --out @c.npz
calibrate --fit @val.npz --apply @test.npz --json --methods temperature vector
calibrate --fit @val.npz --apply @test.npz --methods temperature --save @t.json
calibrate --fit @val.npz --apply @test_unlabelled.npz --methods temperature --out @c.csv
calibrate --fit @val.npz --apply @test_unlabelled.npz --methods temperature --json
calibrate --fit @val.npz --apply @val.npz
calibrate --fit @val.npz --apply @test.npz --methods temperature --save @t.txt
calibrate --fit @val.npz --apply @test.npz --methods temperature --out @c.txt
calibrate --fit @val.npz --apply @test.npz --methods temperature --engine local
calibrate --fit @val.npz --apply @test.npz --methods temperature --workers 3
calibrate --fit @val.npz --apply @test.npz --methods temperature --exact
calibrate --fit @val_shards --apply @test.npz --methods vector --exact
calibrate --fit @val_shards --apply @test.npz --methods temperature --exact --by site
calibrate --fit @val_shards --apply @test_shards --methods temperature --exact --out @out
calibrate --fit @val_shards --apply @test.npz --methods temperature --engine local --out @c.npz
calibrate --fit @val.npz --apply @test_shards --methods temperature --engine local --workers 7 --out @out --parts @mine
calibrate --fit @val.npz --apply @test.npz --methods temperature --classes kept
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion knn
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion other=@val_other.npz
calibrate --fit @val.npz --apply @test.npz --methods temperature --opinion other=@val_other.npz,@test_other.npz
calibrate --fit @val.npz --apply @test.npz --methods second_opinion --opinion gaussian --features @val_features.npz \
@test_features.npz --fitted @train_features.npz --classes kept
operating-point @val.npz --risk 0.3
operating-point @val.npz
operating-point @val.npz --risk 0.3 --coverage 0.5
operating-point @val.npz --risk x
operating-point @val.npz --risk error=0.3 --risk fpr[ant]=0.5
operating-point @val.npz --risk error=0.3 --per-class
operating-point @val_weighted.npz --risk 0.3 --out @p.json
operating-point @val_weighted.npz --risk 0.4 --per-class
operating-point @val.npz --risk fpr=0.3 --promise expectation
operating-point @val.npz --risk 0.0001
operating-point @val.npz --coverage 0.8
operating-point @val.npz --coverage 0.8 --json
operating-point @val.npz --risk 0.4 --per-class --out @point.json
operating-point @test.npz --apply @point.json
operating-point @test.npz --apply @point.json --out @accepted.csv --json
operating-point @test_unlabelled.npz --apply @point.json
operating-point @test_unlabelled.npz --apply @risks.json --json
operating-point @test.npz --apply @risks.json
sets --fit @val.npz --apply @test.npz --coverage 0.8
sets --fit @val.npz --apply @test.npz --by class --json
sets --fit @val.npz --load @sets.json
sets --apply @test.npz
sets --fit @val.npz --apply @val.npz
sets --fit @val.npz --out @s.csv
sets --fit @val.npz --report @r
sets --fit @val.npz --save @s.json
sets --load @sets.json --apply @test.npz --out @s.csv --report @r
sets --load @sets.json --apply @test_unlabelled.npz
sets --fit @val.npz --apply @test.npz --by site
sets --fit @val.npz --apply @test.npz --by difficulty --scores @val_scores.parquet @test_scores.parquet --bands 2
sets --fit @val.npz --apply @test.npz --engine local
sets --fit @val_shards --apply @test_shards --engine local --out @out --report @r
sets --fit @val.npz --apply @test_shards --coverage 0.7
sets --fit @val_shards --apply @test.npz --by difficulty --scores @val_scores.parquet @test_scores.parquet
sets --fit @val.npz --coverage 0.999
slices @test.npz
slices @test.npz --json
decide @test.npz --miss 5 --false-alarm 1
decide @two.npz --miss 5 --false-alarm 1 --abstain 0.3
decide @two.npz --miss 5 --false-alarm 1 --capacity 10 --json
decide @two.npz --miss 5
decide @two.npz --miss 5 --false-alarm 1 --costs [[0,1],[5,0]]
decide @two.npz
decide @test.npz --costs @costs.csv --out @a.csv --save @rule.json
decide @test.npz --costs @costs.yaml --abstain 0.1 0.2 0.3 0.4 --report @r
decide @test.npz --costs @bad.csv
decide @test_weighted.npz --costs @costs.csv --calibrator @calibrator.json
labels @several.npz --f-beta 1
labels @several.npz --precision 0.6 --json
labels @several.npz --miss 5
labels @several.npz --miss 5 --false-alarm 1 --save @l.json --out @l.csv
labels @sure.npz --precision 0.6
labels @several.npz --precision 0.3
monitor @watch.jsonl --reference @val.npz --predictions @test.npz --name week --risk 0.5
monitor @watch.jsonl --reference @val.npz
monitor @watch.jsonl --risk 0.5
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --labels @audited.csv --risk 0.05 \
--page @w.html
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --labels @bad.csv
monitor @watch.jsonl --reference @val.npz --predictions @test_unlabelled.npz --point @point.json --json
trust @val.npz @test.npz --only mcp entropy margin --out @trust
trust @val.npz @test.npz --only mcp energy --json --out @trust
train @images.npz --set model=mlp --epochs 1 --device cpu --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --members 2 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --members 0 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --workers 0 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --workers 1025 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --checkpoint-seconds -1 --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --features pixels --out @t
train @images.npz --set model=mlp --epochs 1 --device cpu --json --out @t
predict @model @images.npz --split test --device cpu --out @p.parquet
predict @model @images.npz --split test --device cpu --out @p.parquet --trust @trust.json --ood
predict @model @images.npz --split val --device cpu --out @p.parquet --shift brightness --severity 2 \\
--write-features @f.npz
report @nothing
score @images.npz --features pixels -o @scores.parquet --gallery none
score @images.npz --features pixels -o @scores.parquet --gallery none --json
score @images.npz --features pixels -o @s.parquet --method rmd --method prototype --save-fit @f.safetensors
score @images.npz --features pixels -o @s.parquet --method loss --save-fit @f.safetensors
score @images.npz --features pixels -o @s.parquet --fitted @f.safetensors --method rmd
score @images.npz -o @s.parquet --fitted @f.safetensors --feature-option size=8
score @images.npz -o @s.parquet --fitted @f.safetensors --find-label-errors @l.csv --labels min
score @images.npz --features pixels -o @s.parquet --method rmd --method prototype --find-label-errors @l.csv
score @images.npz --features pixels -o @s.parquet --labels predicted --save-fit @f.safetensors --write-features @r.npz
score @train_features.npz -o @s.parquet --gallery none --no-verdicts
harden @images.npz --scores @image_scores.csv
harden @images.npz --scores @image_scores.csv --split all --fraction 0.05 -o @hard.parquet
harden @images.npz --scores @image_scores.csv --split all --fraction 0.05 --features pixels -o @hard
harden @images.npz --scores @image_scores.csv --split all --features @no_such -o @hard
harden --scores @image_scores.csv -o @hard
harden --scores @test_scores.parquet --predictions @test.npz --groups @g.parquet
harden --scores @test_scores.parquet --predictions @test.npz --bands 5 --groups @g.parquet --bands 1
harden --scores @test_scores.parquet --groups @g.parquet --threshold 0.5 --json
answers @stated.csv --stated said --correct right --topic topic --question question --out @a.parquet
answers @stated.csv --stated said --correct right --unparsed 0.5 --out @a.csv --json
answers @stated.csv --stated said --correct right --score x --out @a.csv
answers @stated.csv --from uqlm --out @a.csv
answers @stated.csv --from lm-polygraph --score x --out @a.csv
answers @stated.csv --out @a.csv
dense @masks.npz --out @d.parquet
dense @masks.npz --boundary 1 2 --most 10 --out @d.parquet --json
dense @masks.npz --truth @masks.npz --most 3 --out @d.parquet
dense @masks.npz --ignore-index 0 --most 7 --seed 3 --out @d.npz
run
run @no.yaml --recipe confide
explore @nothing
evalute
shift @model --data @images.npz --words brightness contrast --severities 1 3 --no-intervals --device cpu --out @s
shift @model --data @images.npz --words brightness --severities 2 --samples 20 --no-calibrate --no-intervals \
--ood @others.npz --trust mcp --device cpu --out @s
"""


def command_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for line in COMMANDS.replace("\\\n", "").strip().splitlines():
        yield line, partial(printed, *line.split())
    yield "options of every verb", _options


def _options() -> Any:
    """Defaults, numbers of values, choices and needs of every flag."""
    from argparse import ArgumentParser
    from importlib import import_module

    from confide.cli.main import VERBS

    flags = {}
    for verb in VERBS:
        parser = ArgumentParser()
        import_module(f"confide.cli.{verb.replace('-', '_')}").configure(parser)
        flags[verb] = {
            action.dest: f"{action.default} {action.nargs} {action.choices} {action.required} {action.const}"
            for action in parser._actions
        }
    return flags


FAMILIES: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Any]]]]] = {
    "calibrators": calibrator_entries,
    "metrics": metric_entries,
    "evaluation": evaluation_entries,
    "sets": set_entries,
    "decisions": decision_entries,
    "trust": trust_entries,
    "difficulty": difficulty_entries,
    "numerics": numeric_entries,
    "shift": shift_entries,
    "models": model_entries,
    "training": training_entries,
    "losses": loss_entries,
    "uses": use_entries,
    "answers": answer_entries,
    "dense": dense_entries,
    "plot": plot_entries,
    "cli": command_entries,
}


def worked_out(make: Callable[[], Any]) -> Any:
    """The numbers of an entry, printed and warned of in silence."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return brief(make())
