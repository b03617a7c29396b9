"""Evaluation in memory that does not grow with the rows: counts of samples by confidence, which add up.

A sketch counts right and wrong samples in fine cells of confidence, and sums their facts in coarse ones. Sums
(accuracy, NLL, Brier, gaps, ECE in 15 bins of equal width, class-wise ECE) come out as from all rows; rankings see the
rows of one fine cell as tied, and the largest change that this can make to AUROC and AURC is told. Intervals count
units: images of pixels, questions of answers; or, where these are too many or rows were drawn apart, parts that they
are dealt to, whose sums spread as theirs do. Sketches of shards are merged in the order of the shards, so that it does
not matter who made them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide import random
from confide.block_sizes import SHARD_ROWS
from confide.checks import InputError, check_kind, check_record
from confide.evaluation.evaluate import MOST_GROUPS, available_words, evaluate, groupings
from confide.evaluation.streaming import from_folder, shard_predictions
from confide.facts import ClassTable, Facts
from confide.files import formats
from confide.metrics.base import parse_metric
from confide.numerics.binning import width_bin_of, width_edges
from confide.predictions import Predictions
from confide.results import About, Evaluation, Measurement, group_parts
from confide.types import Floats, Indices, Options

FACTS = ("nll", "brier", "entropy")
"""Facts whose sums are kept beside those of the confidence."""
FINE, COARSE = 17, 6
"""Cells of an octave of 1 - confidence, as powers of two: of counts, and of the sums of every unit."""
OCTAVES = 53
"""Of 1 - confidence that float64 tells apart; what is smaller is one cell."""
PARTS, UNITS = 64, 256
"""Parts that rows drawn apart are dealt to; units that are kept, and parts that more than these are dealt to: a part of
units costs as much memory as a unit, and their number is what an interval rests on.
"""
PART = "part"
BINS = 15
MOST_BUFFERED = 1 << 20


def cells_of(sure: Floats, bins: Indices, bits: int) -> Indices:
    """The cell of every confidence: so many powers of two an octave of doubt, cut at the edges of the bins too."""
    doubt = (1.0 - sure).astype(np.float32).view(np.int32) >> (23 - bits)
    cell = np.maximum(doubt.astype(np.intp) - ((127 - OCTAVES) << bits) + 1, 0)
    return np.asarray(cell + (BINS - 1 - bins))  # both rise with the doubt, so that no two cells get one number


def bins_of_cells(cells: Indices, bits: int) -> Indices:
    """The bin that every cell lies in."""
    inner = width_edges(BINS)[1:-1]
    first = cells_of(inner, width_bin_of(inner.copy(), BINS), bits)  # an edge is the largest value of the bin below
    return np.asarray((BINS - 1) - np.searchsorted(first[::-1], cells, side="right"))


def within_bins(means: Floats, bins: Indices) -> Floats:
    """Mean confidences of cells, none of which rounding has moved over an edge of its bin."""
    edges = width_edges(BINS)
    return np.clip(means, np.nextafter(edges[bins], 1.0), edges[bins + 1])


def middles(cells: Indices, bins: Indices, bits: int) -> Floats:
    """The confidence in the middle of every cell."""
    steps = (cells - (BINS - 1 - bins))[:, None] + np.array([-1, 0]) + ((127 - OCTAVES) << bits)
    doubt = (steps << (23 - bits)).astype(np.int32).view(np.float32).astype(np.float64)
    doubt[steps[:, 1] == (127 - OCTAVES) << bits] = 0.0  # the cell of all that is smaller
    edges = width_edges(BINS)
    sure = np.clip(1.0 - doubt, edges[bins][:, None], edges[bins + 1][:, None])
    return np.asarray(sure.mean(axis=1))


def coarser(cells: Indices, bins: Indices) -> Indices:
    """The coarse cells that fine ones lie in."""
    cut = BINS - 1 - bins
    return np.asarray(((cells - cut - 1) >> (FINE - COARSE)) + 1 + cut)


def cell_count(bits: int) -> int:
    """How many numbers `cells_of` has."""
    return (OCTAVES << bits) + 2 + BINS


UNIT_CELLS = 2 * cell_count(COARSE)
"""Keys of one unit: the coarse cells of wrong and of right rows."""


@dataclass
class CellTable:
    """Sums by cell: keys in rising order, and a row of count, confidence and facts for each.

    A table of a known `span` of keys becomes an array of all of them once it has seen many rows: adding to it needs no
    sorting then, and only that array is kept.
    """

    keys: Indices
    sums: Floats
    span: int = 0
    rows: int = 0
    waiting: list[tuple[Indices, Floats]] = field(default_factory=list)
    every: Floats | None = None

    @classmethod
    def empty(cls, width: int, span: int = 0) -> CellTable:
        """No cell yet."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros((0, width)), span)

    def add(self, keys: Indices, values: Floats) -> None:
        """Rows of values, `width n`, summed by key."""
        self.rows += len(keys)
        if self.every is None and 8 * self.rows > self.span > 0:
            self.summed()
            self.every = np.zeros((len(values), self.span))
            self.every[:, self.keys] = self.sums.T
            self.keys, self.sums = self.keys[:0], self.sums[:0]
        if self.every is not None:
            low, high = (int(keys.min()), int(keys.max()) + 1) if len(keys) else (0, 0)
            near = high - low < len(keys)
            for total, column in zip(self.every, values, strict=True):
                if near:
                    total[low:high] += np.bincount(keys - low, column, high - low)
                else:
                    np.add.at(total, keys, column)
            return
        self.waiting.append(sums_by_key(keys, values))
        if sum(len(own) for own, _ in self.waiting) > MOST_BUFFERED + len(self.keys):
            self.summed()

    def renumbered(self, keys: Indices) -> CellTable:
        """The same sums under other keys, several of which may be one."""
        table = CellTable.empty(self.sums.shape[1], self.span)
        table.add(keys, self.sums.T)
        return table

    def summed(self) -> CellTable:
        """All that was added, as keys and sums, in the order in which it came; of an array of all keys a copy."""
        if self.every is not None:
            keys = np.flatnonzero(self.every[0])
            return CellTable(keys, self.every.T[keys], self.span, self.rows)
        if self.waiting:
            parts = [(self.keys, self.sums), *self.waiting]
            self.waiting = []
            keys = np.concatenate([own for own, _ in parts])
            self.keys, self.sums = sums_by_key(keys, np.concatenate([own for _, own in parts]).T)
        return self


