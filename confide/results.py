"""What an evaluation holds and a report may show: MetricInfo, Measurement, Curve, Comparison, Sample, Evaluation.

Plain numbers and words only, so that an Evaluation is a JSON file and the report needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from confide.checks import InputError
from confide.files import formats

EVALUATION_FORMAT = "evaluation/2"
OLD_FORMATS = ("evaluation/1",)  # without `metrics`

LEVEL = 0.05
"""Below this p a test is believed; intervals hold 1 - LEVEL."""
TAILS = (LEVEL / 2, 1 - LEVEL / 2)
"""The quantiles at the ends of an interval."""
Z = 1.959963984540054
"""The same ends of a standard normal, in standard deviations."""

Better = Literal["higher", "lower", "neither"]
MetricKind = Literal["mean", "calibration", "ranking", "separation"]


@dataclass(frozen=True)
class MetricInfo:
    """What a reader is told about a metric; stands at its definition and travels inside an Evaluation.

    Args:
        word: the name in measurements, such as `ece_mass`.
        title: the name in headings, such as "ECE, equal mass".
        meaning: one plain sentence.
        better: which direction is good; `neither` where a value alone is neither good nor bad.
        kind: `mean` over samples, `calibration` error (has a chance level and a test), `ranking` by a score, or
            `separation` of the scores of right and wrong predictions.
        unit: "%", "pts" (percentage points), "nats", "× 1000", or nothing.
        scale: what a value is multiplied by to be shown in that unit.
        digits: decimals that are shown.
        short: the name in narrow columns, where it is not the title.
        tables: table -> place of its column there; in a table that is not named it has no column.
    """

    word: str
    title: str
    meaning: str = "A metric of this evaluation."
    better: Better = "neither"
    kind: MetricKind = "mean"
    unit: str = ""
    scale: float = 1.0
    digits: int = 3
    short: str = ""
    tables: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def unknown(cls, word: str) -> MetricInfo:
        """What can be told of a word that no metric explains: the word itself, its values as they are."""
        return cls(word, word.replace("_", " "))

    @property
    def arrow(self) -> str:
        """The direction that is good, as an arrow beside the unit; nothing where neither is."""
        return {"higher": "↑", "lower": "↓", "neither": ""}[self.better]

    @property
    def heading(self) -> str:
        """The name of a narrow column, with the unit: `AURC × 1000`."""
        return f"{self.short or self.title} {self.unit}".strip()


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

    @property
    def rejected(self) -> bool:
        """Whether the calibration test says that this is no calibrated model."""
        return self.p_value is not None and self.p_value < LEVEL

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

    Measurements of any metric; a report speaks first of those with a place in its tables (`MetricInfo.tables`), of
    `confidence_gap` (also by group "predicted=NAME", or "class=NAME" of the label) and of `halving_rejection`.
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
    metrics: Mapping[str, MetricInfo] = field(default_factory=dict)
    """What the metrics of the rows are called and mean, by word; those left out are filled in from the registry."""

    def __post_init__(self) -> None:
        unexplained = [word for word in self._metric_words() if word not in self.metrics]
        if unexplained:
            # By name at run time: the record stands below the metrics, and a report needs nothing but the record.
            known = import_module("confide.metrics").explain(unexplained)
            object.__setattr__(self, "metrics", {**self.metrics, **known})

    def _metric_words(self) -> tuple[str, ...]:
        """Words of the measurements and comparisons, and of what a training log names `val_nll`."""
        logged = (name for c in self.curves if c.kind == "training" for name in c.columns)
        words = (
            *(m.metric for m in self.measurements),
            *(c.metric for c in self.comparisons),
            *(name.removeprefix("train_").removeprefix("val_") for name in logged),
        )
        return tuple(dict.fromkeys(words))

    def info(self, metric: str) -> MetricInfo:
        """What a reader is told about a metric; of an unknown word, the word."""
        return self.metrics.get(metric) or MetricInfo.unknown(metric)

    def columns(self, table: str) -> tuple[MetricInfo, ...]:
        """The metrics that have a column in that table, in the order of their places."""
        own = [info for info in self.metrics.values() if table in info.tables]
        return tuple(sorted(own, key=lambda info: info.tables[table]))

    def __repr__(self) -> str:
        """One line for a console, of the first model; the whole would be tens of thousands of characters."""
        first: dict[str, Measurement] = {}
        for m in self.measurements:
            if m.group is None:
                first.setdefault(m.metric, m)
        shown = [f"{c.word} {first[c.word].value:.4g}" for c in self.columns("summary") if c.word in first]
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
            "metrics": {word: asdict(info) for word, info in self.metrics.items()},
        }

    def _repr_html_(self) -> str:
        """The verdict and the table of models, as a notebook shows them."""
        # By name at run time: the core knows no room above it.
        return str(import_module("confide.report").notebook_view(self))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read evaluation.json of this version or of an earlier one."""
        return cls.from_dict(formats.read_json(path), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "evaluation") -> Evaluation:
        """The record of a dictionary made by `to_dict`."""
        found = data.get("format") if isinstance(data, dict) else None
        if found not in (EVALUATION_FORMAT, *OLD_FORMATS):
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
            metrics={word: MetricInfo(**info) for word, info in data.get("metrics", {}).items()},
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
        metrics={word: info for evaluation in evaluations for word, info in evaluation.metrics.items()},
    )
