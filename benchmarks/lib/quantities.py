"""Numbers that tables and figures are made of, each from the cells of a study: functions `Study -> values`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.lib.cells import calibrator_of, numbers
from benchmarks.lib.items import Study
from benchmarks.lib.results import CALIBRATED, measured, stage_of
from benchmarks.lib.sources import OOD
from benchmarks.lib.titles import scaled
from benchmarks.lib.values import Value
from confide import Predictions, calibrators, difficulty, files
from confide.metrics import calibration_test
from confide.results import LEVEL

Values = Callable[[Study], list[Value]]
DIFFICULTY_GROUPS = 10
"""Groups of equal size, from easy to hard."""


def clean(methods: Sequence[str], metrics: Sequence[str], stages: Sequence[str] = ("raw",)) -> Values:
    """Metrics of clean test data."""
    return lambda study: measured(study.results, study.datasets, methods, metrics, stages)


def cells_of(study: Study, methods: Sequence[str]) -> Iterator[tuple[str, str, int, Mapping[str, Any]]]:
    """(dataset, method, seed, result) of every cell that is there."""
    for dataset in study.datasets:
        for method in methods:
            for seed, result in study.results.of(dataset, method).items():
                yield dataset, method, seed, result


def after(methods: Sequence[str], words: Sequence[str], metrics: Sequence[str]) -> Values:
    """Metrics after calibrators fitted here on the kept validation logits; cells that kept facts only are left out."""

    def values(study: Study) -> list[Value]:
        rows = []
        for dataset, method, seed, result in cells_of(study, methods):
            val, test = (study.results.predictions(result, split) for split in ("val", "test"))
            if not val.outputs.all_classes:
                continue
            for word in words:
                row = numbers(calibrators.fit(word, val)(test), tuple(metrics))
                rows += [Value(dataset, method, f"{k}, {word}", seed, scaled(k, v)) for k, v in row.items()]
        return rows

    return values


def shifted(methods: Sequence[str], metric: str = "ece_mass", stage: str = "raw", *, curve: bool = True) -> Values:
    """Median and quartiles over the corruptions of a metric, along the severity, and the mean of all cells.

    Args:
        curve: False leaves the mean alone.
    """

    def values(study: Study) -> list[Value]:
        rows = []
        for dataset, method, seed, result in cells_of(study, methods):
            by_severity: dict[float, list[float]] = {}
            for name, row in result.get("shift", {}).items():
                cell = row.get(stage_of(result, stage))
                if cell is not None:
                    by_severity.setdefault(float(name.rpartition("-")[2]), []).append(scaled(metric, cell[metric]))
            for severity, levels in by_severity.items() if curve else ():
                parts = zip(("lower quartile", "median", "upper quartile"), (25, 50, 75), strict=True)
                rows += [
                    Value(dataset, method, f"{metric}, {word}", seed, float(np.percentile(levels, q)), severity)
                    for word, q in parts
                ]
            if by_severity:
                every = [level for levels in by_severity.values() for level in levels]
                name = f"{metric}, mean of all" if stage == "raw" else f"{metric}, mean of all, {stage}"
                rows.append(Value(dataset, method, name, seed, float(np.mean(every))))
        return rows

    return values


def ood_detection(methods: Sequence[str], scores: Sequence[str]) -> Values:
    """AUROC, AUPR and FPR95 of telling out-of-distribution images, by set and score."""

    def values(study: Study) -> list[Value]:
        rows = []
        for dataset, method, seed, result in cells_of(study, methods):
            for name, by_score in result.get(OOD, {}).items():
                for score in scores:
                    row = by_score.get(score, {})
                    rows += [
                        Value(f"{dataset} / {name}", method, f"{metric}, {score}", seed, 100 * row[metric])
                        for metric in ("fpr95", "auroc", "aupr_in")
                        if row.get(metric) is not None
                    ]
        return rows

    return values


def rejection(methods: Sequence[str], score: str = "entropy") -> Values:
    """Accuracy of what is left when the most uncertain share of the predictions is rejected."""

    def values(study: Study) -> list[Value]:
        points = []
        for dataset, method, seed, result in cells_of(study, methods):
            correct, uncertainty, _ = sample_facts(study, result, score)
            order = np.argsort(uncertainty, kind="stable")
            rows_by_rate = {round(k / 10, 1): order[: max(1, round(len(order) * (1 - k / 10)))] for k in range(10)}
            curve = {rate: 100 * float(correct[rows].mean()) for rate, rows in rows_by_rate.items()}
            points += [Value(dataset, method, "accuracy", seed, value, rate) for rate, value in curve.items()]
            points.append(
                Value(dataset, method, "mean accuracy over rates", seed, float(np.mean(list(curve.values()))))
            )
        return points

    return values


def sample_facts(
    study: Study, result: Mapping[str, Any], score: str = "entropy"
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(correct, uncertainty, confidence) of the test samples of a cell; entropy is kept also where logits are not."""
    predictions = study.results.predictions(result)
    correct = predictions.facts.correct.double().numpy()
    confidence = predictions.facts.confidence.double().numpy()
    if score != "entropy":
        return correct, 1 - confidence, confidence
    if predictions.facts.entropy is not None:
        return correct, predictions.facts.entropy.double().numpy(), confidence
    with np.load(study.results.path(result), allow_pickle=False) as columns:
        return correct, columns["test_entropy"].astype(np.float64), confidence


