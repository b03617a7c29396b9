"""Evaluation in memory that does not grow with the rows: counts of samples by confidence, which add up.

A sketch counts right and wrong samples in cells of confidence and sums their facts. Sums (accuracy, NLL, Brier, gaps,
ECE in 15 bins of equal width, class-wise ECE) come out as from all rows; rankings see the rows of one cell as tied, and
the largest change that this can make to AUROC and AURC is told. Intervals count units: images of pixels, questions of
answers, or, where rows were drawn apart, parts that rows are dealt to, whose sums spread as the rows do. Sketches of
shards are merged in the order of the shards, so that it does not matter who made them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError
from confide.evaluation.evaluate import evaluate
from confide.evaluation.streaming import from_folder, shard_predictions
from confide.facts import ClassTable, Facts
from confide.files import formats
from confide.metrics.base import parse_metric
from confide.numerics.binning import width_bin_of
from confide.predictions import Predictions
from confide.results import About, Evaluation, Measurement
from confide.types import Floats, Indices, Options

FACTS = ("nll", "brier", "entropy")
"""Facts whose sums are kept beside those of the confidence."""
FINE, COARSE = 16, 7
"""Cells of an octave of 1 - confidence, as powers of two: of values, and of what every unit adds to them."""
PARTS = 64
"""Parts that rows drawn apart are dealt to."""
PART = "part"
BINS = 15
MOST_BUFFERED = 1 << 20


@dataclass
class CellTable:
    """Sums by cell: keys in rising order, and a row of count, confidence and facts for each."""

    keys: NDArray[np.int64]
    sums: Floats
    waiting: list[tuple[NDArray[np.int64], Floats]] = field(default_factory=list)

    @classmethod
    def empty(cls, width: int) -> CellTable:
        """No cell yet."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, width)))

    def add(self, keys: NDArray[np.int64], values: Floats) -> None:
        """Rows of values, summed by key."""
        unique, place = np.unique(keys, return_inverse=True)
        columns = [np.bincount(place.reshape(-1), column, len(unique)) for column in values.T]
        sums = np.stack(columns, axis=1).astype(np.float64)
        self.waiting.append((unique, sums))
        if sum(len(own) for own, _ in self.waiting) > MOST_BUFFERED + len(self.keys):
            self.settle()

    def settle(self) -> CellTable:
        """All that waits, in one table; summed in the order in which it came."""
        if self.waiting:
            parts = [(self.keys, self.sums), *self.waiting]
            self.waiting = []
            keys = np.concatenate([own for own, _ in parts])
            values = np.concatenate([own for _, own in parts])
            self.keys, place = np.unique(keys, return_inverse=True)
            self.sums = np.zeros((len(self.keys), values.shape[1]))
            np.add.at(self.sums, place.reshape(-1), values)
        return self


