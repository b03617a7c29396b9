"""What an evaluation holds and a report may show: MetricInfo, Measurement, Curve, Comparison, OperatingPoint, Sample,
About, and Evaluation, which holds them all; `join` makes one of several.

Plain numbers and words only, so that an Evaluation is a JSON file and the report needs nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Literal, get_args

from confide.checks import InputError, check_kind, check_options, check_range, check_record, did_you_mean
from confide.files import formats
from confide.files.fitted import DAMAGE, FittedState, load_fitted, save_fitted
from confide.files.frames import as_frame

LEVEL = 0.05
"""Below this p a test is believed; intervals hold 1 - LEVEL."""
TAILS = (LEVEL / 2, 1 - LEVEL / 2)
"""The quantiles at the ends of an interval."""
Z = 1.959963984540054
"""The same ends of a standard normal, in standard deviations."""

PLAIN_SCORES = (None, "msp")
"""Ranking metrics of the plain confidence carry no score, or the word of the maximum softmax probability."""
OWN_CONFIDENCE = ("msp", "trust:mcp", "confidence")
"""The maximum softmax probability under all its names: as a score, as a trust predictor, and in points made by hand."""

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

    def text(self, value: float, more_digits: int = 0) -> str:
        """A value in its unit, as terminals show it: `93.1 %`."""
        return f"{self.number(value, more_digits)} {self.unit}".strip()

    def number(self, value: float, more_digits: int = 0) -> str:
        """The same without the unit."""
        return f"{self.scale * value:.{self.digits + more_digits}f}"

    @property
    def heading(self) -> str:
        """The name of a narrow column, with the unit: `AURC × 1000`."""
        return f"{self.short or self.title} {self.unit}".strip()


@dataclass(frozen=True)
class DifficultyInfo:
    """What a reader is told about a difficulty score; `source` is "features" where no prediction of a model is used."""

    word: str
    meaning: str
    source: str


@dataclass(frozen=True)
class Measurement:
    """One row of a long, flat table: a metric's value with its 95 % interval.

    `low` and `high` are computed when asked for if the metric gave a way (`interval`). For calibration errors,
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

    def __str__(self) -> str:
        """One line: the metric, its value and interval, and what chance would show."""
        name = self.metric if self.plain else f"{self.metric} ({self.score})"
        interval = f", 95 % {self.low:.4g} to {self.high:.4g}" if self.has_interval else ""
        chance = "" if self.chance is None else f", by chance {self.chance:.4g}"
        group = "" if self.group is None else f" [{self.group}]"
        return f"{name}{group} {self.value:.4g}{interval}{chance}, {self.n:,} samples"

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; NaN where none is defined."""
        return self._bounds()[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; NaN where none is defined."""
        return self._bounds()[1]

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are numbers."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def plain(self) -> bool:
        """Whether it is of the plain confidence, and not of another score."""
        return self.score in PLAIN_SCORES

    @property
    def rejected(self) -> bool:
        """Whether the test "this model is perfectly calibrated" rejects it."""
        return self.p_value is not None and self.p_value < LEVEL

    def _bounds(self) -> tuple[float, float]:
        if self.bounds is not None:
            return self.bounds
        return self.interval() if self.interval else (math.nan, math.nan)

    def with_interval(self) -> Measurement:
        """The same with its interval computed, so that a file holds it.

        Returns:
            A measurement with `bounds`.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> confide.metrics.accuracy(p).with_interval().as_row()["low"] < 0.75
            True
        """
        return replace(self, bounds=self._bounds(), interval=None)

    def as_row(self) -> dict[str, Any]:
        """The row as it stands in evaluation.json; an interval that was not computed stays out.

        Returns:
            The fields by name, `low` and `high` last.

        Example:
            >>> row = confide.Measurement("accuracy", 0.9, 10, bounds=(0.6, 0.98)).as_row()
            >>> row["value"], row["low"], row["high"]
            (0.9, 0.6, 0.98)
        """
        row = {k: v for k, v in asdict_shallow(self).items() if k not in ("interval", "bounds")}
        low, high = self.bounds or (None, None)
        return {**row, "low": low, "high": high}


@dataclass(frozen=True)
class CurveKind:
    """What a kind of curve shows, the columns it must have, and those that it may have besides."""

    shows: str
    columns: str
    optional: str = ""


