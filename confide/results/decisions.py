"""What was promised and decided: operating points, prediction sets, decisions, as a report shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from confide.checks import check_range, check_record
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted
from confide.results.measurements import Measurement, measurement_of_row, number_of_file
from confide.types import JsonObject


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

    def to_dict(self) -> JsonObject:
        """Plain dictionary, ready for JSON; a promised error rate alone is written as it always was."""
        row = asdict(self)
        if self.largest_weight is None:
            del row["largest_weight"]
        named = self.risks or self.promise != "probability"
        return {**row, "format": formats.RISKS_POINT.tag} if named else {k: row[k] for k in row if k not in NAMED_RISKS}

    @classmethod
    def from_dict(cls, row: JsonObject) -> OperatingPoint:
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

    def as_row(self) -> JsonObject:
        """The row as it stands in evaluation.json."""
        whose = {key: value for key, value in (("model", self.model), ("stage", self.stage)) if value is not None}
        seen = {f"test_{key}": value for key, value in asdict(self.observed).items()} if self.observed else {}
        return {**self.point.to_dict(), **whose, **seen}

    @classmethod
    def from_row(cls, row: JsonObject) -> ModelPoint:
        """The point of a row; rows written by hand may lack most keys."""
        coverage, risk = row.get("test_coverage"), row.get("test_risk")
        observed = None
        if coverage is not None or risk is not None:
            ends = number_of_file(row.get("test_low")), number_of_file(row.get("test_high"))
            observed = check_record(
                ObservedPoint(number_of_file(coverage), number_of_file(risk), row.get("test_accepted", 0), *ends)
            )
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
    def from_row(cls, row: JsonObject) -> SetResult:
        """The result of a row of evaluation.json."""
        known = {name: row[name] for name in (f.name for f in fields(cls)) if name in row}
        ends = [{end: number_of_file(group[end]) for end in ("low", "high")} for group in row["groups"]]
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

    def as_row(self) -> JsonObject:
        """The row as it stands in evaluation.json."""
        costs = {name: getattr(self, name) for name in ("expected", "measured", "saved")}
        points = [asdict(point) for point in self.break_even]
        row = {**vars(self), "break_even": points, **{k: None if v is None else v.as_row() for k, v in costs.items()}}
        return {"asked" if name == "deferred" else name: value for name, value in row.items()}

    @classmethod
    def from_row(cls, row: JsonObject) -> DecisionResult:
        """The result of a row of evaluation.json."""
        row = {"deferred" if name == "asked" else name: value for name, value in row.items()}
        known = {name: row[name] for name in (f.name for f in fields(cls)) if name in row}
        known |= {k: None if row[k] is None else measurement_of_row(row[k]) for k in ("expected", "measured", "saved")}
        points = [{k: number_of_file(v) for k, v in point.items()} for point in row["break_even"]]
        known["break_even"] = tuple(check_record(BreakEvenPoint(**point)) for point in points)
        result = check_record(cls(**{**known, "warnings": tuple(row["warnings"])}))
        if not all(0 <= share <= 1 for share in result.shares.values()):
            raise ValueError("a share of decisions lies outside [0, 1]")
        return result