@dataclass
class Sketch:
    """Counts of samples by confidence and correctness, and by unit; `merge` adds those of other shards."""

    num_classes: int = 0
    names: tuple[str, ...] = ()
    """Of the facts that are summed."""
    unit: str | None = None
    units: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    split: str | None = None
    class_names: tuple[str, ...] | None = None
    from_probabilities: bool = False
    fine: CellTable = field(default_factory=lambda: CellTable.empty(0))
    coarse: CellTable = field(default_factory=lambda: CellTable.empty(0))
    classes: ClassTable | None = None

    def add(self, shard: Predictions) -> Sketch:
        """Count the samples of one more shard."""
        if not len(shard):
            return self
        facts = shard.facts
        right = facts.correct.cpu().numpy()
        if shard.relative_weights is not None:
            raise InputError("a sketch counts samples alike, but these have weights; evaluate them with exact=True")
        if not self.rows:
            self.names = tuple(name for name in FACTS if getattr(facts, name) is not None)
            self.num_classes, self.unit = shard.num_classes, shard.unit
            self.split, self.class_names = shard.split, shard.class_names
            self.from_probabilities = shard.from_probabilities
            self.fine, self.coarse = (CellTable.empty(2 + len(self.names)) for _ in range(2))
        elif (shard.unit, shard.split, shard.class_names) != (self.unit, self.split, self.class_names):
            raise InputError("all shards must have one split, one unit and the same classes; check the last one")
        sure = facts.sureness()
        vectors = [facts.need(name).double().cpu().numpy() for name in self.names]
        values = np.stack([np.ones(len(sure)), sure, *vectors], axis=1)
        cell = (width_bin_of(sure.copy(), BINS).astype(np.int64) << 34) | right
        doubt = (1.0 - sure).astype(np.float32).view(np.int32).astype(np.int64)
        self.fine.add(cell | (doubt >> (23 - FINE)) << 1, values)
        self.coarse.add(cell | (doubt >> (23 - COARSE)) << 1 | self._unit_of(shard).astype(np.int64) << 39, values)
        self.rows += len(sure)
        if shard.outputs.all_classes:
            table = shard.class_table()
            self.classes = table if self.classes is None else self.classes + table
        return self

    def _unit_of(self, shard: Predictions) -> Indices:
        """The unit of every row; rows drawn apart are dealt to parts."""
        if shard.unit is None:
            return (np.arange(len(shard)) + self.rows) % PARTS
        names, place = np.unique(shard.columns[shard.unit].astype(np.str_), return_inverse=True)
        numbers = [self.units.setdefault(str(name), len(self.units)) for name in names]
        return np.array(numbers, dtype=np.intp)[place.reshape(-1)]

    def merge(self, other: Sketch) -> Sketch:
        """Add the counts of another sketch."""
        if not other.rows:
            return self
        if not self.rows:
            vars(self).update(vars(other))
            return self
        mine = (self.num_classes, self.names, self.unit, self.split, self.class_names)
        if mine != (other.num_classes, other.names, other.unit, other.split, other.class_names):
            raise InputError("all shards must have one split, one unit and the same classes; check the last one")
        keys = other.coarse.settle().keys
        if self.unit is not None:
            renamed = [self.units.setdefault(name, len(self.units)) for name in other.units]
            keys = keys & ((1 << 39) - 1) | np.array(renamed, dtype=np.int64)[keys >> 39] << 39
        self.fine.waiting.append((other.fine.settle().keys, other.fine.sums))
        self.coarse.waiting.append((keys, other.coarse.sums))
        self.fine.settle()
        self.coarse.settle()
        self.rows += other.rows
        if self.classes is not None and other.classes is not None:
            self.classes = self.classes + other.classes
        return self

    def record(self, table: CellTable) -> Predictions:
        """The cells as weighted samples: a row a cell, with the means of its facts."""
        keys, sums = table.settle().keys, table.sums
        count = sums[:, 0]
        means = dict(zip(("confidence", *self.names), (torch.from_numpy(c / count) for c in sums.T[1:]), strict=True))
        facts = Facts(right=torch.from_numpy((keys & 1).astype(bool)), **means)
        return Predictions.from_facts(
            facts,
            None,
            self.num_classes,
            self.classes,
            from_probabilities=self.from_probabilities,
            split=self.split,
            class_names=self.class_names,
            weights=count,
            columns={PART: keys >> 39},
            unit=PART,
        )

    def ranking_bounds(self) -> dict[str, float]:
        """How far AUROC and AURC can lie from those of all rows, which the cells take for tied."""
        keys, sums = self.fine.settle().keys, self.fine.sums
        cell, place = np.unique(keys >> 1, return_inverse=True)
        both = np.stack([np.bincount(place.reshape(-1), sums[:, 0] * (keys & 1 == side), len(cell)) for side in (1, 0)])
        right, wrong = both / self.rows
        doubt = np.bincount(place.reshape(-1), sums[:, 1], len(cell)) / both.sum(axis=0)
        order = np.argsort(-doubt)
        right, wrong = right[order], wrong[order]
        pairs = max(float(right.sum() * wrong.sum()), 1e-300)
        before = np.cumsum(right + wrong) - (right + wrong)
        first = np.where(before > 0, before, right + wrong)
        area = float(((right + wrong) * np.minimum(right, wrong) / first).sum())
        return {"auroc": float(right @ wrong) / 2 / pairs, "aurc": area}

    def save(self, path: str | Path) -> None:
        """Write as npz, atomically."""
        columns = {name: getattr(table, part) for name, table, part in self._tables()}
        if self.classes is not None:
            columns |= {f"classes_{name}": values for name, values in vars(self.classes).items() if values is not None}
        about = {
            "num_classes": self.num_classes,
            "names": self.names,
            "unit": self.unit,
            "units": list(self.units),
            "rows": self.rows,
            "split": self.split,
            "class_names": self.class_names,
            "from_probabilities": self.from_probabilities,
        }
        formats.write_table(path, columns, {"sketch": formats.json_text(about)})

    def _tables(self) -> list[tuple[str, CellTable, str]]:
        return [
            (f"{name}_{part}", getattr(self, name).settle(), part)
            for name in ("fine", "coarse")
            for part in ("keys", "sums")
        ]

    @classmethod
    def load(cls, path: str | Path) -> Sketch:
        """What `save` wrote."""
        columns, metadata = formats.read_table(path)
        about = formats.parse_json(metadata.get("sketch", "null"), path)
        if not isinstance(about, dict):
            raise InputError(f"{path} must be a sketch, got another file; make it again")
        fine, coarse = (CellTable(columns[f"{n}_keys"], columns[f"{n}_sums"]) for n in ("fine", "coarse"))
        sums = {k.removeprefix("classes_"): v for k, v in columns.items() if k.startswith("classes_")}
        units = {name: k for k, name in enumerate(about.pop("units"))}
        names, class_names = tuple(about.pop("names")), about.pop("class_names")
        classes = ClassTable(**sums) if sums else None
        named = None if class_names is None else tuple(class_names)
        return cls(**about, names=names, units=units, class_names=named, fine=fine, coarse=coarse, classes=classes)