def sums_by_key(keys: Indices, values: Floats) -> tuple[Indices, Floats]:
    """The different keys in rising order, and the sums of the values, `width n`, of each; by counting if they are near.

    Returns:
        Keys, and `keys width` sums.
    """
    low, high = (int(keys.min()), int(keys.max())) if len(keys) else (0, 0)
    if high - low < 4 * len(keys):
        place, size = keys - low, high - low + 1
        there = np.flatnonzero(np.bincount(place, minlength=size))
        columns = [np.bincount(place, column, size)[there] for column in values]
        return there + low, np.stack(columns, axis=1)
    unique, place = np.unique(keys, return_inverse=True)
    return unique, np.stack([np.bincount(place.reshape(-1), column, len(unique)) for column in values], axis=1)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """What a sketch adds up of some rows: their cells, their units, and the values, `width n`, that are summed."""

    fine: Indices
    coarse: Indices
    values: Floats
    units: Indices

    def take(self, rows: Indices) -> CountedRows:
        """Some of the rows."""
        return CountedRows(self.fine[rows], self.coarse[rows], self.values[:, rows], self.units[rows])


@dataclass(frozen=True)
class SketchKind:
    """What all shards of a sketch have alike; `names` are those of the facts that are summed."""

    num_classes: int = 0
    names: tuple[str, ...] = ()
    unit: str | None = None
    split: str | None = None
    class_names: tuple[str, ...] | None = None
    from_probabilities: bool = False

    @classmethod
    def of(cls, shard: Predictions) -> SketchKind:
        """The kind of a shard."""
        names = tuple(name for name in FACTS if getattr(shard.facts, name) is not None)
        classes = shard.outputs.num_classes or 0
        return cls(classes, names, shard.unit, shard.split, shard.class_names, shard.from_probabilities)


def table_spans(kind: SketchKind) -> dict[str, int]:
    """How many keys the tables of a sketch can have."""
    parts = PARTS if kind.unit is None else UNITS
    return {"fine": 2 * cell_count(FINE), "coarse": UNIT_CELLS * parts}


