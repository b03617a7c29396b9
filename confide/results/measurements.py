"""What was measured: MetricInfo, Measurement, Curve and Comparison, plain numbers and words only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from confide.checks import InputError, check_kind, check_record
from confide.types import JsonObject

LEVEL = 0.05
"""Below this p a test is believed; intervals hold 1 - LEVEL."""
TAILS = (LEVEL / 2, 1 - LEVEL / 2)
"""The quantiles at the ends of an interval."""
Z = 1.959963984540054
"""The same ends of a standard normal, in standard deviations."""

RAW = "raw"
"""The stage of a model as it was trained; the others are words of calibrators."""
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
    looks_at_labels: bool | None = None
    """Whether the labels of the samples it scores change it; None where a file does not say."""


MEAN_OF_CELLS, OF_SEVERITY = "mean", "severity "
"""Names of groups of a shift grid beside its single cells: all of them, and those of one severity, with its number."""


MACRO = "macro average"
"""The group of means over labels that each count the same."""


def group_of(kind: str, name: str) -> str:
    """A group as tables name it.

    Args:
        kind: what it is of: `class`, `difficulty`, `shift`, `ood`, a column.
        name: which of them.

    Returns:
        Both with a sign between; `Measurement.group_kind` and `group_name` part them again.

    Example:
        >>> from confide.results import group_of
        >>> group_of("class", "Shirt")
        'class=Shirt'
    """
    return f"{kind}={name}"


def group_parts(group: str | None) -> tuple[str, str]:
    """Kind and name of a group; both empty where there is none.

    Args:
        group: of a measurement or a curve.

    Returns:
        The two; of a group without a sign the kind is empty.

    Example:
        >>> from confide.results import group_parts
        >>> group_parts("shift=fog/3")
        ('shift', 'fog/3')
    """
    kind, sign, name = (group or "").partition("=")
    return (kind, name) if sign else ("", kind)


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
    stage: str = RAW  # or the word of the calibrator applied
    group: str | None = None  # "class=Shirt", "difficulty=hardest fifth", "column=value"
    model: str = "model"
    score: str | None = None  # the confidence score of ranking metrics: "msp", "entropy", "trust:steep_slope"
    chance: float | None = None
    chance_high: float | None = None
    p_value: float | None = None
    note: str | None = None
    sd: float | None = None  # over the seeds, where the value is the mean of several
    interval: Callable[[], tuple[float, float]] | None = field(default=None, repr=False, compare=False)
    bounds: tuple[float, float] | None = None

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        """One line: the metric, its value and interval, and what chance would show."""
        name = self.metric if self.plain else f"{self.metric} ({self.score})"
        spread = "" if self.sd is None else f" ± {self.sd:.2g} over seeds"
        interval = f", 95 % {self.low:.4g} to {self.high:.4g}" if self.has_interval else ""
        chance = "" if self.chance is None else f", by chance {self.chance:.4g}"
        group = "" if self.group is None else f" [{self.group}]"
        return f"{name}{group} {self.value:.4g}{spread}{interval}{chance}, {self.n:,} samples"

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
    def group_kind(self) -> str:
        """What the group is of, such as `class`, `difficulty`, `shift` or a column; empty where it is all samples."""
        return group_parts(self.group)[0]

    @property
    def group_name(self) -> str:
        """Which of them it is."""
        return group_parts(self.group)[1]

    @property
    def plain(self) -> bool:
        """Whether it is of the plain confidence, and not of another score."""
        return self.score in PLAIN_SCORES

    @property
    def rejected(self) -> bool:
        """Whether the test "this model is perfectly calibrated" rejects it."""
        return self.p_value is not None and self.p_value < LEVEL

    @property
    def beyond_chance(self) -> bool:
        """Whether a perfectly calibrated model would show such an error in less than 5 % of cases."""
        # Errors of saturated probabilities are sums of roundings, and no larger than those of chance.
        above = self.chance_high is not None and self.value > self.chance_high * (1 + 1e-9) + 1e-9
        return self.rejected or above

    @property
    def within_chance(self) -> bool:
        """Whether it is known what chance would show, and the error is no larger."""
        return (self.p_value is not None or self.chance_high is not None) and not self.beyond_chance

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

    def as_row(self) -> JsonObject:
        """The row as it stands in evaluation.json; an interval that was not computed stays out.

        Returns:
            The fields by name, `low` and `high` last.

        Example:
            >>> row = confide.Measurement("accuracy", 0.9, 10, bounds=(0.6, 0.98)).as_row()
            >>> row["value"], row["low"], row["high"]
            (0.9, 0.6, 0.98)
        """
        left_out = ("interval", "bounds", "sd") if self.sd is None else ("interval", "bounds")
        row = {k: v for k, v in asdict_shallow(self).items() if k not in left_out}
        low, high = self.bounds or (None, None)
        return {**row, "low": low, "high": high}


def row_like(row: Measurement, **values: Any) -> Measurement:
    """The same with other values of some fields, in a fifth of the time: a frozen record sets each field by a call."""
    other = object.__new__(Measurement)
    other.__dict__.update(row.__dict__, **values)
    return other


@dataclass(frozen=True)
class CurveKind:
    """What a kind of curve shows, the columns it must have, and those that it may have besides."""

    shows: str
    columns: str
    optional: str = ""


SEED_BAND = ("_seed_low", "_seed_high")
"""Endings of the columns that hold the lowest and the highest of several seeds, where a column is their mean."""
BOX = ("low", "lower_quartile", "median", "upper_quartile", "high")
"""The columns of a box, from its lower whisker to its upper one."""
BOXES = " ".join(BOX)
BANDS = "band_low band_high chance chance_high p_value"
"""What a calibrated model would show: in each bin, and of the calibration error over all, the same in every row."""
CURVES = {
    "reliability_width": CurveKind(
        "confidence and accuracy in bins of equal width, a curve per number of bins; an empty bin counts 0",
        "low high confidence accuracy count",
        BANDS,
    ),
    "reliability_mass": CurveKind("the same in bins of equal mass", "low high confidence accuracy count", BANDS),
    "reliability_smooth": CurveKind(
        "accuracy against confidence without bins, smoothed over `width`; `count` samples lie within its reach",
        "confidence accuracy count width",
        "band_low band_high accuracy_seed_low accuracy_seed_high",
    ),
    "risk_coverage": CurveKind(
        "error rate of the accepted samples, at most a few hundred rows, the last at coverage 1",
        "coverage risk threshold",
        "risk_low risk_high risk_seed_low risk_seed_high",
    ),
    "confidence_histogram": CurveKind(
        "right and wrong samples by confidence, or by a trust score named by `score`", "low high right wrong"
    ),
    "difficulty_histogram": CurveKind("samples by difficulty", "low high count"),
    "error_by_difficulty": CurveKind(
        "error rate by group of difficulty", "low high error count", "error_low error_high"
    ),
    "training": CurveKind(
        "what was logged in training", "epoch", "a column per quantity, and its _seed_low and _seed_high"
    ),
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
    stage: str = RAW
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
        return cls(kind, {name: _floats(column) for name, column in columns.items()}, **whose)


def _floats(column: Any) -> tuple[float, ...]:
    values = column.tolist() if hasattr(column, "tolist") else column
    are_floats = getattr(getattr(column, "dtype", None), "kind", None) == "f"
    return tuple(values if are_floats else map(float, values))


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

    def as_row(self) -> JsonObject:
        """The row as it stands in evaluation.json."""
        return {**asdict_shallow(self), "a": str(self.a), "b": str(self.b)}


# As rows of a file.


def asdict_shallow(record: Any) -> JsonObject:
    """Fields of a record as a dictionary, values as they are."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def measurement_of_row(row: JsonObject) -> Measurement:
    row = dict(row)
    low, high = row.pop("low"), row.pop("high")
    row["value"] = number_of_file(row["value"])
    bounds = None if low is None or high is None else (number_of_file(low), number_of_file(high))
    return check_record(Measurement(**row, bounds=bounds))


def metric_info_of_row(row: JsonObject) -> MetricInfo:
    info = check_record(MetricInfo(**row))
    if info.better not in get_args(Better) or not 0 <= info.digits <= 12:
        raise ValueError(f"better is {info.better!r}, digits is {info.digits!r}")
    for table, place in info.tables.items():
        check_kind(place, "float", f"the place of '{info.word}' in '{table}'")
    return info


def curve_columns(columns: dict[str, list[Any]]) -> dict[str, tuple[float, ...]]:
    return {k: tuple(number_of_file(v) for v in values) for k, values in columns.items()}


def number_of_file(value: float | None) -> float:
    """A number of a file, where JSON has null for what is not one."""
    check_kind(value, "float | None", "a number")
    return math.nan if value is None else value


def comparisons_of_rows(rows: Iterable[JsonObject], measurements: Iterable[Measurement]) -> tuple[Comparison, ...]:
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
                c["metric"],
                sides[c["a"]],
                sides[c["b"]],
                better=c.get("better"),
                **{k: number_of_file(c[k]) for k in numbers},
            )
        )
        for c in rows
    )
