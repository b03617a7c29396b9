"""What a grid shows: measurements of cells and their means, heat maps, boxes over corruptions, RMD by severity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.core.predictions import Predictions
from confide.core.results import Curve, Evaluation, Measurement
from confide.evaluation.evaluate import evaluate
from confide.evaluation.shift_cells import MEASURED, Cell, Row, Subject

BOX = ("low", "lower_quartile", "median", "upper_quartile", "high")
MEAN = "shift=mean"


@dataclass(frozen=True)
class Measured:
    """Rows of every model and cell."""

    rows: Mapping[tuple[str, Cell], list[Row]]
    cells: tuple[Cell, ...]
    n: int

    def value(self, model: str, cell: Cell, stage: str, metric: str, score: str = "msp") -> float:
        """One number; NaN where it was not measured."""
        for row in self.rows[model, cell]:
            if (row["stage"], row["score"], row["metric"]) == (stage, score, metric):
                return float(row["value"])
        return float("nan")

    def scores(self, model: str, metric: str = "ece") -> tuple[str, ...]:
        """The scores whose values this metric was measured of."""
        rows = self.rows[model, self.cells[0]]
        return tuple(dict.fromkeys(row["score"] for row in rows if row["metric"] == metric))

    @property
    def shifted(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.severity)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.word for cell in self.shifted))

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(sorted({cell.severity for cell in self.shifted}))

    def at(self, severity: int) -> list[Cell]:
        """The cells of a severity; of 0, the clean one."""
        return [cell for cell in self.cells if cell.severity == severity]


def evaluation_of(
    measured: Measured,
    clean: Mapping[str, Predictions],
    subjects: Mapping[str, Subject],
    *,
    seed: int = 0,
    intervals: bool = True,
    **about: Any,
) -> Evaluation:
    """The clean evaluation of every model and stage, and what the cells add to it."""
    measurements: list[Measurement] = []
    curves: list[Curve] = []
    for model, predictions in clean.items():
        for stage, apply in {"raw": _same, **subjects[model].stages}.items():
            found = evaluate(apply(predictions), "core", intervals, model=model, stage=stage, seed=seed)
            measurements += found.measurements
            curves += found.curves
            curves += cell_curves(measured, model, stage)
            curves.append(box_curve(measured, model, stage))
            curves.append(box_curve(measured, model, stage, "ece", "shift_ece_boxes"))
        measurements += cell_rows(measured, model)
        curves += [
            box_curve(measured, model, "raw", "ece", "shift_trust_ece_boxes", score)
            for score in measured.scores(model)
            if score != "msp"
        ]
        if subjects[model].hardness is not None:
            curves.append(rmd_curve(measured, model))
    names = next(iter(clean.values())).class_names
    known = {"title": "Under shift", "unit": "images", "class_names": names, "seed": seed, **about}
    return Evaluation(tuple(measurements), tuple(curves), about={k: v for k, v in known.items() if v is not None})


def _same(predictions: Predictions) -> Predictions:
    return predictions


def cell_rows(measured: Measured, model: str) -> list[Measurement]:
    """Every number of every cell (`shift=fog/3`), its mean over the cells and over those of a severity (0 is clean)."""
    groups: dict[str, Sequence[Cell]] = {cell.group: (cell,) for cell in measured.shifted}
    groups |= {f"shift=severity {s}": measured.at(s) for s in (0, *measured.severities)}
    groups[MEAN] = measured.shifted
    keys = dict.fromkeys((r["stage"], r["score"], r["metric"]) for r in measured.rows[model, measured.cells[0]])
    rows = []
    for group, cells in groups.items():
        for stage, score, metric in keys:
            values = [measured.value(model, cell, stage, metric, score) for cell in cells]
            finite = [v for v in values if np.isfinite(v)]
            mean = float(np.mean(finite)) if finite else float("nan")
            # In a cell of right (or of wrong) predictions alone an AUROC is not defined; the mean is over the others.
            note = (
                f"{len(values) - len(finite)} cells without a value" if finite and len(finite) < len(values) else None
            )
            common: dict[str, Any] = {"stage": stage, "score": score, "group": group, "model": model, "note": note}
            rows.append(Measurement(metric, mean, measured.n, "test", **common))
    return rows


def cell_curves(measured: Measured, model: str, stage: str) -> list[Curve]:
    """One curve per corruption: the numbers by severity, 0 is clean."""
    return [
        _curve(
            "shift_cells",
            [0, *(c.severity for c in measured.shifted if c.word == word)],
            {
                "gap" if metric == "confidence_gap" else metric: [
                    measured.value(model, cell, stage, metric)
                    for cell in measured.cells
                    if cell.word == word or not cell.severity
                ]
                for metric in MEASURED
            },
            model=model,
            stage=stage,
            group=f"corruption={word}",
        )
        for word in measured.words
    ]


def box_curve(
    measured: Measured,
    model: str,
    stage: str,
    metric: str = "confidence_gap",
    kind: str = "shift_boxes",
    score: str = "msp",
) -> Curve:
    """Extremes, quartiles and median over the corruptions, by severity; 0 is clean."""
    severities = (0, *measured.severities)
    boxes = [
        np.quantile(
            [measured.value(model, cell, stage, metric, score) for cell in measured.at(s)], (0, 0.25, 0.5, 0.75, 1)
        )
        for s in severities
    ]
    columns = {name: [float(box[k]) for box in boxes] for k, name in enumerate(BOX)}
    tags = {} if score == "msp" else {"score": score}
    return _curve(kind, severities, columns, model=model, stage=stage, **tags)


def rmd_curve(measured: Measured, model: str) -> Curve:
    """RMD of the images by severity: mean and quantiles of a cell, averaged over the corruptions."""
    severities = (0, *measured.severities)
    columns = {
        name: [
            float(np.mean([measured.value(model, c, "raw", f"rmd_{name}") for c in measured.at(s)])) for s in severities
        ]
        for name in ("mean", *BOX)
    }
    return _curve("rmd_severity", severities, columns, model=model)


def label_noise_curve(
    hardness: Callable[[Any, Any], Any],
    features: Any,
    labels: Any,
    noisy: Callable[[Any, float], Any],
    *,
    rates: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    model: str = "model",
) -> Curve:
    """RMD of the same samples as more and more of their labels are wrong.

    Args:
        noisy: (labels, rate) -> labels, such as `shift.noisy_labels` with its ids.
    """
    columns: dict[str, list[float]] = {name: [] for name in ("mean", *BOX)}
    for rate in rates:
        hard = np.asarray(hardness(features, noisy(labels, rate)), dtype=np.float64)
        columns["mean"].append(float(hard.mean()))
        for name, value in zip(BOX, np.quantile(hard, (0.025, 0.25, 0.5, 0.75, 0.975)), strict=True):
            columns[name].append(float(value))
    held = {"rate": tuple(float(r) for r in rates), **{k: tuple(v) for k, v in columns.items()}}
    return Curve("rmd_label_noise", held, model=model, split="test")


def _curve(kind: str, severities: Sequence[int], columns: Mapping[str, Sequence[float]], **tags: Any) -> Curve:
    held = {"severity": tuple(float(s) for s in severities), **{k: tuple(v) for k, v in columns.items()}}
    return Curve(kind, held, split="test", **tags)