BOX = ("low", "lower_quartile", "median", "upper_quartile", "high")
"""The columns of a box, from its lower whisker to its upper one."""
BOXES = " ".join(BOX)
CURVES = {
    "reliability_width": CurveKind(
        "confidence and accuracy in bins of equal width, a curve per number of bins; an empty bin counts 0",
        "low high confidence accuracy count",
        "band_low band_high",
    ),
    "reliability_mass": CurveKind(
        "the same in bins of equal mass", "low high confidence accuracy count", "band_low band_high"
    ),
    "risk_coverage": CurveKind(
        "error rate of the accepted samples, at most a few hundred rows, the last at coverage 1",
        "coverage risk threshold",
        "risk_low risk_high",
    ),
    "confidence_histogram": CurveKind(
        "right and wrong samples by confidence, or by a trust score named by `score`", "low high right wrong"
    ),
    "difficulty_histogram": CurveKind("samples by difficulty", "low high count"),
    "error_by_difficulty": CurveKind(
        "error rate by group of difficulty", "low high error count", "error_low error_high"
    ),
    "training": CurveKind("what was logged in training", "epoch", "a column per quantity"),
    "gammas": CurveKind("AdaFocal's gamma per bin of confidence", "epoch", "bin0 bin1 ..."),
    "doubts": CurveKind("adaptive difficulty's doubt per group of difficulty; not drawn", "epoch", "band0 band1 ..."),
    "shift_cells": CurveKind(
        'metrics under group="corruption=fog", severity 0 is clean; gap is confidence minus accuracy',
        "severity",
        "gap accuracy ece ...",
    ),
    "shift_boxes": CurveKind("the gap over the corruptions", f"severity {BOXES}"),
    "shift_ece_boxes": CurveKind("ECE over the corruptions", f"severity {BOXES}"),
    "shift_trust_ece_boxes": CurveKind("ECE of the chances of the predictor `score`", f"severity {BOXES}"),
    "rmd_severity": CurveKind("RMD of the samples by severity", f"severity {BOXES}", "mean"),
    "rmd_label_noise": CurveKind("RMD of the samples by share of wrong labels", f"rate {BOXES}", "mean"),
    "ood_histogram": CurveKind('known samples and those of group="ood=digits" by `score`', "low high known unknown"),
    "ood_roc": CurveKind('known samples kept against those of group="ood=digits"', "false_positive true_positive"),
    "trust_outcomes": CurveKind(
        "right and wrong, trusted and not, by the predictor `score`; an edge lies on its own line",
        "low high tp fp tn fn",
    ),
    "alpha_sweep": CurveKind("the oracle `score` by its slope for errors", "alpha_neg tpr tnr", "auroc"),
}
"""The kinds of curves that a report draws. A curve of another kind is kept, saved and not drawn."""