def misclassified(methods: Sequence[str]) -> Values:
    """Mean entropy and confidence of misclassified test samples."""

    def values(study: Study) -> list[Value]:
        points = []
        for dataset, method, seed, result in cells_of(study, methods):
            correct, entropy, confidence = sample_facts(study, result)
            wrong = correct == 0
            if wrong.any():
                points.append(Value(dataset, method, "entropy of errors", seed, float(entropy[wrong].mean())))
                points.append(
                    Value(dataset, method, "confidence of errors", seed, 100 * float(confidence[wrong].mean()))
                )
        return points

    return values


def by_difficulty(methods: Sequence[str], kinds: Sequence[str] = ("difficulty",)) -> Values:
    """Error rate in ten groups of test samples of equal size, from the easiest (1) to the hardest (10)."""

    def values(study: Study) -> list[Value]:
        points = []
        for dataset, method, seed, result in cells_of(study, methods):
            correct, _, _ = sample_facts(study, result)
            for kind in kinds:
                scores = study.results.split_scores(result, kind)
                if scores is None:
                    continue
                order = np.argsort(scores, kind="stable")
                for band, rows in enumerate(np.array_split(order, DIFFICULTY_GROUPS), 1):
                    error = 100 * float(1 - correct[rows].mean())
                    points.append(Value(dataset, method, f"error by {kind}", seed, error, float(band)))
        return points

    return values


def severities(study: Study) -> list[Value]:
    """Mean difficulty of corrupted images along the severity, and of wrong labels along their share."""
    points = []
    for dataset in study.datasets:
        path = study.results.prepared / f"{dataset}-severity.parquet"
        if not path.exists():
            continue
        columns, _ = files.read_table(path)
        clean_mean = float(columns["mean"][columns["shift"] == "clean"][0])
        curves: dict[str, dict[float, float]] = {}
        for name, x, mean in zip(columns["shift"], columns["severity"], columns["mean"], strict=True):
            if name != "clean":
                curves.setdefault(str(name), {0.0: clean_mean})[float(x)] = float(mean)
        corruptions = [curve for name, curve in curves.items() if name != "label_noise"]
        if corruptions:
            curves["mean of corruptions"] = {
                x: float(np.mean([curve[x] for curve in corruptions])) for x in corruptions[0]
            }
        points += [
            Value(dataset, name, "mean RMD", 0, y, x) for name, curve in curves.items() for x, y in curve.items()
        ]
    return points


