"""A watch over predictions in the field: estimates without labels for every batch, and alarms from labels as they come.

Its state is one file of lines, which is only ever added to: the reference first, then batches and labels as they come.
A watch is rebuilt from that file alone, so a killed process loses at most the line it was writing.
"""

from __future__ import annotations

import json
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from confide.checks import MOST_CLASSES, InputError, as_tensor, check_range, check_record
from confide.evaluation import apply_operating_point
from confide.files import formats
from confide.files.columns import CORRECT_COLUMNS, ID_COLUMNS, LABEL_COLUMNS, WEIGHT_COLUMN, first_column
from confide.files.disk import appending
from confide.files.fitted import DAMAGE
from confide.monitor.alarms import Wealth, calibration_bets, risk_bets
from confide.monitor.estimates import (
    COLUMNS,
    AccuracyEstimate,
    CalibrationEstimate,
    Drift,
    WatchBatch,
    WatchReference,
    reference_from,
)
from confide.numerics.binomial import clopper_pearson
from confide.predictions import Predictions, label_doubt, need_predictions
from confide.results import LEVEL, OperatingPoint
from confide.types import ClassIndices, Flags, Floats, Indices, JsonObject

SAMPLING = (
    "The alarms hold if the labelled samples are a random draw of those predicted, or carry weights (1 / how likely "
    "each was to be labelled)."
)


@dataclass(frozen=True)
class BatchReport:
    """What is known of one batch: estimates without labels, drift, and what its labels showed so far."""

    name: str
    time: str
    n: int
    accepted: int
    confidence: float
    accuracy: tuple[AccuracyEstimate, ...]
    """By every method there is, the most trustworthy first."""
    ece: CalibrationEstimate
    """What the most trustworthy accuracy means for the calibration error."""
    drift: tuple[Drift, ...]
    drifted: tuple[str, ...]
    """What has moved beyond chance, at a level that holds for all batches of the watch together."""
    labelled: int = 0
    right: int = 0

    @property
    def estimate(self) -> AccuracyEstimate:
        """The accuracy by the most trustworthy method."""
        return self.accuracy[0]

    @property
    def gap(self) -> float:
        """Mean confidence minus the estimated accuracy; its size is a lower bound of the calibration error."""
        return self.confidence - self.estimate.value

    @property
    def seen(self) -> tuple[float, float, float] | None:
        """Accuracy of the labelled samples with its 95 % interval, None where there are none."""
        if not self.labelled:
            return None
        return self.right / self.labelled, *clopper_pearson(self.right, self.labelled, LEVEL)


@dataclass(frozen=True)
class Alarm:
    """Evidence against a promise: wealth of bets against it, which reaches `needed` with probability delta at most."""

    promise: str
    wealth: float
    needed: float
    labelled: int
    raised_at: int | None
    """How many labelled samples had come when it was raised."""

    def __str__(self) -> str:
        if self.raised_at is None:
            return f"{self.promise}: no alarm after {self.labelled:,} labels"
        return f"ALARM: {self.promise} does not hold (raised at label {self.raised_at:,} of {self.labelled:,})"


UNLABELLED = -1


@dataclass(eq=False)
class _BatchState:
    """A batch as the file has it; its samples have the places from `first` on among those of the watch."""

    name: str
    time: str
    first: int
    batch: WatchBatch
    accepted: Flags
    labels: ClassIndices = field(init=False)
    labelled: int = 0
    right: int = 0

    def __post_init__(self) -> None:
        self.labels = np.full(len(self.accepted), UNLABELLED, dtype=np.int64)


