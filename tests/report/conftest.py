"""An evaluation with realistic numbers: three models, as trained and after temperature scaling, on 4,000 images."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from confide.evaluation.curves import smooth_reliability
from confide.metrics.view import MetricSamples, View
from confide.predictions import Predictions
from confide.results import (
    About,
    BreakEvenPoint,
    ComparedRow,
    Comparison,
    Curve,
    DecisionResult,
    Evaluation,
    GroupCoverage,
    Measurement,
    ModelPoint,
    Sample,
    SetExample,
    SetResult,
)

CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "<script>")
MODELS = {"cross_entropy": 1.42, "difficulty_entropy": 1.06, "adafocal": 0.85}
SKILL = (0.0, 0.1, 0.02)  # in logits; the second model is the best
CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "fog",
    "jpeg",
    "brightness",
)
N = 4000


@pytest.fixture(scope="session")
def evaluation() -> Evaluation:
    return make_evaluation()


def make_evaluation(n: int = N, pictures: bool = True) -> Evaluation:
    """Everything a report can show."""
    draws = np.random.default_rng(3)
    measurements: list[Measurement] = []
    curves: list[Curve] = []
    difficulty, noise, luck = draws.gamma(2.0, 9.0, n) - 18, draws.normal(0, 0.9, n), draws.random(n)
    predicted = draws.integers(0, len(CLASSES), n)
    for place, (model, temperature) in enumerate(MODELS.items()):
        truth = np.clip(2.75 + SKILL[place] - 0.1 * difficulty + noise, -1.9, 9)
        right = luck < 1 / (1 + np.exp(-truth))
        for stage, scale in (("raw", temperature), ("temperature", 1.0)):
            confidence = 1 / (1 + np.exp(-np.clip(truth * scale, -1.6, 12)))
            confidence = np.maximum(confidence, 0.12)
            measurements += stage_measurements(model, stage, confidence, right, draws, place)
            measurements += class_measurements(model, stage, confidence, right, predicted)
            curves += stage_curves(model, stage, confidence, right, draws)
        curves.append(error_curve(model, difficulty, right))
        curves += training_curves(model, place, draws)
        if place == 0:
            measurements += trust_measurements(model, confidence, right, draws, curves)
    curves += shift_curves(draws)
    curves.append(histogram(difficulty))
    about = {
        "title": "fashion-demo",
        "unit": "images",
        "class_names": list(CLASSES),
        "label_counts": {name: n // len(CLASSES) for name in CLASSES},
        "config": {"data": "fashion-sample", "model": "small_cnn", "losses": list(MODELS), "epochs": 40},
        "seed": 3,
        "data": "fashion-sample: 8,000 training, 2,000 validation, 4,000 test images",
        "versions": {"confide": "0.1.0", "torch": "2.13.0", "python": "3.11"},
        "commands": [
            "confide demo --seed 3 --out runs/fashion-demo",
            "confide report runs/fashion-demo -o report.html",
        ],
        "timings": {"train": 71.2, "evaluate": 8.4},
        "stages": {f"{m}/temperature": f"T = {t:.2f}" for m, t in MODELS.items()},
        "difficulty": "rmd",
    }
    return Evaluation(
        tuple(measurements),
        tuple(curves),
        comparisons(),
        samples(draws, pictures),
        operating_points(),
        About.from_dict(about),
        ("7 images are exact copies of training images; they were kept.",),
        sets=(prediction_sets(n),),
        decisions=(decisions_by_cost(n),),
    )


def prediction_sets(n: int) -> SetResult:
    bands = ("easiest band", "band 2", "band 3", "band 4", "hardest band")
    groups = [GroupCoverage("all", "all samples", n, 2.1, round(0.905 * n), 0.895, 0.914)]
    groups += [
        GroupCoverage("difficulty", name, n // 5, 1 + k, round(0.9 * n // 5), 0.88, 0.92, True, k == 4)
        for k, name in enumerate(bands)
    ]
    groups += [GroupCoverage("class", name, n // 10, 2.0, round(0.09 * n), 0.87, 0.93) for name in CLASSES]
    sizes = tuple((size, round(n * share)) for size, share in ((1, 0.55), (2, 0.25), (3, 0.15), (12, 0.05)))
    examples = (SetExample("img-7", CLASSES, 10, "Bag", 31.0), SetExample("img-9", CLASSES[:3], 3, "<script>", 30.0))
    notes = ("400 of 2,000 samples chose the bands, the others the thresholds",)
    return SetResult("aps", 0.9, 1600, tuple(groups), sizes, "difficulty", examples, notes, "cross_entropy")


def decisions_by_cost(n: int) -> DecisionResult:
    left = [1 - k / 50 for k in range(51)]
    points = tuple(BreakEvenPoint(1 - x, 0.9 * x, 0.3 * x * x, 0.32 * x * x) for x in left)
    shares = dict.fromkeys(CLASSES, 0.08) | {"ask": 0.2}
    values = {"expected_cost": 0.2, "measured_cost": 0.22, "saved_cost": 0.1}
    costs = [measurement(name, value, 0.01, n) for name, value in values.items()]
    warnings = ("the probabilities fail the calibration test",)
    return DecisionResult(n, shares, *costs, n // 5, None, points, warnings, "cross_entropy")


def measurement(metric: str, value: float, half: float, n: int, **more: Any) -> Measurement:
    return Measurement(metric, value, n, split="test", bounds=(value - half, value + half), **more)


def stage_measurements(model, stage, confidence, right, draws, place) -> list[Measurement]:
    n, accuracy = len(right), right.mean()
    gap = confidence.mean() - accuracy
    bins = reliability(confidence, right, 15, "mass")
    ece = float(np.sum(bins["count"] * np.abs(bins["confidence"] - bins["accuracy"])) / n)
    width = reliability(confidence, right, 15, "width")
    ece_width = float(np.nansum(width["count"] * np.abs(width["confidence"] - width["accuracy"])) / n)
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / n)
    where = {"model": model, "stage": stage}
    chance = {"chance": 0.0105, "chance_high": 0.0152, "p_value": 0.000999 if ece > 0.0152 else 0.31}
    order = np.argsort(-confidence)
    aurc = float(np.mean(np.cumsum(~right[order]) / np.arange(1, n + 1)))
    ranks = np.argsort(np.argsort(confidence))
    auroc = float((ranks[right].mean() - (right.sum() - 1) / 2) / (~right).sum())
    nll = float(-np.log(np.where(right, confidence, (1 - confidence) * 0.7)).mean())
    return [
        measurement("accuracy", accuracy, half, n, **where),
        measurement("confidence", confidence.mean(), 0.004, n, **where),
        measurement("confidence_gap", gap, 0.0082, n, chance_high=0.007, **where),
        measurement("nll", nll, 0.03, n, **where),
        measurement("brier", float(np.mean((confidence - right) ** 2)) * 1.6, 0.01, n, **where),
        Measurement("ece_mass", ece, n, "test", bounds=(max(0.0, ece - 0.004), ece + 0.009), **chance, **where),
        Measurement(
            "ece", ece_width, n, "test", bounds=(max(0.0, ece_width - 0.004), ece_width + 0.009), **chance, **where
        ),
        measurement("classwise_ece", ece / 3.2, 0.001, n, **where),
        measurement("aurc", aurc, 0.005, n, **where),
        measurement("auroc", auroc, 0.018, n, **where),
        measurement("augrc", aurc * 0.8, 0.004, n, **where),
        measurement("smooth_ece", ece * 0.9, 0.005, n, **where),
        Measurement("halving_rejection", 0.145 + 0.01 * place, n, "test", bounds=(0.123, 0.166), **where),
    ]


def class_measurements(model, stage, confidence, right, predicted) -> list[Measurement]:
    rows = []
    for k, name in enumerate(CLASSES):
        own = predicted == k
        gap = confidence[own].mean() - right[own].mean()
        rows.append(
            measurement("confidence_gap", gap, 0.021, int(own.sum()), model=model, stage=stage, group=f"class={name}")
        )
    return rows


def reliability(confidence, right, bins, kind) -> dict[str, np.ndarray]:
    if kind == "width":
        place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
        low, high = np.arange(bins) / bins, (np.arange(bins) + 1) / bins
    else:
        place = np.empty(len(confidence), int)
        place[np.argsort(confidence)] = np.arange(len(confidence)) * bins // len(confidence)
        high = np.array([confidence[place == k].max() for k in range(bins)])
        low = np.array([0.0, *high[:-1]])
    count = np.bincount(place, minlength=bins).astype(float)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, confidence, bins) / count
        accuracy = np.bincount(place, right, bins) / count
        spread = 1.96 * np.sqrt(mean * (1 - mean) / count)
    return {
        "low": low,
        "high": high,
        "confidence": mean,
        "accuracy": accuracy,
        "count": count,
        "band_low": np.clip(mean - spread, 0, 1),
        "band_high": np.clip(mean + spread, 0, 1),
    }


def columns(table: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(float(v) for v in values) for name, values in table.items()}


def stage_curves(model, stage, confidence, right, draws) -> list[Curve]:
    where = {"model": model, "stage": stage, "split": "test"}
    found = [
        Curve(f"reliability_{kind}", columns(reliability(confidence, right, bins, kind)), **where)
        for kind in ("width", "mass")
        for bins in (10, 15, 20)
    ]
    edges = np.linspace(0, 1, 21)
    counts = [np.histogram(confidence[own], edges)[0] for own in (right, ~right)]
    table = {"low": edges[:-1], "high": edges[1:], "right": counts[0], "wrong": counts[1]}
    found.append(Curve("confidence_histogram", columns(table), **where))
    found.append(Curve("risk_coverage", columns(risk_coverage(confidence, right)), **where))
    samples = MetricSamples(Predictions.from_pairs(right, confidence))
    found.append(replace(smooth_reliability(View(samples), True), **where))
    return found


def risk_coverage(score, right) -> dict[str, np.ndarray]:
    n, order = len(right), np.argsort(-score)
    keep = np.unique(np.linspace(1, n, 200).astype(int))
    risk = np.cumsum(~right[order])[keep - 1] / keep
    half = 1.96 * np.sqrt(np.maximum(risk * (1 - risk), 0.25 / keep) / keep)
    return {
        "coverage": keep / n,
        "risk": risk,
        "threshold": score[order][keep - 1],
        "risk_low": np.clip(risk - half, 0, 1),
        "risk_high": np.clip(risk + half, 0, 1),
    }


def trust_measurements(model, confidence, right, draws, curves) -> list[Measurement]:
    rows = []
    where = {"model": model, "stage": "temperature"}
    table = {"trust:steep_slope": (0.88, 0.025, 0.52), "margin": (0.846, 0.032, 0.59), "entropy": (0.842, 0.0325, 0.6)}
    for score, (auroc, aurc, fpr) in table.items():
        for metric, value, half in (("auroc", auroc, 0.016), ("aurc", aurc, 0.005), ("fpr95", fpr, 0.06)):
            rows.append(measurement(metric, value, half, len(right), score=score, **where))
    rows.append(measurement("fpr95", 0.585, 0.06, len(right), **where))
    trust = np.where(right, draws.beta(5, 1.2, len(right)), draws.beta(2, 3, len(right)))
    edges = np.linspace(0, 1, 41)
    counts = [np.histogram(trust[own], edges)[0] for own in (right, ~right)]
    histogram = {"low": edges[:-1], "high": edges[1:], "right": counts[0], "wrong": counts[1]}
    more = {**where, "split": "test", "score": "trust:steep_slope"}
    curves.append(Curve("confidence_histogram", columns(histogram), **more))
    curves.append(Curve("risk_coverage", columns(risk_coverage(trust, right)), **more))
    trusted = trust >= 0.5
    cells = {"tp": right & trusted, "fp": ~right & trusted, "tn": ~right & ~trusted, "fn": right & ~trusted}
    counts = {k: np.histogram(trust[own], edges)[0] for k, own in cells.items()}
    curves.append(Curve("trust_outcomes", columns({"low": edges[:-1], "high": edges[1:], **counts}), **more))
    alphas = {"alpha_neg": (0.5, 1, 2, 5), "tpr": (1, 0.97, 0.91, 0.84), "tnr": (0, 0.26, 0.58, 0.78)}
    curves.append(Curve("alpha_sweep", columns(alphas), model=model, split="test", score="trust:steep_slope"))
    for name, area in (("energy", 0.929), ("msp", 0.911)):
        rows.append(measurement("auroc", area, 0.01, 6000, group="ood=digits", score=name, **where))
    return rows


def error_curve(model, difficulty, right) -> Curve:
    edges = np.quantile(difficulty, np.linspace(0, 1, 6))
    place = np.clip(np.searchsorted(edges, difficulty, side="left") - 1, 0, 4)
    error = np.array([(~right[place == k]).mean() for k in range(5)])
    count = np.bincount(place, minlength=5)
    half = 1.96 * np.sqrt(error * (1 - error) / count)
    table = {"low": edges[:-1], "high": edges[1:], "error": error, "error_low": np.maximum(error - half, 0)}
    table |= {"error_high": error + half, "count": count}
    return Curve("error_by_difficulty", columns(table), model=model, stage="temperature", split="test")


def histogram(difficulty) -> Curve:
    counts, edges = np.histogram(difficulty, 45)
    table = {"low": edges[:-1], "high": edges[1:], "count": counts}
    return Curve("difficulty_histogram", columns(table), split="test")


def training_curves(model, place, draws) -> list[Curve]:
    epochs = np.arange(1, 41)
    fall = np.exp(-epochs / 9)
    table = {
        "epoch": epochs,
        "train_loss": 0.05 + 0.05 * place + 0.8 * fall + draws.normal(0, 0.008, 40),
        "val_loss": 0.31 + 0.5 * fall + (0.002 * epochs if place == 0 else 0) + draws.normal(0, 0.012, 40),
        "val_ece": 0.012 + (0.0005 * epochs if place == 0 else 0.004) + draws.normal(0, 0.002, 40),
        "val_ece_by_chance": 0.011 - 0.002 * fall,
        "learning_rate": np.where(epochs < 20, 0.1, 0.01),
    }
    found = [Curve("training", columns(table), model=model, split="train")]
    if model == "adafocal":
        gammas = {"epoch": epochs}
        for k in range(15):
            path = 1 + (k - 3.5) * 0.3 * (1 - fall) + draws.normal(0, 0.06, 40).cumsum() * 0.3
            gammas[f"bin{k}"] = np.where(path < 0.4, path - 0.9, path)
        found.append(Curve("gammas", columns(gammas), model=model))
    return found


def shift_curves(draws) -> list[Curve]:
    found = []
    for place, model in enumerate(MODELS):
        gaps = np.array(
            [[0.002 + (0.052 - 0.008 * place) * s * (1 - k / 9) for s in range(6)] for k in range(len(CORRUPTIONS))]
        )
        gaps += draws.normal(0, 0.006, gaps.shape)
        where = {"model": model, "stage": "temperature", "split": "test"}
        for name, row in zip(CORRUPTIONS, gaps, strict=True):
            table = {"severity": range(6), "gap": row, "accuracy": 0.89 - row}
            found.append(Curve("shift_cells", columns(table), group=f"corruption={name}", **where))
        parts = np.quantile(gaps, [0, 0.25, 0.5, 0.75, 1], axis=0)
        names = ("low", "lower_quartile", "median", "upper_quartile", "high")
        boxes = {"severity": range(6), **dict(zip(names, parts, strict=True))}
        found.append(Curve("shift_boxes", columns(boxes), **where))
        found.append(Curve("shift_ece_boxes", columns(boxes), **where))
        if place == 0:
            found.append(Curve("rmd_severity", columns({k: 40 * np.array(v) for k, v in boxes.items()}), model=model))
            noise = {"rate": np.linspace(0, 0.5, 6), **{k: 9 * np.array(v) for k, v in boxes.items() if k in names}}
            found.append(Curve("rmd_label_noise", columns(noise), model=model))
    edges = np.linspace(0, 1, 21)
    known, unknown = np.histogram(draws.beta(6, 1, 4000), edges)[0], np.histogram(draws.beta(3, 2, 2000), edges)[0]
    where = {"model": "cross_entropy", "stage": "temperature", "split": "test", "group": "ood=digits"}
    table = {"low": edges[:-1], "high": edges[1:], "known": known, "unknown": unknown}
    found.append(Curve("ood_histogram", columns(table), **where))
    false = np.linspace(0, 1, 40)
    for score, power in (("energy", 0.08), ("msp", 0.11)):
        table = {"false_positive": false, "true_positive": false**power}
        found.append(Curve("ood_roc", columns(table), score=score, **where))
    return found


def comparisons() -> tuple[Comparison, ...]:
    found = []
    for stage in ("raw", "temperature"):
        for metric in ("accuracy", "nll"):
            better = "b" if metric == "nll" else None
            p = 0.0004 if better else 0.4
            found.append(compare(metric, f"cross_entropy/{stage}", f"difficulty_entropy/{stage}", p, better))
            found.append(compare(metric, f"adafocal/{stage}", f"difficulty_entropy/{stage}", p, better))
            found.append(compare(metric, f"cross_entropy/{stage}", f"adafocal/{stage}", 0.3, None))
    found += [compare("nll", f"{model}/raw", f"{model}/temperature", 0.0004, "b") for model in MODELS]
    rows = [f"cross_entropy/temperature/{s}" for s in ("trust:steep_slope", "msp", "margin", "entropy")]
    found += [compare("auroc", rows[0], other, 0.002, "a") for other in rows[1:]]
    return tuple(found)


def row(name: str) -> ComparedRow:
    return ComparedRow(*name.split("/"))


def compare(metric: str, a: str, b: str, p: float, better: str | None) -> Comparison:
    return Comparison(
        metric, row(a), row(b), -0.02 if better else 0.001, -0.03, -0.01 if better else 0.03, p, p, better
    )


def operating_points() -> tuple[ModelPoint, ...]:
    where = {"model": "cross_entropy", "stage": "temperature", "score": "msp", "confidence": 0.95, "n": 2000}
    rows = ((0.08, 0.594, 0.91, 0.071), (0.05, 0.816, 0.79, 0.043), (0.03, 0.931, 0.61, 0.024), (0.01, None, 0.0, None))
    return tuple(
        ModelPoint.from_row(
            {
                **where,
                "risk": r,
                "threshold": t,
                "coverage": c,
                "test_coverage": c if t else None,
                "test_risk": s,
                "test_accepted": round(c * N),
            }
        )
        for r, t, c, s in rows
    )


def samples(draws, pictures: bool) -> tuple[Sample, ...]:
    found = []
    for k, name in enumerate(CLASSES):
        for j in range(4):
            for role, score in (("easiest", -17 + j), ("hardest", 90 - 12 * j)):
                wrong = role == "hardest" and (j + k) % 3 == 0
                said = CLASSES[(k + 1) % len(CLASSES)] if wrong else name
                image = picture(draws, k, role == "hardest") if pictures else None
                found.append(Sample(role, f"{k}{j}", name, said, 0.7, score, None, image))
    for k in range(6):
        image = picture(draws, k, False) if pictures else None
        found.append(Sample("suspect", f"0{469 + k}", CLASSES[k], CLASSES[k + 1], 0.97, 40.0, "margin 21", image))
    return tuple(found)


def picture(draws, kind: int, noisy: bool) -> str:
    grid = np.zeros((28, 28))
    grid[4 + kind % 5 : 24 - kind % 4, 6 + kind % 3 : 22 - kind % 6] = 180
    grid += draws.normal(0, 60 if noisy else 8, grid.shape) * (grid > 0)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(grid, 0, 255).astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