@dataclass(frozen=True)
class Curve:
    """Columns of equal length to draw, and whose they are; `CURVES` says which columns a kind has."""

    kind: str
    columns: Mapping[str, tuple[float, ...]]
    model: str = "model"
    stage: str = "raw"
    split: str | None = None
    group: str | None = None
    score: str | None = None

    def __post_init__(self) -> None:
        needed = CURVES[self.kind].columns if self.kind in CURVES else ""
        if lacking := [name for name in needed.split() if name not in self.columns]:
            raise InputError(
                f"a curve '{self.kind}' must have the columns {needed}, but {', '.join(lacking)} is missing; "
                "give one value a row"
            )
        if len({len(column) for column in self.columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(column)}" for name, column in self.columns.items())
            raise InputError(f"columns of a curve '{self.kind}' must be of one length, got {sizes}; cut or fill them")

    @classmethod
    def of(cls, kind: str, columns: Mapping[str, Iterable[Any]], **whose: Any) -> Curve:
        """The curve of any columns of numbers, such as arrays."""
        return cls(kind, {name: tuple(map(float, column)) for name, column in columns.items()}, **whose)


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
class ClassThreshold:
    """The threshold of one predicted class, None where none can be promised, and what was seen at it."""

    threshold: float | None
    accepted: int
    errors: int
    bound: float | None
    n: int


NAMED_RISKS = ("promise", "risks")
"""Fields that only a point of several risks has."""


@dataclass(frozen=True)
class PromisedRisk:
    """A rate that an operating point promises, such as "fpr[cat]": its limit, and what was counted at the threshold.

    `events` are what counts against it (for precision and recall those that lack), `bound` what can be said of it with
    the point's confidence at that threshold alone.
    """

    label: str
    limit: float
    at_least: bool
    events: float
    n: int
    bound: float | None = None

    @property
    def rate(self) -> float:
        """The rate that was seen; NaN where nothing counts."""
        share = self.events / self.n if self.n else math.nan
        return 1 - share if self.at_least else share


@dataclass(frozen=True)
class OperatingPoint:
    """Accept a prediction if its score is at least `threshold`; None where no threshold can promise the risk.

    The promise is `risk`, or `bound` where a coverage was asked for: with the stated confidence the error rate among
    accepted samples of the same distribution is at most that. `bound` beside a risk is that of the chosen threshold
    alone, without regard to the search. `classes` holds one threshold per predicted class where that was asked for.
    """

    score: str = "msp"
    threshold: float | None = None
    coverage: float = math.nan
    risk: float | None = None
    confidence: float = math.nan
    bound: float | None = None
    accepted: int = 0
    errors: int = 0
    n: int = 0
    method: str = ""
    num_classes: int = 0
    class_names: tuple[str, ...] | None = None
    classes: Mapping[str, ClassThreshold] = field(default_factory=dict)
    note: str = ""
    format: str = formats.OPERATING_POINT.tag
    promise: str = "probability"
    """Whether the promise holds with the stated confidence, or in expectation over calibration sets."""
    risks: tuple[PromisedRisk, ...] = ()
    """All promised risks, where several were asked for by name."""
    largest_weight: float | None = None
    """Where samples were weighted: the promise supposes that none weighs more, in units of their mean weight."""

    @property
    def certified(self) -> bool:
        """Whether there is a threshold at all."""
        return self.threshold is not None or any(own.threshold is not None for own in self.classes.values())

    @property
    def promised(self) -> float | None:
        """The error rate that is promised: the one asked for, or the bound at a coverage asked for."""
        return self.risk or self.bound

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary, ready for JSON; a promised error rate alone is written as it always was."""
        row = asdict(self)
        if self.largest_weight is None:
            del row["largest_weight"]
        named = self.risks or self.promise != "probability"
        return {**row, "format": formats.RISKS_POINT.tag} if named else {k: row[k] for k in row if k not in NAMED_RISKS}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> OperatingPoint:
        """The point of a dictionary made by `to_dict`, or by hand with some of its keys."""
        known = {f.name: row[f.name] for f in fields(cls) if row.get(f.name) is not None}
        known["classes"] = {k: check_record(ClassThreshold(**own)) for k, own in (row.get("classes") or {}).items()}
        if "class_names" in known:
            known["class_names"] = tuple(known["class_names"])
        known["risks"] = tuple(check_record(PromisedRisk(**risk)) for risk in row.get("risks") or ())
        known.pop("format", None)  # of the file, not of the point
        point = check_record(cls(**known))
        for name in ("coverage", "risk", "confidence", "bound"):
            if not math.isnan(rate := math.nan if known.get(name) is None else known[name]):
                check_range(rate, f"{name} of an operating point", 0, 1)
        return point

    def save(self, path: str | Path) -> None:
        """Write as JSON, atomically."""
        save_fitted(path, formats.OPERATING_POINT, FittedState(self.to_dict()))

    @classmethod
    def load(cls, path: str | Path) -> OperatingPoint:
        """Read what `save` wrote."""
        return load_fitted(path, formats.RISKS_POINT, lambda state: cls.from_dict(state.record))


@dataclass(frozen=True)
class ObservedPoint:
    """What an operating point does on labelled samples: the share it accepts, their number, and their error rate with
    its 95 % interval."""

    coverage: float
    risk: float
    accepted: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class ModelPoint:
    """An operating point of a model at a stage, and what was seen of it on the test split."""

    point: OperatingPoint
    model: str | None = None
    stage: str | None = None
    observed: ObservedPoint | None = None

    def as_row(self) -> dict[str, Any]:
        """The row as it stands in evaluation.json."""
        whose = {key: value for key, value in (("model", self.model), ("stage", self.stage)) if value is not None}
        seen = {f"test_{key}": value for key, value in asdict(self.observed).items()} if self.observed else {}
        return {**self.point.to_dict(), **whose, **seen}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ModelPoint:
        """The point of a row; rows written by hand may lack most keys."""
        coverage, risk = row.get("test_coverage"), row.get("test_risk")
        observed = None
        if coverage is not None or risk is not None:
            ends = _number(row.get("test_low")), _number(row.get("test_high"))
            observed = check_record(ObservedPoint(_number(coverage), _number(risk), row.get("test_accepted", 0), *ends))
        return check_record(cls(OperatingPoint.from_dict(row), row.get("model"), row.get("stage"), observed))


@dataclass(frozen=True)
class GroupCoverage:
    """How often the prediction sets of a group of samples hold the true class, with its exact 95 % interval.

    `kind` is "all", "class", or what the group is one of, such as "difficulty". `broken` where a promise was made for
    the group and so little coverage would be seen in less than 5 % of all fits, over all groups of the kind together.
    """

    kind: str
    name: str
    n: int
    size: float  # mean number of classes in a set
    covered: int | None = None  # None without labels
    low: float = math.nan
    high: float = math.nan
    promised: bool = False
    broken: bool = False

    @property
    def share(self) -> float:
        """Covered share; NaN without labels or samples."""
        return math.nan if self.covered is None or not self.n else self.covered / self.n


@dataclass(frozen=True)
class SetExample:
    """A sample with its set, the likeliest class first."""

    id: str
    classes: tuple[str, ...]
    size: int
    label: str | None = None
    difficulty: float | None = None


@dataclass(frozen=True)
class SetResult:
    """What prediction sets do on samples they were not fitted on."""

    word: str
    coverage: float
    """The promise."""
    n_fit: int
    groups: tuple[GroupCoverage, ...]
    sizes: tuple[tuple[int, int], ...]
    """(number of classes, how many sets have so many), rising."""
    by: str | None = None
    examples: tuple[SetExample, ...] = ()
    """The largest sets, the hardest samples first where difficulty is known."""
    notes: tuple[str, ...] = ()
    model: str = "model"
    stage: str = "raw"

    @property
    def whole(self) -> GroupCoverage:
        """All samples together."""
        return next(group for group in self.groups if group.kind == "all")

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> SetResult:
        """The result of a row of evaluation.json."""
        known = {name: row[name] for name in (f.name for f in fields(cls)) if name in row}
        ends = [{end: _number(group[end]) for end in ("low", "high")} for group in row["groups"]]
        known["groups"] = tuple(
            check_record(GroupCoverage(**{**g, **e})) for g, e in zip(row["groups"], ends, strict=True)
        )
        known["sizes"] = tuple((size, count) for size, count in row["sizes"])
        examples = (SetExample(**{**e, "classes": tuple(e["classes"])}) for e in row["examples"])
        known["examples"] = tuple(check_record(example) for example in examples)
        result = check_record(cls(**{**known, "notes": tuple(row["notes"])}))
        if all(group.kind != "all" for group in result.groups) or not result.sizes:
            raise ValueError("prediction sets without a group of all samples, or without sizes")
        return result


@dataclass(frozen=True)
class BreakEvenPoint:
    """Asking a person about this share of the samples pays while it costs less than `price` a sample.

    `expected` and `measured` are the mean cost of the decisions that remain, without the price of asking.
    """

    share: float
    price: float
    expected: float
    measured: float = math.nan


@dataclass(frozen=True)
class DecisionResult:
    """What decisions by cost do: how often each is taken, what they cost by the probabilities and by the labels.

    `saved` is what the likeliest class would have cost more, sample by sample; `threshold` is the probability of class
    1 above which class 1 is decided, where there are two classes and nobody is asked.
    """

    n: int
    shares: Mapping[str, float]
    """Action -> share of the samples, "ask" among them where somebody may be asked."""
    expected: Measurement
    measured: Measurement | None = None
    saved: Measurement | None = None
    deferred: int = 0
    """How many samples a person decides; `asked` in files."""
    threshold: float | None = None
    break_even: tuple[BreakEvenPoint, ...] = ()
    warnings: tuple[str, ...] = ()
    model: str = "model"
    stage: str = "raw"

    def as_row(self) -> dict[str, Any]:
        """The row as it stands in evaluation.json."""
        costs = {name: getattr(self, name) for name in ("expected", "measured", "saved")}
        points = [asdict(point) for point in self.break_even]
        row = {**vars(self), "break_even": points, **{k: None if v is None else v.as_row() for k, v in costs.items()}}
        return {"asked" if name == "deferred" else name: value for name, value in row.items()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> DecisionResult:
        """The result of a row of evaluation.json."""
        row = {"deferred" if name == "asked" else name: value for name, value in row.items()}
        known = {name: row[name] for name in (f.name for f in fields(cls)) if name in row}
        known |= {k: None if row[k] is None else _measurement(row[k]) for k in ("expected", "measured", "saved")}
        points = [{k: _number(v) for k, v in point.items()} for point in row["break_even"]]
        known["break_even"] = tuple(check_record(BreakEvenPoint(**point)) for point in points)
        result = check_record(cls(**{**known, "warnings": tuple(row["warnings"])}))
        if not all(0 <= share <= 1 for share in result.shares.values()):
            raise ValueError("a share of decisions lies outside [0, 1]")
        return result


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
class About:
    """What is known of how an evaluation was made, and what a report says of it. Everything may be missing."""

    class_names: tuple[str, ...] = ()
    num_classes: int | None = None
    label_counts: Mapping[str, int] = field(default_factory=dict)  # of the test split, by class
    difficulty: str | None = None  # the word of the difficulty score
    unit: str | None = None  # what the samples are called: "images"
    weighted_by: str | None = None  # the column of the samples' weights, where these differ
    effective_samples: float | None = None  # how many samples of equal weight they are worth
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # a metric, or a section of the report -> why
    title: str | None = None
    stages: Mapping[str, str] = field(default_factory=dict)  # "model/stage" -> "T = 1.23"
    data: Mapping[str, Any] | str | None = None  # its name and where it comes from
    config: Mapping[str, Any] | str | None = None
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each stage of a run
    commands: tuple[str, ...] = ()  # that make it again
    hardware: str | None = None
    commit: str | None = None
    focus: str | None = None  # the model that the report speaks of; the first unless said
    chosen_stage: str | None = None  # the calibrator that the report speaks of; the first unless said
    interval_note: str | None = None  # what the intervals are, where they are not over the samples
    sections: tuple[str, ...] = ()  # of the report, where it is not about everything
    runs: tuple[str, ...] = ()  # names of the runs that stand side by side
    seeds: Mapping[str, int] = field(default_factory=dict)  # how many, by model
    verdict: str | None = None  # which trust predictors beat the baseline
    extra: Mapping[str, Any] = field(default_factory=dict)  # what users and other versions add

    def over(self, other: About) -> About:
        """This, and what only the other knows; notes on stages, on what is missing and `extra` are merged."""
        absent = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) in (None, (), {})}
        both = {name: (getattr(self, name), getattr(other, name)) for name in ("stages", "missing", "extra")}
        return replace(self, **{**absent, **{name: {**own, **others, **own} for name, (own, others) in both.items()}})

    def to_dict(self) -> dict[str, Any]:
        """One flat dictionary, ready for JSON; what is not known stays out."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**{k: v for k, v in known.items() if v is not None and v not in ((), {})}, **self.extra}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> About:
        """The record of a flat dictionary; keys that it does not know become `extra`."""
        names = {f.name for f in fields(cls)} - {"extra"}
        known = {k: v for k, v in data.items() if k in names and v is not None}
        for name in ("class_names", "commands", "sections", "runs"):
            value = known.get(name, ())
            known[name] = (value,) if isinstance(value, str) else tuple(value)
        return check_record(cls(**known, extra={k: v for k, v in data.items() if k not in names}))


EXPECTATION = re.compile(r"\s*([a-z]\w*)\s*(?:\[(.+)\])?\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*(%?)\s*")
ORDERS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass(frozen=True)
class Expectation:
    """What a measurement must be: "ece<0.03", "accuracy >= 90 %", "accuracy[class=Shirt] > 0.8"."""

    text: str
    metric: str
    group: str | None
    order: str
    limit: float

    @classmethod
    def of(cls, text: str) -> Expectation:
        """The expectation of a text, or one line that says how it is written."""
        parts = EXPECTATION.fullmatch(text) if isinstance(text, str) else None
        try:
            metric, group, order, number, percent = parts.groups() if parts else ("", None, "", "", "")
            return cls(text.strip(), metric, group, order, float(number) / (100 if percent else 1))
        except (ValueError, AttributeError):
            raise InputError(
                f"an expectation must be METRIC, optionally [GROUP], then < <= > or >= and a number, got {text!r:.80}; "
                "write it as 'ece<0.03' or 'accuracy[class=0]>=90%'"
            ) from None

    def broken_by(self, measured: Measurement, surely: bool) -> BrokenExpectation | None:
        """How a measurement breaks it, or None; `surely` asks the whole 95 % interval to hold it."""
        low, high = (measured.low, measured.high) if surely else (math.nan, math.nan)
        value = measured.value if not surely else high if self.order in ("<", "<=") else low
        if not math.isnan(measured.value) and ORDERS[self.order](value, self.limit):
            return None
        return BrokenExpectation(self.text, measured.metric, measured.value, low, high, surely)


@dataclass(frozen=True)
class BrokenExpectation:
    """An expectation that does not hold, with what was measured; as text it is one line."""

    expectation: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    surely: bool = False

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"{self.expectation}: {self.metric} is not defined here"
        if not self.surely:
            return f"{self.expectation}: {self.metric} is {self.value:.6g}"
        if math.isnan(self.low) or math.isnan(self.high):
            return f"{self.expectation}: {self.metric} is {self.value:.6g}, without an interval to be sure"
        return f"{self.expectation}: {self.metric} is {self.value:.6g} (95 % {self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True)
class Evaluation:
    """All that a report may show.

    Measurements of any metric; a report speaks first of those with a place in its tables (`MetricInfo.tables`), of
    `confidence_gap` (also by group "predicted=NAME", or "class=NAME" of the label) and of `halving_rejection`.
    """

    measurements: tuple[Measurement, ...]
    curves: tuple[Curve, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    samples: tuple[Sample, ...] = ()
    operating_points: tuple[ModelPoint, ...] = ()
    about: About = field(default_factory=About)
    warnings: tuple[str, ...] = ()
    metrics: Mapping[str, MetricInfo] = field(default_factory=dict)
    """What the metrics of the rows are called and mean, by word; those left out are filled in from the registry."""
    stage_titles: Mapping[str, str] = field(default_factory=dict)
    """What the stages are called in a sentence, by word; filled in likewise."""
    difficulty: DifficultyInfo | None = None
    """What the difficulty score that `about` names means; filled in likewise."""
    sets: tuple[SetResult, ...] = ()
    """Prediction sets, and what was seen of them."""
    decisions: tuple[DecisionResult, ...] = ()
    """Decisions by cost, and what they cost."""

    def __post_init__(self) -> None:
        about: object = self.about
        if not isinstance(about, About):
            raise InputError(f"about must be an About, got {type(about).__name__}; give About(title=...)")
        # By name at run time: the record stands below the families, and a report needs nothing but the record.
        words = dict.fromkeys((*(m.metric for m in self.measurements), *(c.metric for c in self.comparisons)))
        # A training log names the NLL of the validation samples `val_nll`.
        logged = (name for c in self.curves if c.kind == "training" for name in c.columns)
        words |= dict.fromkeys(name.removeprefix("train_").removeprefix("val_") for name in logged)
        if unexplained := [word for word in words if word not in self.metrics]:
            known = import_module("confide.metrics").explain(unexplained)
            object.__setattr__(self, "metrics", {**self.metrics, **known})
        stages = dict.fromkeys((*(m.stage for m in self.measurements), *(c.stage for c in self.curves)))
        if unnamed := [stage for stage in stages if stage != "raw" and stage not in self.stage_titles]:
            titles = import_module("confide.calibrators").stage_titles(unnamed)
            object.__setattr__(self, "stage_titles", {**self.stage_titles, **titles})
        if self.difficulty is None and self.about.difficulty is not None:
            info = import_module("confide.difficulty").difficulty_info(self.about.difficulty)
            object.__setattr__(self, "difficulty", info)

    def info(self, metric: str) -> MetricInfo:
        """What a reader is told about a metric; of an unknown word, the word.

        Args:
            metric: its word.

        Returns:
            Title, unit, scale, digits, direction and meaning.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> info = confide.evaluate(p, "accuracy", intervals=False).info("accuracy")
            >>> info.title, info.unit, info.better
            ('Accuracy', '%', 'higher')
        """
        return self.metrics.get(metric) or MetricInfo.unknown(metric)

    def columns(self, table: str) -> tuple[MetricInfo, ...]:
        """The metrics that have a column in that table, in the order of their places.

        Args:
            table: such as "models", the main table of a report.

        Returns:
            What a reader is told about each.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> evaluation = confide.evaluate(p, ["nll", "accuracy"], intervals=False)
            >>> [info.title for info in evaluation.columns("models")]
            ['Accuracy', 'NLL', 'Brier']
        """
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
        """The first measurement of that metric whose fields are as given.

        Args:
            metric: its word.
            where: fields and their values: model, stage, split, group (None for all samples), score.

        Returns:
            The measurement, with its interval where it has one.

        Raises:
            InputError: there is none.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> evaluation = confide.evaluate(p, "accuracy", intervals=False)
            >>> evaluation.find("accuracy", group="class=1").n
            3
        """
        check_options("find", "measurements by", where, [entry.name for entry in fields(Measurement)])
        for m in self.measurements:
            if m.metric == metric and all(getattr(m, k) == v for k, v in where.items()):
                return m
        raise InputError(f"the evaluation has no measurement '{metric}' with {dict(where)}")

    def value(self, metric: str, **where: Any) -> float:
        """The value of the first measurement of that metric whose fields are as given.

        Args:
            metric: its word.
            where: fields and their values: model, stage, split, group (None for all samples), score.

        Returns:
            The number.

        Raises:
            InputError: there is none.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> confide.evaluate(p, "accuracy", intervals=False).value("accuracy", group=None)
            0.75
        """
        return float(self.find(metric, **where))

    def expect(self, *expectations: str, surely: bool = False, **where: Any) -> list[BrokenExpectation]:
        """Which expectations do not hold, such as "ece<0.03" or "accuracy[class=Shirt]>=90%".

        Args:
            expectations: a metric, a group in brackets where it is not of all samples, < <= > or >=, and a number.
            surely: the whole 95 % interval must hold it, not the value alone.
            where: fields of the measurement where there are several: model, stage, split, score.

        Returns:
            The broken ones, each one line as text; empty if all hold.

        Raises:
            InputError: a text that is no expectation, or a metric that the evaluation does not have.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> evaluation = confide.evaluate(p, "accuracy")
            >>> evaluation.expect("accuracy>=0.7")
            []
            >>> print(*evaluation.expect("accuracy>=0.8", "accuracy[class=0] >= 90%"))
            accuracy>=0.8: accuracy is 0.75
        """
        broken = []
        for expected in map(Expectation.of, expectations):
            rows = [m for m in self.measurements if m.metric == expected.metric and m.group == expected.group]
            rows = [
                m for m in rows if all(getattr(m, k) == v for k, v in where.items()) and (m.plain or "score" in where)
            ]
            if not rows:
                metrics = {m.metric for m in self.measurements}
                groups = {m.group for m in self.measurements if m.metric == expected.metric and m.group}
                hint = did_you_mean(expected.metric, metrics)
                if expected.metric in metrics and expected.group:
                    hint = did_you_mean(expected.group, groups)
                raise InputError(f"the evaluation has nothing to compare with '{expected.text}'; {hint}")
            broken.append(expected.broken_by(rows[0], surely))
        return [expectation for expectation in broken if expectation is not None]

    def to_frame(self, library: str | None = None) -> Any:
        """The measurements as a data frame, a row each.

        Args:
            library: `pandas` or `polars`; by default the one in use or installed.

        Returns:
            The data frame: model, stage, split, group, metric, score, value, low, high, chance, p_value, n.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
            >>> confide.evaluate(p, "accuracy", intervals=False).to_frame()["value"][0]  # doctest: +SKIP
            0.5
        """
        names = (
            "model",
            "stage",
            "split",
            "group",
            "metric",
            "score",
            "value",
            "low",
            "high",
            "chance",
            "p_value",
            "n",
        )
        return as_frame({name: [getattr(m, name) for m in self.measurements] for name in names}, library)

    def save(self, path: str | Path) -> None:
        """Write evaluation.json, atomically.

        Args:
            path: of the file.

        Example:
            >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
            >>> confide.evaluate(p, "accuracy", intervals=False).save("evaluation.json")
            >>> confide.Evaluation.load("evaluation.json").value("accuracy")
            0.75
        """
        formats.write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary, ready for JSON.

        Returns:
            What stands in evaluation.json.

        Example:
            >>> rows = (confide.Measurement("accuracy", 0.9, 10),)
            >>> confide.Evaluation(rows).to_dict()["measurements"][0]["value"]
            0.9
        """
        return {
            "format": formats.EVALUATION.tag,
            "measurements": [m.as_row() for m in self.measurements],
            "curves": [asdict(c) for c in self.curves],
            "comparisons": [c.as_row() for c in self.comparisons],
            "samples": [asdict(s) for s in self.samples],
            "operating_points": [p.as_row() for p in self.operating_points],
            "sets": [asdict(result) for result in self.sets],
            "decisions": [result.as_row() for result in self.decisions],
            "about": self.about.to_dict(),
            "warnings": list(self.warnings),
            "metrics": {word: asdict(info) for word, info in self.metrics.items()},
            "stage_titles": dict(self.stage_titles),
            "difficulty": None if self.difficulty is None else asdict(self.difficulty),
        }

    def _repr_html_(self) -> str:
        """The verdict and the table of models, as a notebook shows them."""
        # By name at run time: the core knows no room above it.
        return str(import_module("confide.report").notebook_view(self))

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read evaluation.json, of this version or one before.

        Args:
            path: of the file.

        Returns:
            The evaluation.

        Raises:
            InputError: the file is of another format.

        Example:
            >>> confide.Evaluation((confide.Measurement("accuracy", 0.9, 10),)).save("evaluation.json")
            >>> confide.Evaluation.load("evaluation.json").value("accuracy")
            0.9
        """
        return cls.from_dict(formats.read_json(path), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "evaluation") -> Evaluation:
        """The evaluation of a dictionary made by `to_dict`.

        Args:
            data: the dictionary.
            where: what an error names as its place.

        Returns:
            The evaluation.

        Raises:
            InputError: the dictionary is of another format.

        Example:
            >>> data = confide.Evaluation((confide.Measurement("accuracy", 0.9, 10),)).to_dict()
            >>> confide.Evaluation.from_dict(data).value("accuracy")
            0.9
        """
        formats.EVALUATION.check(data.get("format") if isinstance(data, dict) else None, where)
        try:
            return cls._of(data)
        except DAMAGE as error:
            cause = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            remake = formats.EVALUATION.remake
            raise InputError(f"{where} must be what confide wrote, but it is not ({cause}); {remake}") from None

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Evaluation:
        measurements = tuple(_measurement(row) for row in data["measurements"])
        return cls(
            measurements=measurements,
            curves=tuple(check_record(Curve(**{**c, "columns": _columns(c["columns"])})) for c in data["curves"]),
            comparisons=_comparisons(data["comparisons"], measurements),
            samples=tuple(check_record(Sample(**s)) for s in data["samples"]),
            operating_points=tuple(ModelPoint.from_row(row) for row in data["operating_points"]),
            about=About.from_dict(data["about"]),
            warnings=tuple(map(str, data["warnings"])),
            sets=tuple(SetResult.from_row(row) for row in data.get("sets", ())),
            decisions=tuple(DecisionResult.from_row(row) for row in data.get("decisions", ())),
            metrics={word: _metric_info(info) for word, info in data.get("metrics", {}).items()},
            stage_titles=_words(data.get("stage_titles", {}), "stage_titles"),
            difficulty=check_record(DifficultyInfo(**data["difficulty"])) if data.get("difficulty") else None,
        )


def asdict_shallow(record: Any) -> dict[str, Any]:
    """Fields of a record as a dictionary, values as they are."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _measurement(row: dict[str, Any]) -> Measurement:
    row = dict(row)
    low, high = row.pop("low"), row.pop("high")
    row["value"] = _number(row["value"])
    bounds = None if low is None or high is None else (_number(low), _number(high))
    return check_record(Measurement(**row, bounds=bounds))


def _metric_info(row: dict[str, Any]) -> MetricInfo:
    info = check_record(MetricInfo(**row))
    if info.better not in get_args(Better) or not 0 <= info.digits <= 12:
        raise ValueError(f"better is {info.better!r}, digits is {info.digits!r}")
    for table, place in info.tables.items():
        check_kind(place, "float", f"the place of '{info.word}' in '{table}'")
    return info


def _words(words: dict[str, str], name: str) -> dict[str, str]:
    check_kind(words, "Mapping[str, str]", name)
    return dict(words)


def _columns(columns: dict[str, list[Any]]) -> dict[str, tuple[float, ...]]:
    return {k: tuple(_number(v) for v in values) for k, values in columns.items()}


def _number(value: float | None) -> float:
    """A number of a file, where JSON has null for what is not one."""
    check_kind(value, "float | None", "a number")
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
    numbers = ("difference", "low", "high", "p_value", "p_holm")
    return tuple(
        check_record(
            Comparison(
                c["metric"], sides[c["a"]], sides[c["b"]], better=c.get("better"), **{k: _number(c[k]) for k in numbers}
            )
        )
        for c in rows
    )


def join(
    evaluations: Sequence[Evaluation],
    comparisons: Iterable[Comparison] = (),
    about: About | None = None,
    *,
    samples: Iterable[Sample] = (),
    operating_points: Iterable[ModelPoint] = (),
    warnings: Iterable[str] = (),
) -> Evaluation:
    """One evaluation with the rows and curves of all, in their order; what stands there twice is kept once.

    Args:
        evaluations: at least one.
        comparisons: paired tests between them.
        about: what is known of the whole; it wins over what they say, and the first of them over the others.
        samples: further samples to show.
        operating_points: further operating points.
        warnings: further warnings.

    Returns:
        The evaluation of all.

    Raises:
        InputError: there is none to join.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> parts = [confide.evaluate(p, "accuracy", intervals=False, model=name) for name in ("first", "second")]
        >>> both = confide.evaluation.join(parts)
        >>> sorted({m.model for m in both.measurements})
        ['first', 'second']
    """
    if not evaluations:
        raise InputError("join needs at least one evaluation, got none; evaluate some predictions first")
    known = about or About()
    for evaluation in evaluations:
        known = known.over(evaluation.about)
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
        about=known,
        warnings=tuple(dict.fromkeys((*(w for evaluation in evaluations for w in evaluation.warnings), *warnings))),
        sets=tuple(result for evaluation in evaluations for result in evaluation.sets),
        decisions=tuple(result for evaluation in evaluations for result in evaluation.decisions),
        metrics={word: info for evaluation in evaluations for word, info in evaluation.metrics.items()},
        stage_titles={word: title for evaluation in evaluations for word, title in evaluation.stage_titles.items()},
        difficulty=next((evaluation.difficulty for evaluation in evaluations if evaluation.difficulty), None),
    )