@dataclass
class Sketch:
    """Counts of samples by confidence and correctness, and by unit; `merge` adds those of other shards.

    `fine` has counts by cell, `coarse` the sums of every unit by cell. `by` names columns whose every value is a group
    with a sketch of its own. Units `are_parts` once there were more than `UNITS`.
    """

    kind: SketchKind = field(default_factory=SketchKind)
    units: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    by: tuple[str, ...] = ()
    groups: dict[str, Sketch] = field(default_factory=dict)
    fine: CellTable = field(default_factory=lambda: CellTable.empty(0))
    coarse: CellTable = field(default_factory=lambda: CellTable.empty(0))
    classes: ClassTable | None = None
    are_parts: bool = False

    def add(self, shard: Predictions) -> Sketch:
        """Count the samples of one more shard."""
        if shard.relative_weights is not None:
            raise InputError("a sketch counts samples alike, but these have weights; evaluate them without --sketch")
        if shard.outputs.all_classes:  # the same pass gives the facts
            table = shard.class_table()
            self.classes = table if self.classes is None else self.classes + table
        facts = shard.facts
        right, sure = facts.correct.cpu().numpy(), facts.sureness()
        self._begin(SketchKind.of(shard))
        if shard.is_multilabel and "label" not in self.by:
            self.by = (*self.by, "label")
        vectors = [sure, *(facts.need(name).cpu().numpy() for name in self.kind.names)]
        units = self._unit_of(shard)
        grouped = [(word, groupings(shard, word, None)[0]) for word in self.by]
        for first in range(0, len(shard), SHARD_ROWS):  # parts that stay in the cache
            part = slice(first, first + SHARD_ROWS)
            bins = width_bin_of(sure[part].copy(), BINS)
            fine, coarse = (cells_of(sure[part], bins, bits) << 1 | right[part] for bits in (FINE, COARSE))
            values = np.ones((1 + len(vectors), len(fine)))
            for own, vector in zip(values[1:], vectors, strict=True):
                own[:] = vector[part]
            counted = CountedRows(fine, coarse, values, units[part])
            self._count(counted)
            for word, grouping in grouped:
                index = grouping.index[part]
                for group in np.flatnonzero(np.bincount(index)):
                    own_group = self._group(grouping.label(int(group)), word)
                    own_group._count(counted.take(np.flatnonzero(index == group)))
        return self

    def _begin(self, kind: SketchKind) -> None:
        """Be of that kind, or stay of it."""
        if self.rows or self.fine.span:
            if kind != self.kind:
                raise InputError("all shards must have one split, one unit and the same classes; check the last one")
            return
        self.kind = kind
        spans = table_spans(kind)
        self.fine = CellTable.empty(1, spans["fine"])
        self.coarse = CellTable.empty(2 + len(kind.names), spans["coarse"])

    def _group(self, name: str, word: str) -> Sketch:
        """The sketch of a group, whose units are those of the whole."""
        if name not in self.groups:
            known = sum(other.startswith(f"{word}=") for other in self.groups)
            if known >= MOST_GROUPS:
                raise InputError(
                    f"column '{word}' must have at most {MOST_GROUPS} different values to group by, got more; "
                    "cut it into ranges first"
                )
            self.groups[name] = own = Sketch(units=self.units)
            own._begin(self.kind)
        return self.groups[name]

    def _count(self, counted: CountedRows) -> None:
        self.fine.add(counted.fine, counted.values[:1])
        self.coarse.add(counted.coarse + counted.units * UNIT_CELLS, counted.values)
        self.rows += len(counted.fine)

    def _unit_of(self, shard: Predictions) -> Indices:
        """The unit of every row; rows drawn apart are dealt to parts."""
        if shard.unit is None:
            return (np.arange(len(shard)) + self.rows) % PARTS
        column = shard.columns[shard.unit]
        if (column[:1] == column).all():  # the pixels of one image
            return np.repeat(self._numbers([str(column[0])]), len(column))
        names, place = np.unique(column.astype(np.str_), return_inverse=True)
        return self._numbers(names.tolist())[place.reshape(-1)]

    def _numbers(self, names: list[str]) -> Indices:
        """The numbers of units, or of the parts that they are dealt to."""
        if not self.are_parts and len(self.units) + sum(name not in self.units for name in names) > UNITS:
            self._deal_units()
        if self.are_parts:
            return parts_of_units(names)
        return np.array([self.units.setdefault(name, len(self.units)) for name in names], dtype=np.intp)

    def _deal_units(self) -> None:
        """From now on parts of units; the part of a unit depends on its name alone, whoever counts it."""
        part = parts_of_units(list(self.units))
        for own in (self, *self.groups.values()):
            units = own.coarse.summed()
            own.coarse = units.renumbered(units.keys % UNIT_CELLS + part[units.keys // UNIT_CELLS] * UNIT_CELLS)
        self.are_parts = True
        self.units.clear()

    def merge(self, other: Sketch) -> Sketch:
        """Add the counts of another sketch."""
        if not other.rows:
            return self
        if self.rows and self.by != other.by:
            raise InputError(f"all sketches must be by the same columns, got {other.by} after {self.by}; make it again")
        self._begin(other.kind)
        self.by = other.by
        if other.are_parts and not self.are_parts:
            self._deal_units()
        renamed = np.arange(UNITS) if other.are_parts else self._numbers(list(other.units))
        self._add_cells(other, renamed)
        for name, group in other.groups.items():
            self._group(name, group_parts(name)[0])._add_cells(group, renamed)
        if other.classes is not None:
            self.classes = other.classes if self.classes is None else self.classes + other.classes
        return self

    def _add_cells(self, other: Sketch, renamed: Indices) -> None:
        """The cells of another sketch, whose units have these numbers here."""
        fine, coarse = other.fine.summed(), other.coarse.summed()
        self.fine.add(fine.keys, fine.sums.T)
        keys = coarse.keys
        if self.kind.unit is not None:
            keys = keys % UNIT_CELLS + renamed[keys // UNIT_CELLS] * UNIT_CELLS
        self.coarse.add(keys, coarse.sums.T)
        self.rows += other.rows

    def record(self, table: CellTable) -> Predictions:
        """The cells as weighted samples: a row a cell, with the means of its facts."""
        summed = table.summed()
        keys, sums, count = summed.keys, summed.sums, summed.sums[:, 0]
        if table is self.fine:
            confidence, means_by_name = self._fine_means(summed)
        else:
            # Right and wrong rows of a cell get one confidence: they are tied, and its sums stay what they are.
            starts = np.flatnonzero(np.diff(keys >> 1, prepend=-1))
            both = np.add.reduceat(sums[:, :2], starts, axis=0)
            bins = bins_of_cells(keys[starts] % UNIT_CELLS >> 1, COARSE)
            means_of_cells = within_bins(both[:, 1] / both[:, 0], bins)
            confidence = np.repeat(means_of_cells, np.diff(starts, append=len(keys)))
            means_by_name = sums.T[2:] / count
        means = {name: torch.from_numpy(own) for name, own in zip(self.kind.names, means_by_name, strict=True)}
        means["confidence"] = torch.from_numpy(confidence)
        facts = Facts(right=torch.from_numpy((keys & 1).astype(bool)), **means)
        return Predictions.from_facts(
            facts,
            None,
            self.kind.num_classes,
            self.classes,
            from_probabilities=self.kind.from_probabilities,
            split=self.kind.split,
            class_names=self.kind.class_names,
            weights=count,
            columns={PART: keys // UNIT_CELLS},
            unit=PART,
        )

    def _coarse_places(self, fine: CellTable) -> tuple[CellTable, Indices]:
        """The coarse cells of all units together, and the place of every fine cell among them."""
        coarse = self.coarse.summed()
        together = CellTable(*sums_by_key(coarse.keys % UNIT_CELLS, coarse.sums.T))
        cells = coarser(fine.keys >> 1, bins_of_cells(fine.keys >> 1, FINE))
        return together, np.searchsorted(together.keys, cells << 1 | fine.keys & 1)

    def _fine_means(self, fine: CellTable) -> tuple[Floats, Floats]:
        """Confidence, and means of the other facts, of every fine cell.

        The facts are those of the coarse cell around it, of right rows or of wrong ones. Its confidence is its middle,
        moved with those of its neighbours so that the sums over the coarse cell are what they are.
        """
        together, place = self._coarse_places(fine)
        cells, count = fine.keys >> 1, fine.sums[:, 0]
        bins = bins_of_cells(cells, FINE)
        confidence = middles(cells, bins, FINE)
        _, tied = np.unique(together.keys >> 1, return_inverse=True)  # right and wrong rows are moved alike
        rows, sure = (np.bincount(tied, together.sums[:, k]) for k in (0, 1))
        moved = (sure - np.bincount(tied[place], count * confidence, len(rows))) / rows
        facts = together.sums.T[2:] / together.sums[:, 0]
        return within_bins(confidence + moved[tied[place]], bins), np.ascontiguousarray(facts[:, place])

    def ranking_limits(self, words: Sequence[str]) -> dict[str, tuple[float, float]]:
        """The values of ranking metrics if the right rows of every cell came first, and if they came last.

        No order of the rows within their cells gives a value beyond these two: all that these metrics ask of two
        neighbours is which one comes first, and a right one in front of a wrong one never makes any of them worse.
        """
        if not words:
            return {}
        keys = self.fine.summed().keys
        cell, right = keys >> 1, keys & 1
        orders = {"first": right - 2.0 * cell, "last": -right - 2.0 * cell}
        both = evaluate(self.record(self.fine).replace(unit=None), list(words), False, score=orders)
        values = {(m.metric, m.score): m.value for m in both.measurements if m.group is None}
        return {word: (values[word, "first"], values[word, "last"]) for word in words}

    def save(self, path: str | Path) -> None:
        """Write as npz, atomically."""
        columns = self._columns("")
        for k, group in enumerate(self.groups.values()):
            columns |= group._columns(f"group{k}_")
        if self.classes is not None:
            columns |= {f"classes_{name}": values for name, values in vars(self.classes).items() if values is not None}
        about = {
            "kind": asdict(self.kind),
            "units": list(self.units),
            "are_parts": self.are_parts,
            "rows": self.rows,
            "by": self.by,
            "groups": {name: group.rows for name, group in self.groups.items()},
        }
        formats.write_table(path, columns, {"sketch": formats.json_text(about)})

    def _columns(self, first: str) -> dict[str, NDArray[Any]]:
        tables = {name: getattr(self, name).summed() for name in ("fine", "coarse")}
        return {f"{first}{name}_{part}": getattr(tables[name], part) for name in tables for part in ("keys", "sums")}

    @classmethod
    def load(cls, path: str | Path) -> Sketch:
        """What `save` wrote."""
        columns, metadata = formats.read_table(path)
        about = formats.parse_json(metadata.get("sketch", "null"), path)
        if not isinstance(about, dict):
            raise InputError(f"{path} must be a sketch, got another file; make it again")
        with formats.reading(path, "sketch"):
            named = about["kind"].pop("class_names")
            names = tuple(about["kind"].pop("names"))
            kind = SketchKind(**about["kind"], names=names, class_names=None if named is None else tuple(named))
            units = {name: k for k, name in enumerate(about["units"])}

            def part(first: str, rows: int) -> Sketch:
                own = cls(kind, units, rows)
                for name, span in table_spans(kind).items():
                    table = CellTable(columns[f"{first}{name}_keys"], columns[f"{first}{name}_sums"], span, rows)
                    setattr(own, name, table)
                return own

            sketch = part("", about["rows"])
            sizes = about["groups"].items()
            sketch.groups = {name: part(f"group{k}_", rows) for k, (name, rows) in enumerate(sizes)}
            sums = {k.removeprefix("classes_"): v for k, v in columns.items() if k.startswith("classes_")}
            sketch.by, sketch.classes = tuple(about["by"]), ClassTable(**sums) if sums else None
            sketch.are_parts = bool(about["are_parts"])
            for own in (sketch, *sketch.groups.values()):
                own._check()
            return sketch

    def _check(self) -> None:
        """The counts of a file must fit each other."""
        check_record(self.kind)
        check_kind(self.rows, "int", "rows")
        for table, width in ((self.fine, 1), (self.coarse, 2 + len(self.kind.names))):
            keys, sums = table.keys, table.sums
            if not (self.rows or keys.size or sums.size):
                continue  # of shards without a row
            shape = (len(keys), width)
            whole = keys.dtype.kind == "i" and keys.ndim == 1 and sums.dtype == np.float64 and sums.shape == shape
            sound = whole and np.isfinite(sums).all() and (sums[:, 0] > 0).all() and (np.diff(keys) > 0).all()
            within = not len(keys) or (keys[0] >= 0 and keys[-1] < table.span)
            if (
                not (sound and within)
                or (sums[:, 1:2] > sums[:, :1] + 1e-6).any()
                or round(float(sums[:, 0].sum())) != self.rows
            ):
                raise InputError(f"its cells must hold {self.rows} samples, got others; make the sketch again")
        if not self.rows:
            return
        together, place = self._coarse_places(self.fine)
        counts = np.bincount(place, self.fine.sums[:, 0], len(together.keys))
        if len(counts) != len(together.keys) or (counts != together.sums[:, 0]).any():
            raise InputError("its fine and coarse cells must hold the same samples, got others; make the sketch again")
        if self.classes is not None:
            tables = [getattr(self.classes, part.name) for part in fields(self.classes)]
            shape = (self.kind.num_classes, BINS)
            if not all(t.shape == shape and t.dtype == np.float64 and np.isfinite(t).all() for t in tables):
                raise InputError(f"its sums by class must be {shape[0]} x {BINS} numbers; make the sketch again")


def parts_of_units(names: list[str]) -> Indices:
    """The part that each unit is dealt to, drawn by its name."""
    return random.integers(0, random.sample_keys(np.array(names, dtype=np.str_)), "units of a sketch", UNITS)


def sketch_of(source: Any, split: str | None = None, by: str | Sequence[str] = ()) -> Sketch:
    """The sketch of a record, a file, a folder of shards, or an iterator of these.

    Args:
        source: what `evaluate` takes.
        split: overrides the split that files name.
        by: columns, "class" or "predicted", whose every value is counted apart too.

    Returns:
        A `Sketch`; `merge` adds others.

    Raises:
        InputError: no sample at all.

    Example:
        >>> sketch = confide.evaluation.sketch_of(confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
        >>> sketch.rows
        2
    """
    words = (by,) if isinstance(by, str) else tuple(by)
    if isinstance(source, Predictions):
        return Sketch(by=words).add(source)
    shards: Iterable[Predictions]
    if isinstance(source, (str, Path)):
        path = Path(source)
        shards = from_folder(path, split) if path.is_dir() else [Predictions.load(path, split)]
    elif isinstance(source, Iterable) and not (isinstance(source, (np.ndarray, torch.Tensor)) and not source.ndim):
        shards = map(shard_predictions, source)
    else:
        raise InputError(f"a sketch needs predictions, a path or shards, got {type(source).__name__}; give one of them")
    sketch = Sketch(by=words)
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
    rankings: Mapping[str, float] | None = None,
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
        rankings: values of ranking metrics that are known exactly, by word, in place of those of the cells.
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
    called = "pixels" if sketch.kind.unit == "image" else "samples"
    known = About(title=title, unit=called).over(about or About())
    if sketch.kind.unit is not None:
        known = replace(known, drawn_as=sketch.kind.unit, units=None if sketch.are_parts else len(sketch.units))
    options: Options = {"model": model, "seed": seed, "score": "msp", "about": known}
    whole = evaluate(sketch.record(sketch.fine).replace(unit=None), metrics, False, **options)
    rows = sketch_rows(sketch, whole, intervals, rankings or {}, options)
    words = [m.metric for m in whole.measurements]
    for name, group in sketch.groups.items():
        record = group.record(group.fine).replace(unit=None)
        shown = [word for word in words if word in available_words("all", record)]
        of_group = sketch_rows(group, evaluate(record, shown, False, **options), intervals, {}, options)
        rows += [replace(m, group=name) for m in of_group]
    counted = replace(whole.about, weighted_by=None, effective_samples=None)
    return replace(whole, measurements=tuple(rows), about=counted)


def sketch_rows(
    sketch: Sketch, values: Evaluation, intervals: bool, rankings: Mapping[str, float], options: Options
) -> list[Measurement]:
    """The measurements of the cells with their intervals, and of rankings how far all rows can lie from them."""
    words = [m.metric for m in values.measurements if parse_metric(m.metric)[0].spec.info.kind == "ranking"]
    limits = sketch.ranking_limits([word for word in words if word not in rankings])
    rows = []
    for m in values.measurements:
        note = None
        if m.metric in limits:
            off = max(abs(limit - m.value) for limit in limits[m.metric])
            note = f"from cells, within {off:.1e} of all rows"
        rows.append(replace(m, n=sketch.rows, value=rankings.get(m.metric, m.value), note=note))
    if not intervals:
        return rows
    by_unit = evaluate(sketch.record(sketch.coarse), [m.metric for m in rows], True, **options)
    return [with_interval(m, by_unit) for m in rows]


def with_interval(row: Measurement, by_unit: Evaluation) -> Measurement:
    """The row with the interval that units give, moved to its own value."""
    other = next(m for m in by_unit.measurements if m.metric == row.metric and m.group is None)
    low, high = other.bounds or (math.nan, math.nan)
    moved = row.value - other.value
    bounds = (min(low + moved, row.value), max(high + moved, row.value))
    return replace(row, bounds=bounds, chance=other.chance, chance_high=other.chance_high, p_value=other.p_value)
