"""What an evaluation holds and a report may show: Measurement, Curve, Comparison, Sample, Evaluation.

Plain numbers and words only, so that an Evaluation is a JSON file and the report needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from confide.checks import InputError
from confide.files import formats

EVALUATION_FORMAT = "evaluation/1"


@dataclass(frozen=True)
class Measurement:
    """One row of a long, flat table: a metric's value with its 95 % interval.

    `low` and `high` are computed when first asked for if the metric gave a way (`interval`). For calibration errors,
    `chance` is what a perfectly calibrated model of this size would show on average, `chance_high` its 95 % quantile,
    and `p_value` that of the test "this model is perfectly calibrated".
    """

    metric: str
    value: float
    n: int
    split: str | None = None
    stage: str = "raw"  # "raw", or the word of the calibrator applied
    group: str | None = None  # "class=Shirt", "difficulty=hardest fifth", "column=value"
    model: str = "model"
    score: str | None = None  # the confidence score of ranking metrics: "msp", "entropy", "trust:steep_slope"
    chance: float | None = None
    chance_high: float | None = None
    p_value: float | None = None
    note: str | None = None
    interval: Callable[[], tuple[float, float]] | None = field(default=None, repr=False, compare=False)
    bounds: tuple[float, float] | None = None

    def __float__(self) -> float:
        return float(self.value)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; NaN where none is defined."""
        return self._bounds()[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; NaN where none is defined."""
        return self._bounds()[1]

    def _bounds(self) -> tuple[float, float]:
        if self.bounds is None:
            object.__setattr__(self, "bounds", self.interval() if self.interval else (math.nan, math.nan))
        assert self.bounds is not None
        return self.bounds

    def as_row(self) -> dict[str, Any]:
        """The row as it stands in evaluation.json; an interval that was not asked for stays out."""
        row = {k: v for k, v in asdict_shallow(self).items() if k not in ("interval", "bounds")}
        low, high = self.bounds or (None, None)
        return {**row, "low": low, "high": high}


@dataclass(frozen=True)
class Curve:
    """Columns of equal length to draw.

    kinds and columns: `reliability_width`, `reliability_mass` (low high confidence accuracy count band_low band_high);
    `risk_coverage` (coverage risk threshold); `confidence_histogram` (low high right wrong); `difficulty_histogram`
    (low high count); `error_by_difficulty` (low high error error_low error_high count); `training` (epoch and one
    column per logged quantity); `gammas` (epoch, bin0, bin1, ...); `shift_cells` (severity gap accuracy, further
    metrics; one curve per corruption, group="corruption=fog", severity 0 is clean); `shift_boxes` (severity low
    lower_quartile median upper_quartile high: the gap over the corruptions), `shift_ece_boxes` (the same of ECE),
    `shift_trust_ece_boxes` (the same of a trust predictor's chances, named by `score`),
    `rmd_severity` and `rmd_label_noise` (the same of a sample's RMD, by severity and by rate); `ood_histogram` (low
    high known unknown, group="ood=digits"); `ood_roc` (false_positive true_positive, group="ood=digits",
    score="energy"); `trust_outcomes` (low high tp fp tn fn, an edge on the predictor's own line) and `alpha_sweep`
    (alpha_neg tpr tnr auroc), both with the predictor as `score`.

    Reliability curves may be given for several numbers of bins (a row per bin; empty bins count 0); `risk_coverage`
    may add risk_low and risk_high (95 %), has at most a few hundred rows, and ends at coverage 1;
    `confidence_histogram` with a `score` is the histogram of that trust score. The gap is confidence minus accuracy.
    """

    kind: str
    columns: Mapping[str, tuple[float, ...]]
    model: str = "model"
    stage: str = "raw"
    split: str | None = None
    group: str | None = None
    score: str | None = None


@dataclass(frozen=True)
class ComparedRow:
    """One side of a paired test: a model at a stage, and its score where trust scores are compared.

    Predictions that were compared under a name of their own have that name as `model` and no stage.
    """

    model: str
    stage: str | None = None
    score: str | None = None

    def __str__(self) -> str:
        """As it stands in evaluation.json: "cross_entropy/raw", "model/raw/trust:steep_slope"."""
        return "/".join(part for part in (self.model, self.stage, self.score) if part is not None)

    @classmethod
    def of(cls, name: str) -> ComparedRow:
        """The row of "model/stage"; a model's name may hold slashes, a stage's may not."""
        model, _, stage = name.rpartition("/")
        return cls(model, stage) if model else cls(name)


@dataclass(frozen=True)
class Comparison:
    """A paired test of one metric between two rows on the same samples; difference is b minus a."""

    metric: str
    a: ComparedRow
    b: ComparedRow
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    better: str | None = None  # "a", "b", or None where the test does not say

    @property
    def winner(self) -> ComparedRow | None:
        """The better side, or None where the test does not say."""
        return None if self.better is None else self.a if self.better == "a" else self.b

    def as_row(self) -> dict[str, Any]:
        """The row as it stands in evaluation.json."""
        return {**asdict_shallow(self), "a": str(self.a), "b": str(self.b)}


@dataclass(frozen=True)
class Sample:
    """A sample to show in a gallery. `picture` is a data URI, or None; `text` for text data."""

    role: str  # "easiest", "hardest", "suspect"
    id: str
    label: str
    prediction: str | None = None
    confidence: float | None = None
    difficulty: float | None = None
    verdict: str | None = None
    picture: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """All that a report may show.

    Measurements a report looks for first: `accuracy`, `confidence_gap` (confidence minus
    accuracy; also by group "predicted=NAME", or "class=NAME" of the label), `nll`, `brier`, `ece` (equal width),
    `ece_mass` (equal mass; both with chance, chance_high, p_value), `classwise_ece`, `aurc`, `auroc`, `fpr95` (these by
    score too) and `halving_rejection` (the share to reject that halves the error rate, from the risk-coverage curve).
    Operating points: model, stage, score, risk (promised), confidence, threshold (None where none can be promised),
    coverage, n (samples it was chosen on), and as seen on the test split test_coverage, test_risk, test_accepted.
    """

    measurements: tuple[Measurement, ...]
    curves: tuple[Curve, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    samples: tuple[Sample, ...] = ()
    operating_points: tuple[Mapping[str, Any], ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """title, unit ("images"), class_names, label_counts ({name: count} of the test split), config, seed, versions,
    data, commands, timings, missing ({section: why}), stages ({"model/stage": "T = 1.23"}), difficulty (its word),
    focus (the model that the report speaks of), chosen_stage (its calibrator), interval_note (what the intervals are,
    where they are not over the samples), sections (those of the report, where it is not about everything)."""
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line for a console, of the first model; the whole would be tens of thousands of characters."""
        first: dict[str, Measurement] = {}
        for m in self.measurements:
            if m.group is None:
                first.setdefault(m.metric, m)
        shown = [f"{word} {first[word].value:.4g}" for word in ("accuracy", "nll", "ece", "aurc") if word in first]
        counts = [f"{len(getattr(self, name))} {name}" for name in ("measurements", "curves", "comparisons")]
        return f"<Evaluation: {', '.join([*shown, *counts])}; write_report and .save keep it>"

    def find(self, metric: str, **where: Any) -> Measurement:
        """The first measurement of that metric whose fields are as given."""
        for m in self.measurements:
            if m.metric == metric and all(getattr(m, k) == v for k, v in where.items()):
                return m
        raise InputError(f"the evaluation has no measurement '{metric}' with {dict(where)}")

    def value(self, metric: str, **where: Any) -> float:
        """The value of that measurement."""
        return float(self.find(metric, **where))

    def save(self, path: str | Path) -> None:
        """Write evaluation.json, atomically."""
        formats.write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary, ready for JSON."""
        return {
            "format": EVALUATION_FORMAT,
            "measurements": [m.as_row() for m in self.measurements],
            "curves": [asdict(c) for c in self.curves],
            "comparisons": [c.as_row() for c in self.comparisons],
            "samples": [asdict(s) for s in self.samples],
            "operating_points": [dict(p) for p in self.operating_points],
            "about": dict(self.about),
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        """The verdict and the table of models, as a notebook shows them."""
        # By name at run time: the core knows no room above it.
        return str(import_module("confide.report").notebook_view(self))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read evaluation.json of this version."""
        return cls.from_dict(formats.read_json(path), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "evaluation") -> Evaluation:
        """The record of a dictionary made by `to_dict`."""
        found = data.get("format") if isinstance(data, dict) else None
        if found != EVALUATION_FORMAT:
            raise InputError(
                f"{where} must be of format '{EVALUATION_FORMAT}', got {found!r}; make it again with this version"
            )
        measurements = tuple(_measurement(row) for row in data["measurements"])
        return cls(
            measurements=measurements,
            curves=tuple(Curve(**{**c, "columns": _columns(c["columns"])}) for c in data["curves"]),
            comparisons=_comparisons(data["comparisons"], measurements),
            samples=tuple(Sample(**s) for s in data["samples"]),
            operating_points=tuple(data["operating_points"]),
            about=data["about"],
            warnings=tuple(data["warnings"]),
        )


def asdict_shallow(record: Any) -> dict[str, Any]:
    """Fields of a record as a dictionary, values as they are."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _measurement(row: dict[str, Any]) -> Measurement:
    row = dict(row)
    low, high = row.pop("low"), row.pop("high")
    row["value"] = _number(row["value"])
    return Measurement(**row, bounds=None if low is None or high is None else (low, high))


def _columns(columns: dict[str, list[Any]]) -> dict[str, tuple[float, ...]]:
    return {k: tuple(_number(v) for v in values) for k, values in columns.items()}


def _number(value: float | None) -> float:
    """A number of a file, where JSON has null for what is not one."""
    return math.nan if value is None else value


def _comparisons(rows: Iterable[dict[str, Any]], measurements: Iterable[Measurement]) -> tuple[Comparison, ...]:
    """Paired tests of a file; the names of their sides are those of measured rows where there are such."""
    measured: dict[str, ComparedRow] = {}
    for m in measurements:
        row = ComparedRow(m.model, m.stage, m.score)
        measured |= {str(row): row}
        if m.score and m.score.startswith("trust:"):
            # Older files name trust predictors by their word alone.
            measured |= {m.score.removeprefix("trust:"): row, "mcp": replace(row, score="msp")}
    sides = {name: measured.get(name) or ComparedRow.of(name) for c in rows for name in (c["a"], c["b"])}
    return tuple(
        Comparison(
            c["metric"],
            sides[c["a"]],
            sides[c["b"]],
            _number(c["difference"]),
            _number(c["low"]),
            _number(c["high"]),
            _number(c["p_value"]),
            _number(c["p_holm"]),
            c.get("better"),
        )
        for c in rows
    )


def join(
    evaluations: Sequence[Evaluation],
    comparisons: Iterable[Comparison] = (),
    about: Mapping[str, Any] | None = None,
    *,
    samples: Iterable[Sample] = (),
    operating_points: Iterable[Mapping[str, Any]] = (),
    warnings: Iterable[str] = (),
) -> Evaluation:
    """One evaluation with the rows and curves of all, in their order; what stands there twice is kept once."""
    if not evaluations:
        raise InputError("join needs at least one evaluation, got none; evaluate some predictions first")
    known: dict[str, Any] = {}
    for evaluation in evaluations:
        merged = {key: {**(evaluation.about.get(key) or {}), **(known.get(key) or {})} for key in ("stages", "missing")}
        known = {**evaluation.about, **known, **{key: value for key, value in merged.items() if value}}
    curves = {
        (*(v for k, v in asdict_shallow(c).items() if k != "columns"), *c.columns.items()): c
        for evaluation in evaluations
        for c in evaluation.curves
    }
    return Evaluation(
        measurements=tuple(m for evaluation in evaluations for m in evaluation.measurements),
        curves=tuple(curves.values()),
        comparisons=(*(c for evaluation in evaluations for c in evaluation.comparisons), *comparisons),
        samples=tuple(dict.fromkeys((*(s for evaluation in evaluations for s in evaluation.samples), *samples))),
        operating_points=(*(p for evaluation in evaluations for p in evaluation.operating_points), *operating_points),
        about={**known, **(about or {})},
        warnings=tuple(dict.fromkeys((*(w for evaluation in evaluations for w in evaluation.warnings), *warnings))),
    )
