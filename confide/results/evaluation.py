"""Evaluation: all that was found and a report may show, its expectations and its file; `join` makes one of several.

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
from typing import Any

from confide.checks import InputError, check_kind, check_options, check_record, did_you_mean
from confide.files import formats
from confide.files.fitted import DAMAGE
from confide.files.frames import as_frame
from confide.results.decisions import DecisionResult, ModelPoint, SetResult
from confide.results.measurements import (
    RAW,
    Comparison,
    Curve,
    DifficultyInfo,
    Measurement,
    MetricInfo,
    asdict_shallow,
    comparisons_of_rows,
    curve_columns,
    measurement_of_row,
    metric_info_of_row,
)
from confide.types import JsonObject


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
    drawn_as: str | None = None  # what several samples were drawn as: "image"
    units: int | None = None  # how many of those there are
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # a metric, or a section of the report -> why
    title: str | None = None
    stages: Mapping[str, str] = field(default_factory=dict)  # "model/stage" -> "T = 1.23"
    data: JsonObject | str | None = None  # its name and where it comes from
    config: JsonObject | str | None = None
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
    subject: str | None = None  # what the report is about where not the model: shift, sets, slices or decisions
    extra: JsonObject = field(default_factory=dict)  # what users and other versions add

    def over(self, other: About) -> About:
        """This, and what only the other knows; notes on stages, on what is missing and `extra` are merged."""
        absent = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) in (None, (), {})}
        both = {name: (getattr(self, name), getattr(other, name)) for name in ("stages", "missing", "extra")}
        return replace(self, **{**absent, **{name: {**own, **others, **own} for name, (own, others) in both.items()}})

    def to_dict(self) -> JsonObject:
        """One flat dictionary, ready for JSON; what is not known stays out."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        return {**{k: v for k, v in known.items() if v is not None and v not in ((), {})}, **self.extra}

    @classmethod
    def from_dict(cls, data: JsonObject) -> About:
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
        if unnamed := [stage for stage in stages if stage != RAW and stage not in self.stage_titles]:
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

    def to_dict(self) -> JsonObject:
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
    def _of(cls, data: JsonObject) -> Evaluation:
        measurements = tuple(measurement_of_row(row) for row in data["measurements"])
        return cls(
            measurements=measurements,
            curves=tuple(check_record(Curve(**{**c, "columns": curve_columns(c["columns"])})) for c in data["curves"]),
            comparisons=comparisons_of_rows(data["comparisons"], measurements),
            samples=tuple(check_record(Sample(**s)) for s in data["samples"]),
            operating_points=tuple(ModelPoint.from_row(row) for row in data["operating_points"]),
            about=About.from_dict(data["about"]),
            warnings=tuple(map(str, data["warnings"])),
            sets=tuple(SetResult.from_row(row) for row in data.get("sets", ())),
            decisions=tuple(DecisionResult.from_row(row) for row in data.get("decisions", ())),
            metrics={word: metric_info_of_row(info) for word, info in data.get("metrics", {}).items()},
            stage_titles=_words(data.get("stage_titles", {}), "stage_titles"),
            difficulty=check_record(DifficultyInfo(**data["difficulty"])) if data.get("difficulty") else None,
        )


def _words(words: dict[str, str], name: str) -> dict[str, str]:
    check_kind(words, "Mapping[str, str]", name)
    return dict(words)


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