def sketch_of(source: Any, split: str | None = None) -> Sketch:
    """The sketch of a record, a file, a folder of shards, or an iterator of these.

    Args:
        source: what `evaluate` takes.
        split: overrides the split that files name.

    Returns:
        A `Sketch`; `merge` adds others.

    Raises:
        InputError: no sample at all.

    Example:
        >>> sketch = confide.evaluation.sketch_of(confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
        >>> sketch.rows
        2
    """
    if isinstance(source, Predictions):
        return Sketch().add(source)
    shards: Iterable[Predictions]
    if isinstance(source, (str, Path)):
        path = Path(source)
        shards = from_folder(path, split) if path.is_dir() else [Predictions.load(path, split)]
    else:
        shards = map(shard_predictions, source)
    sketch = Sketch()
    for shard in shards:
        sketch.add(shard)
    if not sketch.rows:
        raise InputError("a sketch needs at least one sample, got none; check the shards")
    return sketch


def evaluate_sketch(
    sketch: Sketch,
    metrics: str | Sequence[str] = "core",
    intervals: bool = True,
    *,
    model: str = "model",
    seed: int = 0,
    title: str | None = None,
    about: About | None = None,
) -> Evaluation:
    """The evaluation of a sketch: values of its fine cells, intervals of what its units add.

    Args:
        sketch: of all samples.
        metrics: "core", "all", or a list of words; those that need all rows are named as missing.
        intervals: with 95 % intervals and the calibration test.
        model: the model's name in every row.
        seed: of what is drawn.
        title: of the report.
        about: what else the report says of it.

    Returns:
        An `Evaluation`, whose notes say how far a ranking can lie from that of all rows.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
        >>> evaluation = confide.evaluation.evaluate_sketch(confide.evaluation.sketch_of(p), ["accuracy"], False)
        >>> round(evaluation.value("accuracy"), 3)
        0.667
    """
    called = "pixels" if sketch.unit == "image" else "samples"
    known = About(title=title, unit=called).over(about or About())
    options: Options = {"model": model, "seed": seed, "score": "msp", "about": known}
    whole = evaluate(sketch.record(sketch.fine).replace(unit=None), metrics, False, **options)
    bounds, note = sketch.ranking_bounds(), {}
    for m in whole.measurements:
        kind = parse_metric(m.metric)[0].spec.info.kind
        if kind == "ranking":
            limit = bounds.get(m.metric)
            note[m.metric] = "from cells" if limit is None else f"from cells, within {limit:.1e} of all rows"
    rows = [replace(m, n=sketch.rows, note=note.get(m.metric)) for m in whole.measurements]
    if intervals:
        words = [m.metric for m in rows]
        by_unit = evaluate(sketch.record(sketch.coarse), words, True, **options)
        rows = [with_interval(m, by_unit) for m in rows]
    counted = replace(whole.about, weighted_by=None, effective_samples=None)
    return replace(whole, measurements=tuple(rows), about=counted)


def with_interval(row: Measurement, by_unit: Evaluation) -> Measurement:
    """The row with the interval that units give, moved to its own value."""
    other = next(m for m in by_unit.measurements if m.metric == row.metric and m.group is None)
    low, high = other.bounds or (math.nan, math.nan)
    moved = row.value - other.value
    bounds = (min(low + moved, row.value), max(high + moved, row.value))
    return replace(row, bounds=bounds, chance=other.chance, chance_high=other.chance_high, p_value=other.p_value)
