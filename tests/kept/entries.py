"""Small worked cases over every registry, whose numbers are kept: a change of one is meant, or it is an error.

An entry is a name such as `calibrators/beta` and a function that works it out from drawn data. `python -m tests.kept`
writes tests/kept/FAMILY.json anew; look at the difference before it is committed.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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


def _each(call: Callable[..., Any], *values: Any) -> Any:
    """What it says of every value in turn: the line that refuses it, or what comes of it."""
    return [_or_line(lambda value=value: _shown(call(value))) for value in values]


def _shown(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, dict, list, tuple, np.ndarray)) else "taken"


def _split(inputs: Any, n: int) -> Any:
    return confide.data.Split(inputs, np.arange(n) % 3, np.array([f"s{k}" for k in range(n)]))


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
}


def worked_out(make: Callable[[], Any]) -> Any:
    """The numbers of an entry, printed and warned of in silence."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return brief(make())