@dataclass
class _State:
    """Everything that follows from the lines of a file, in their order."""

    reference: WatchReference
    risk: float | None
    delta: float
    most_weight: float
    point: OperatingPoint | None
    batches: list[_BatchState] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """Of every sample by its id."""
    early: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Labels, with their weights, of samples whose predictions have not come yet."""
    risk_wealth: Wealth = field(init=False)
    calibration_wealth: Wealth = field(init=False)

    def __post_init__(self) -> None:
        check_range(self.delta, "delta", 0.0, 1.0, low_open=True, high_open=True)
        check_range(self.most_weight, "most_weight", 0.0, low_open=True)
        if self.risk is not None:
            check_range(self.risk, "risk", 0.0, 1.0, low_open=True, high_open=True)
        self.risk_wealth = Wealth(1, self.delta)
        self.calibration_wealth = Wealth(2 * len(self.reference.tolerance), self.delta)

    def add(self, record: JsonObject) -> None:
        """Take in one line of the file."""
        if "predictions" in record:
            self._add_predictions(record)
        else:
            own = record["labels"]
            if not len(own["ids"]) == len(own["labels"]) == len(own["weights"]):
                raise ValueError("labels must have an id and a weight each")
            self._add_labels(own["ids"], np.asarray(own["labels"], np.int64), np.asarray(own["weights"], np.float64))

    def batch_at(self, place: int) -> _BatchState:
        """The batch of the sample at a place."""
        return self.batches[bisect_right(self.batches, place, key=lambda own: own.first) - 1]

    def label_of(self, name: str) -> int | None:
        """The label of a sample, also of one whose prediction has not come yet; None where none has come."""
        if name not in self.places:
            return self.early.get(name, (None, 1.0))[0]
        own = self.batch_at(self.places[name])
        label = int(own.labels[self.places[name] - own.first])
        return None if label == UNLABELLED else label

    def _add_predictions(self, record: JsonObject) -> None:
        own = record["predictions"]
        columns = {k: np.asarray(own[k], dtype=np.float64) for k in COLUMNS if k in own}
        named = own.get("classes", [])
        if any(kind is not int for kind in set(map(type, named))) or not 0 <= max(named, default=0) < MOST_CLASSES:
            raise ValueError("predicted classes must be class indices")
        classes = np.asarray(named, dtype=np.int64) if "classes" in own else None
        confidence = np.asarray(own["confidence"], dtype=np.float64)
        parts = (own["ids"], own["accepted"], confidence, *([] if classes is None else [classes]), *columns.values())
        inside = bool((np.abs(confidence - 0.5) <= 0.5 + 1e-6).all())  # a sum of shares may round beyond 1
        if len({len(part) for part in parts}) > 1 or not len(confidence) or not inside:
            raise ValueError("a batch must have one confidence from 0 to 1 a sample")
        if classes is not None and classes.min() < 0:
            raise ValueError("predicted classes must be class indices")
        accepted = np.asarray(own["accepted"]).astype(bool)
        first, batch = len(self.places), WatchBatch(confidence, classes, **columns)
        self.batches.append(check_record(_BatchState(record["name"], record["time"], first, batch, accepted)))
        self.places.update(zip(own["ids"], range(first, first + len(confidence)), strict=True))
        if len(self.places) != first + len(confidence):
            raise ValueError("a batch must not have a sample that came before")
        arrived = [name for name in own["ids"] if name in self.early] if self.early else []
        waited = [self.early.pop(name) for name in arrived]
        self._add_labels(arrived, np.array([k for k, _ in waited], np.int64), np.array([w for _, w in waited]))

    def _add_labels(self, names: Sequence[str], labels: ClassIndices, weights: Floats) -> None:
        places = np.array([self.places.get(name, -1) for name in names], dtype=np.int64)
        for k in np.flatnonzero(places < 0).tolist():
            self.early[names[k]] = (int(labels[k]), float(weights[k]))
        here = places >= 0
        if not here.any():
            return
        places, labels, weight_values = places[here], labels[here], weights[here]
        confidence, correct = np.empty(len(places)), np.empty(len(places))
        used = np.empty(len(places), dtype=bool)
        of_batch = np.searchsorted([own.first for own in self.batches], places, side="right") - 1
        for k in np.unique(of_batch).tolist():
            own, rows = self.batches[k], np.flatnonzero(of_batch == k)
            inner = places[rows] - own.first
            own.labels[inner] = labels[rows]
            correct[rows] = labels[rows] == (1 if own.batch.classes is None else own.batch.classes[inner])
            confidence[rows], used[rows] = own.batch.confidence[inner], own.accepted[inner]
            own.labelled += len(rows)
            own.right += int(correct[rows].sum())
        bands, tolerance = np.array(self.reference.bands), np.array(self.reference.tolerance)
        self.calibration_wealth.add(
            *calibration_bets(correct, confidence, bands, tolerance, weight_values, self.most_weight)
        )
        if self.risk is not None and used.any():
            self.risk_wealth.add(*risk_bets(1 - correct[used], self.risk, weight_values[used], self.most_weight))


class Monitor:
    """A watch over the predictions of a deployed classifier, kept in one file.

    Args:
        reference: labelled predictions of the time when all was well, neither trained nor calibrated on; None to go
            on with a file that is there.
        risk: the error rate promised, among the accepted where `point` is given; None to watch calibration alone.
        delta: how likely a false alarm may be, over a watch without end.
        file: of the watch, made where it is missing.
        most_weight: the largest weight that labels may carry, where they are no plain random draw.
        point: an operating point, whose threshold decides what is accepted and whose risk is the promise.
        cells: labelled predictions of shifted samples, one of each corruption and severity: with them accuracy is
            estimated by a regression on batch statistics, whose interval counts what such shifts change.

    Raises:
        InputError: the file is of another reference, or there is neither a file nor a reference.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> probs = rng.dirichlet([2.0, 1.0, 0.5], 400)
        >>> labels = [int(rng.choice(3, p=row)) for row in probs]
        >>> reference = confide.Predictions.from_probs(probs[:200], labels[:200], split="val")
        >>> watch = confide.monitor.Monitor(reference, risk=0.5, file="watch.jsonl")
        >>> week = confide.Predictions.from_probs(probs[200:], ids=range(1000, 1200))
        >>> report = watch.update(week, name="week 1")
        >>> report.n, report.estimate.method
        (200, 'atc')
        >>> for alarm in watch.labels(range(1000, 1100), labels[200:300]):
        ...     print(alarm)
        an error rate of at most 50 %: no alarm after 100 labels
        calibration: no alarm after 100 labels
    """

    def __init__(
        self,
        reference: Predictions | None = None,
        *,
        risk: float | None = None,
        delta: float = 0.05,
        file: str | Path = "watch.jsonl",
        most_weight: float = 1.0,
        point: OperatingPoint | None = None,
        cells: Sequence[Predictions] = (),
    ) -> None:
        self.file = Path(file)
        check_range(delta, "delta", 0.0, 1.0, low_open=True, high_open=True)
        check_range(most_weight, "most_weight", 0.0, low_open=True)
        if point is not None:
            if not point.certified:
                raise InputError(f"the operating point must have a threshold, got none: {point.note}; make another")
            risk = point.promised if risk is None else risk
        if risk is not None:
            check_range(risk, "risk", 0.0, 1.0, low_open=True, high_open=True)
        if reference is None and not self.file.exists():
            raise InputError(f"{self.file} must hold a watch, but there is none; give the reference to start one")
        header = None
        if reference is not None:
            need_predictions(reference, "a watch")
            reference.need_unweighted("the reference of a watch")
            if doubt := label_doubt(reference):
                warnings.warn(doubt, stacklevel=2)
            header = {  # the same as when it is read again: no tuples, no NaN
                "format": formats.WATCH.tag,
                "reference": formats.plain(asdict(WatchReference.of(reference, cells))),
                "risk": risk,
                "delta": float(delta),
                "most_weight": float(most_weight),
                "point": None if point is None else formats.plain(point.to_dict()),
            }
        self._offset = 0
        self._header: JsonObject = {}
        self._state: _State | None = None
        with appending(self.file) as lines:
            self._read(lines)
            if header is None and not self._header:
                raise InputError(f"{self.file} must hold a watch, but it has no whole line; give the reference")
            if header is not None and not self._header:
                self._write(lines, header)
            elif header is not None and header != self._header:
                raise InputError(
                    f"{self.file} must be the watch of this reference and promise, but it was started with others; "
                    "go on without a reference, or choose another file"
                )

    @property
    def state(self) -> _State:
        """What was seen so far, as the file holds it."""
        assert self._state is not None
        return self._state

    # Writing: whatever another process has added is taken in first.

    def update(self, predictions: Predictions, name: str | None = None) -> BatchReport:
        """Add a batch of predictions, with or without labels, and estimate how well it was predicted.

        Args:
            predictions: with ids of their own: an id is one sample for the whole watch. Labels, where they are
                there, are taken as if they came at once.
            name: of the batch, such as "week 3"; numbered unless given.

        Returns:
            A `BatchReport`; of samples that are there already, that of the batch they came in.

        Raises:
            InputError: an id came before with another prediction, a column of the reference is missing, or the classes
                are not those of the reference.
        """
        if not self.reference.pairs:
            predictions.need_classes("the watch", self.reference.num_classes, self.reference.class_names)
        batch = WatchBatch.of(predictions)
        self.reference.statistics(batch)  # columns that the reference has must be there
        accepted = np.ones(len(predictions), dtype=bool)
        if self.state.point is not None:
            accepted = apply_operating_point(self.state.point, predictions).cpu().numpy()
        ids = [str(sample) for sample in predictions.ids.tolist()]
        labels = predictions.labels.tolist() if predictions.has_labels else None
        if predictions.facts.predicted is None and predictions.facts.right is not None:
            labels = predictions.facts.correct.long().tolist()
        with appending(self.file) as lines:
            self._read(lines)
            new = self._new_of(ids, batch)
            if not len(new):
                self._take_labels(lines, ids, labels, None)
                return self._report(self.state.batches.index(self.state.batch_at(self.state.places[ids[0]])))
            names = ids if len(new) == len(ids) else [ids[k] for k in new.tolist()]
            own: JsonObject = {"ids": names, "confidence": batch.confidence[new]}
            if batch.classes is not None:
                own["classes"] = batch.classes[new].tolist()
            for column in COLUMNS:
                values = getattr(batch, column)
                if values is not None:
                    own[column] = values[new]
            own["accepted"] = accepted[new].astype(int).tolist()
            label = name or f"batch {len(self.state.batches) + 1}"
            self._write(lines, {"predictions": own, "name": label, "time": _now()})
            self._take_labels(lines, ids, labels, None)
        return self._report(len(self.state.batches) - 1)

    def labels(self, ids: Iterable[Any], labels: Iterable[Any], weights: Iterable[float] | None = None) -> list[Alarm]:
        """Add labels as they come, also before their predictions, and look at the alarms.

        Args:
            ids: of the samples.
            labels: class indices or names; of pairs of confidence and correctness, 1 where the answer was right.
            weights: 1 / how likely each sample was to be labelled, where they are no plain random draw.

        Returns:
            The alarms, as `alarms`.

        Raises:
            InputError: a sample has another label already, or a class is not known.
        """
        names, classes = [str(sample) for sample in _listed(ids, "ids")], _listed(labels, "labels")
        numbers = None if weights is None else as_tensor(_listed(weights, "weights"), "weights").double()
        if numbers is not None and numbers.ndim != 1:
            raise InputError(f"weights must be one number for each id, got shape {tuple(numbers.shape)}")
        with appending(self.file) as lines:
            self._read(lines)
            self._take_labels(lines, names, classes, None if numbers is None else numbers.tolist())
        return self.alarms

    def read_labels(self, path: str | Path) -> list[Alarm]:
        """Add the labels of a table: its columns of ids and of labels, and `weight` where there is one.

        Args:
            path: .csv, .parquet, .jsonl or .npz; the columns have the names of a file of predictions, and of pairs of
                confidence and correctness `correct` will do.

        Returns:
            The alarms, as `alarms`.

        Raises:
            InputError: ids or labels are missing, or `labels` refuses them.
        """
        columns, _ = formats.read_table(path)
        # Where samples have classes, that an answer was right does not say which one it was.
        names = (*LABEL_COLUMNS, *CORRECT_COLUMNS) if self.reference.pairs else LABEL_COLUMNS
        ids, labels = first_column(columns, ID_COLUMNS), first_column(columns, names)
        if ids is None or labels is None:
            raise InputError(f"{path} must have the columns id and label, got {', '.join(columns)}; rename them")
        weights = first_column(columns, ("weight", WEIGHT_COLUMN))
        return self.labels(ids.tolist(), labels.tolist(), None if weights is None else weights.tolist())

    def _take_labels(
        self, lines: Any, ids: Sequence[str], labels: Sequence[Any] | None, weights: Sequence[float] | None
    ) -> None:
        if labels is None:
            return
        if len(ids) != len(labels) or (weights is not None and len(weights) != len(ids)):
            raise InputError(f"labels and weights must be one for each of the {len(ids)} ids, got {len(labels)}")
        rows: dict[str, tuple[int, float]] = {}
        for k, (sample, label) in enumerate(zip(ids, labels, strict=True)):
            weight = 1.0 if weights is None else weights[k]
            if not 0 < weight <= self.state.most_weight:
                raise InputError(
                    f"weights must be positive and at most the watch's most_weight, {self.state.most_weight:g}, got "
                    f"{weight:g} for sample '{sample}'; divide them all, or start a watch with a larger one"
                )
            index = self._class_index(label, sample)
            before = rows[sample][0] if sample in rows else self.state.label_of(sample)
            if before is not None and before != index:
                raise InputError(f"sample '{sample}' has the label {before} already, got {index}; a label stays")
            if before is None:
                rows[sample] = (index, weight)
        if rows:
            own = {
                "ids": list(rows),
                "labels": [index for index, _ in rows.values()],
                "weights": [weight for _, weight in rows.values()],
            }
            self._write(lines, {"labels": own, "time": _now()})

    def _class_index(self, label: Any, sample: str) -> int:
        names = self.reference.class_names
        if isinstance(label, str) and label in names:
            return names.index(label)
        try:
            index = int(label)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise InputError(
                f"the label of sample '{sample}' must be a class, got {str(label)[:60]!r}; "
                + (f"the classes are {', '.join(names[:20])}" if names else "give class indices from 0")
            ) from None
        most = 1 if self.reference.pairs else self.reference.num_classes - 1
        if (index != label and not isinstance(label, str)) or not 0 <= index <= most:
            raise InputError(f"the label of sample '{sample}' must be a class from 0 to {most}, got {label!r}")
        return index

    def _new_of(self, ids: Sequence[str], batch: WatchBatch) -> Indices:
        """Places of samples that have not come before; those that have must have come with the same prediction."""
        places = self.state.places
        if places.keys().isdisjoint(ids):
            return np.arange(len(ids))
        for k, name in enumerate(ids):
            if name not in places:
                continue
            before = self.state.batch_at(places[name])
            at = places[name] - before.first
            known, own = before.batch.classes, batch.classes
            same = known is own if known is None or own is None else known[at] == own[k]
            if not same or abs(before.batch.confidence[at] - batch.confidence[k]) > 1e-9:
                raise InputError(
                    f"sample '{name}' came before with another prediction; an id must be one sample for the whole "
                    "watch: give ids that do not start again with every batch"
                )
        return np.array([k for k, name in enumerate(ids) if name not in places], dtype=np.intp)

    # The file.

    def _read(self, lines: Any) -> None:
        """Take in the lines that were added since."""
        lines.seek(self._offset)
        for number, line in enumerate(lines):
            try:
                record = formats.parse_json(line, self.file)
                if self._state is None:
                    formats.WATCH.check(record.get("format"), self.file)
                    self._header = record
                    point = record["point"]
                    self._state = check_record(
                        _State(
                            reference_from(record["reference"]),
                            record["risk"],
                            record["delta"],
                            record["most_weight"],
                            None if point is None else OperatingPoint.from_dict(point),
                        )
                    )
                else:
                    self._state.add(record)
            except DAMAGE as error:
                cause = str(error) if isinstance(error, InputError) else type(error).__name__
                raise InputError(
                    f"{self.file} must be a whole watch, but line {number + 1} from byte {self._offset} is damaged "
                    f"({cause}); start it again, or cut the line"
                ) from None
            self._offset += len(line)

    def _write(self, lines: Any, record: JsonObject) -> None:
        line = _json(record).encode() + b"\n"
        lines.write(line)
        lines.flush()
        if self._state is None:
            self._read(lines)
            return
        # As if it were read again: JSON keeps every digit.
        self._state.add(record)
        self._offset += len(line)

    # Reading.

    @property
    def reference(self) -> WatchReference:
        """The summary of the reference."""
        return self.state.reference

    @property
    def batches(self) -> list[BatchReport]:
        """Every batch so far, oldest first."""
        return [self._report(k) for k in range(len(self.state.batches))]

    def _report(self, place: int) -> BatchReport:
        own, number = self.state.batches[place], place + 1
        drift = self.reference.drift(own.batch)
        # delta / (k (k + 1)) for batch k: false claims of drift stay below delta over all batches together.
        level = self.state.delta / (number * (number + 1)) / max(len(drift), 1)
        accuracy = self.reference.estimates(own.batch)
        return BatchReport(
            own.name,
            own.time,
            len(own.batch.confidence),
            int(own.accepted.sum()),
            float(own.batch.confidence.mean()),
            accuracy,
            self.reference.calibration_error(own.batch, accuracy[0]),
            drift,
            tuple(d.what for d in drift if d.p_value < level),
            own.labelled,
            own.right,
        )

    @property
    def alarms(self) -> list[Alarm]:
        """The promised risk, where there is one, and calibration: each with the evidence against it so far."""
        state, alarms = self.state, []
        if state.risk is not None:
            among = " among the accepted" if state.point is not None else ""
            alarms.append(_alarm(f"an error rate of at most {100 * state.risk:g} %{among}", state.risk_wealth))
        alarms.append(_alarm("calibration", state.calibration_wealth))
        return alarms

    @property
    def waiting(self) -> int:
        """How many labels are of samples whose predictions have not come; they count once these do."""
        return len(self.state.early)

    @property
    def alarmed(self) -> bool:
        """Whether any alarm was raised."""
        return any(alarm.raised_at is not None for alarm in self.alarms)


def _json(value: Any) -> str:
    """A value as JSON; arrays of finite numbers by Arrow, which writes the digits of a float in a sixth of the time."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(own)}" for name, own in value.items()) + "}"
    if isinstance(value, np.ndarray):
        import pyarrow as pa
        from pyarrow import compute

        texts, comma = pa.array(value, pa.float64()).cast(pa.large_string()), pa.scalar(",", pa.large_string())
        return f"[{compute.binary_join(pa.LargeListArray.from_arrays([0, len(texts)], texts), comma)[0].as_py()}]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _alarm(promise: str, wealth: Wealth) -> Alarm:
    return Alarm(promise, wealth.value, 1 / wealth.delta, wealth.seen, wealth.alarm_at)


def _listed(values: Iterable[Any], name: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise InputError(f"{name} must be one for each sample, got {type(values).__name__}; give a list") from None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