def weight_shares(temperatures: Sequence[float], normalize: str) -> Values:
    """Share of the samples, all splits together, whose weight s lies in each tenth of [0, 1]."""

    def values(study: Study) -> list[Value]:
        points = []
        for dataset in study.datasets:
            scores = study.results.scores(dataset)
            if scores is None:
                continue
            for temperature in temperatures:
                weights = difficulty.weights(scores.values, normalize=normalize, temperature=temperature)
                counts = np.histogram(weights, bins=10, range=(0, 1))[0] / len(weights)
                name = f"T = {temperature:g}, {normalize}"
                points += [
                    Value(dataset, name, "share of samples", 0, 100 * float(share), round((k + 0.5) / 10, 2))
                    for k, share in enumerate(counts)
                ]
                points.append(Value(dataset, name, "mean weight", 0, float(weights.mean())))
        return points

    return values


def reliability(methods: Sequence[str], bins: int = 15) -> Values:
    """Accuracy less confidence in bins of equal width, and the ECE."""

    def values(study: Study) -> list[Value]:
        points = measured(study.results, study.datasets, methods, ("ece", "confidence_gap"))
        for dataset, method, seed, result in cells_of(study, methods):
            correct, _, confidence = sample_facts(study, result)
            place = np.minimum((confidence * bins).astype(int), bins - 1)
            for k in range(bins):
                rows = place == k
                if rows.sum() >= 5:
                    gap = 100 * float(correct[rows].mean() - confidence[rows].mean())
                    x = round((k + 0.5) / bins, 3)
                    points.append(Value(dataset, method, "accuracy less confidence", seed, gap, x))
        return points

    return values


def logged(methods: Sequence[str], columns: Mapping[str, str]) -> Values:
    """Columns of the training logs along the epochs, by the names that `columns` gives them."""

    def values(study: Study) -> list[Value]:
        points = []
        for dataset, method, seed, result in cells_of(study, methods):
            last = {name: result["log"][column][-1] for column, name in columns.items() if result["log"].get(column)}
            points += [Value(dataset, method, f"{name}, last", seed, v) for name, v in last.items() if "gamma" in name]
            for column, name in columns.items():
                factor = 1.0 if column.startswith("gamma") or column == "val_nll" else 100.0
                for epoch, value in enumerate(result["log"].get(column, ()), 1):
                    shown = 100 - 100 * value if name.startswith("error") else factor * value
                    points.append(Value(dataset, method, name, seed, shown, float(epoch)))
        return points

    return values


def together(*parts: Values) -> Values:
    """The values of several functions."""
    return lambda study: [value for part in parts for value in part(study)]


def passed(methods: Sequence[str], stages: Sequence[str]) -> Values:
    """Share of the seeds that the calibration test does not reject, and its p-value on all seeds together, by stage.

    All seeds predict the same test images: their labels vary together, so the test on all rejects rather too often.
    """

    def values(study: Study) -> list[Value]:
        points = []
        by_method: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for dataset, method, _, result in cells_of(study, methods):
            by_method.setdefault((dataset, method), []).append(result)
        for (dataset, method), results in by_method.items():
            for stage in stages:
                after = "" if stage == "raw" else f", {stage}"
                ps = [result["measured"][stage_of(result, stage)]["calibration_p"] for result in results]
                share = 100 * sum(p > LEVEL for p in ps) / len(ps)
                points.append(Value(dataset, method, f"seeds not rejected{after}", 0, share))
                p = _p_together(study, results, stage)
                points += [] if p is None else [Value(dataset, method, f"p of all seeds together{after}", 0, p)]
        return points

    return values


def _p_together(study: Study, results: Sequence[Mapping[str, Any]], stage: str) -> float | None:
    """The calibration test on the predictions of several cells, where their logits were kept."""
    logits, labels = [], []
    for result in results:
        predictions = study.results.predictions(result)
        if not predictions.outputs.all_classes:
            return None
        if stage != "raw":
            own = result["method"].get("calibrated", {}) if stage == CALIBRATED else {}
            val = study.results.predictions(result, "val")
            predictions = calibrator_of(stage_of(result, stage), own, val)(predictions)
        logits.append(predictions.logits)
        labels.append(predictions.labels)
    return calibration_test(Predictions(torch.cat(logits), torch.cat(labels)), "ece_mass").p_value
