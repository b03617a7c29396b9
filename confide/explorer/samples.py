"""Samples and predictions as tables.

`gather_samples` reads all samples of a layout into one arrow table: split, id, label, difficulty, verdict and the
user's columns. `model_table` is what a model predicts at a stage for every row of it, `LogitsReader` reads the outputs
of single rows. A file of predictions may have any column names that `confide evaluate` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import MEMORY, rows_in
from confide.checks import InputError
from confide.explorer.layout import Layout
from confide.facts import Facts, FactsBuilder
from confide.files import formats
from confide.files.columns import ID_COLUMNS, LABEL_COLUMNS, class_indices_of, column_roles, names_in
from confide.files.formats import reading
from confide.predictions import Predictions, predictions_from_columns
from confide.records import Features, Scores, extractor_options, rows_of
from confide.results import RAW
from confide.types import JsonObject, Options

if TYPE_CHECKING:
    from confide.calibrators import Calibrator

CLASS_COLUMNS = {"suggested": "Class that fits best", "runner_up": "Runner-up class"}
"""Columns of scores that name classes."""
MAX_CATEGORIES = 1000
"""A column of words with more values than this is searched, not listed."""
MAX_CLASSES = 1 << 24
"""Counts by class are kept for so many at most."""
MAX_RANGED = 1 << 20
"""Of more values than this one in seven tells the range to draw: no common cycle in data is of seven rows."""
MAX_LISTED_NUMBERS = 12
"""Whole numbers of at most so many values are listed, not drawn."""


# The table of all samples.


@dataclass(frozen=True)
class Column:
    """Something to filter or sort by. Categories are stored as positions in `values`."""

    key: str
    title: str
    sql: str
    kind: str  # "number", "category", "class" or "text"
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    table: str = "samples"

    @property
    def inside(self) -> str:
        """Its title within a sentence; a column of the user's own keeps its name."""
        return self.title if self.key.startswith("c.") else self.title.lower()

    def public(self) -> JsonObject:
        """What the page needs to know of it."""
        return {"key": self.key, "title": self.title, "kind": self.kind, "low": self.low, "high": self.high}


class ClassNames:
    """Names of the classes: those of the files, or those the dataset brings once it is loaded."""

    def __init__(self, names: Sequence[str]) -> None:
        # Half a surrogate pair is no text: tables cannot hold it.
        self.names = tuple(name.encode("utf-8", "replace").decode() for name in names)

    def complete(self, names: Sequence[str]) -> None:
        """Take these where no file names the classes."""
        self.names = self.names or tuple(names)


@dataclass(frozen=True)
class FileStamp:
    """A file as it was: other content has another time or size."""

    path: Path
    changed_ns: int
    size: int


@dataclass(frozen=True, eq=False)
class SampleTable:
    """The table, its columns by key, and how it was scored."""

    table: pa.Table
    columns: Mapping[str, Column]
    ids: Mapping[str, pa.Array]  # by split, in the order of the rows
    starts: Mapping[str, int]  # first row of every split
    classes: ClassNames
    num_classes: int
    method: str = ""
    options: Options = field(default_factory=dict)
    sources: Mapping[str, FileStamp] = field(default_factory=dict)  # by split, the file whose rows these are in order
    unit: str | None = None  # key of the column that says which rows were drawn as one

    def places_in(self, split: str, file: PredictionsFile) -> pa.Array | None:
        """Places of the samples of a split in a file, null where absent; None when its rows are the same."""
        return None if self.sources.get(split) == file.stamp() else align(self.ids[split], file.read_ids())

    def split_of(self, row: int) -> str:
        """The split a row belongs to."""
        return max((s for s in self.starts if self.starts[s] <= row and len(self.ids[s])), key=lambda s: self.starts[s])

    def name_of(self, label: int | None) -> str | None:
        """The name of a class; its number where it has none."""
        if label is None or label < 0:
            return None
        return self.classes.names[label] if label < len(self.classes.names) else str(label)

    def label_of(self, row: int) -> int | None:
        """The label of a row, where labels are known."""
        if "label" not in self.table.column_names:
            return None
        label: int | None = self.table.column("label")[row].as_py()
        return label


def gather_samples(layout: Layout) -> SampleTable:
    """Read everything but logits: what filters and sorting need."""
    splits = {split: _read_split(layout, split) for split in layout.splits}
    parts = {split: part.columns for split, part in splits.items()}
    if layout.columns is not None:
        with reading(layout.columns):
            _join_columns(parts, layout.columns)
    sizes = {split: len(columns["id"]) for split, columns in parts.items()}
    if not sum(sizes.values()):
        raise InputError(f"{layout.path} must hold at least one sample, got none; finish the run")
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    names = list(dict.fromkeys(name for columns in parts.values() for name in columns))
    whole = {name: _stack([columns.get(name) for columns in parts.values()], list(sizes.values())) for name in names}
    whole["split"] = pa.array(np.repeat(np.arange(len(sizes), dtype=np.int16), list(sizes.values())))
    highest = pc.max(whole["label"]).as_py() if "label" in whole else None
    table, columns = _stored(whole, tuple(sizes))
    class_names = next((n for n in (layout.class_names, *(part.class_names for part in splits.values())) if n), ())
    method, options = next(((part.method, part.options) for part in splits.values() if part.method), ("", {}))
    known = (len(class_names), 0 if highest is None else highest + 1, *(part.num_classes for part in splits.values()))
    if max(known) > MAX_CLASSES:
        raise InputError(
            f"{layout.path} must have labels below {MAX_CLASSES:,}, got {max(known) - 1:,}; number them anew"
        )
    return SampleTable(
        table,
        columns,
        {split: columns["id"] for split, columns in parts.items()},
        starts,
        ClassNames(class_names),
        max(known),
        method,
        options,
        {split: part.source for split, part in splits.items() if part.source is not None},
        next((key for part in splits.values() if part.unit and (key := f"c.{part.unit}") in columns), None),
    )


@dataclass(frozen=True)
class _SplitColumns:
    """Columns of one value a row, `id` as words and `label` as class indices; names of classes; how it was scored."""

    columns: dict[str, pa.Array]
    class_names: tuple[str, ...] = ()
    num_classes: int = 0
    method: str = ""
    options: Options = field(default_factory=dict)
    source: FileStamp | None = None
    """The file of predictions whose rows these are."""
    unit: str | None = None


def _read_split(layout: Layout, split: str) -> _SplitColumns:
    """The columns of a split from its scores and the first model's predictions, by id."""
    sources: list[_SplitColumns] = []
    if split in layout.scores:
        with reading(layout.scores[split]):
            sources.append(_read_scores(layout.scores[split]))
    files = [by_split[split] for by_split in layout.predictions.values() if split in by_split]
    if files:
        with reading(files[0]):
            sources.append(PredictionsFile(files[0], split).read_samples())
    sources.sort(key=lambda source: -len(source.columns["id"]))
    columns = dict(sources[0].columns)
    for other in sources[1:]:
        places = align(columns["id"], other.columns["id"])
        columns |= {k: v if places is None else v.take(places) for k, v in other.columns.items() if k not in columns}
    return _SplitColumns(
        columns,
        next((source.class_names for source in sources if source.class_names), ()),
        max(source.num_classes for source in sources),
        *next(((source.method, source.options) for source in sources if source.method), ("", {})),
        sources[0].source,
        next((source.unit for source in sources if source.unit), None),
    )


def _read_scores(path: Path) -> _SplitColumns:
    columns, metadata = _flat(path)
    columns["difficulty"] = pc.cast(columns.pop("score"), pa.float64())
    name = next((name for name in LABEL_COLUMNS if name in columns), None)
    if name is not None:
        label = columns.pop(name)
        if not (pa.types.is_integer(label.type) or pa.types.is_floating(label.type)):
            raise InputError(f"{path} must have class indices as labels, got {label.type}; give numbers from 0")
        columns["label"] = _whole_numbers(label)
    for name in CLASS_COLUMNS:
        if name in columns:
            columns[name] = _whole_numbers(columns[name])
    method, options = metadata.get("method", ""), extractor_options(metadata)
    return _SplitColumns(columns, _class_names(metadata), method=method, options=options)


def _flat(path: Path) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """The columns of one value a row, with `id` as words, and the metadata."""
    table, metadata = formats.read_arrow(path)
    columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
    name = next((name for name in ID_COLUMNS if name in columns), None)
    ids = pa.array(np.arange(table.num_rows)) if name is None else columns.pop(name)
    return {"id": pc.cast(ids, pa.string()), **columns}, metadata


def _class_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    return names_in(metadata.get("class_names", "[]")) or ()


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def align(ids: pa.Array, known: pa.Array) -> pa.Array | None:
    """Places of the ids among the known ones, null where absent; None when they are the same."""
    return None if ids.equals(known) else pc.index_in(ids, value_set=known)


def _join_columns(parts: Mapping[str, dict[str, pa.Array]], path: Path) -> None:
    """Add the user's columns by id, within its split where the table names one."""
    columns, _ = _flat(path)
    if "id" not in formats.column_names(path):
        raise InputError(f"{path} must have a column 'id' to join its columns by; add it")
    ids, split = columns.pop("id"), columns.pop("split", None)
    columns.pop("label", None)
    matched = 0
    for name, part in parts.items():
        in_split = None if split is None else pc.equal(split, name)
        places = pc.index_in(part["id"], value_set=ids if in_split is None else ids.filter(in_split))
        matched += len(places) - places.null_count
        for key, values in columns.items():
            part[key] = (values if in_split is None else values.filter(in_split)).take(places)
    if not matched:
        raise InputError(f"{path} must name samples that are shown here, but no id of it is; check the column 'id'")


def _stack(arrays: list[pa.Array | None], sizes: list[int]) -> pa.Array:
    known = next(a for a in arrays if a is not None)
    filled = [pa.nulls(n, known.type) if a is None else a for a, n in zip(arrays, sizes, strict=True)]
    return pa.concat_arrays([a.cast(known.type) for a in filled])


def _stored(whole: dict[str, pa.Array], splits: tuple[str, ...]) -> tuple[pa.Table, dict[str, Column]]:
    """Arrow columns under plain names, and what each is: words become positions in a list of values."""
    n = len(whole["id"])
    stored: dict[str, pa.Array] = {"row": pa.array(np.arange(n, dtype=np.int32)), "id": whole.pop("id")}
    stored["split"] = whole.pop("split")
    columns = {"split": Column("split", "Split", "split", "category", splits)}
    if "label" in whole:
        stored["label"] = whole.pop("label")
        columns["label"] = Column("label", "Label", "label", "class")
    for name, title in CLASS_COLUMNS.items():
        if name in whole:
            stored[name] = whole.pop(name)
            columns[name] = Column(name, title, name, "class")
    for place, (name, values) in enumerate(whole.items()):
        known = {"difficulty": "Difficulty", "verdict": "Looks"}.get(name)
        sql = name if known else f"u{place}"
        described = _column(name if known else f"c.{name}", known or name, sql, values)
        if described is not None:
            columns[described[0].key], stored[sql] = described
    return pa.table(stored), columns


def _column(key: str, title: str, sql: str, values: pa.Array) -> tuple[Column, pa.Array] | None:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = pc.if_else(values, "yes", "no")
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        few = pa.types.is_integer(kind) and len(pc.unique(values.slice(0, 100_000)).drop_null()) <= MAX_LISTED_NUMBERS
        if not few or key == "difficulty":
            return number_column(key, title, sql, values)
    try:
        words = pc.cast(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    coded = pc.dictionary_encode(words)
    if pc.index(coded.dictionary, "").as_py() >= 0:  # an empty word is a missing one
        words = pc.if_else(pc.equal(words, ""), None, words)
        coded = pc.dictionary_encode(words)
    if not len(coded.dictionary):
        return None
    if len(coded.dictionary) > MAX_CATEGORIES:
        return Column(key, title, sql, "text"), words
    return Column(key, title, sql, "category", tuple(coded.dictionary.to_pylist())), coded.indices


def number_column(key: str, title: str, sql: str, values: pa.Array) -> tuple[Column, pa.Array] | None:
    """A column of numbers with the range to draw: all but the outermost half per cent; NaN is missing."""
    doubles = pc.cast(values, pa.float64(), safe=False)
    doubles = pc.if_else(pc.is_finite(doubles), doubles, None)
    if doubles.null_count == len(doubles):
        return None
    some = doubles if len(doubles) <= MAX_RANGED else doubles.take(pa.array(np.arange(0, len(doubles), 7)))
    low, high = pc.quantile(some, q=[0.005, 0.995]).to_pylist()
    if low is None or high <= low:
        low, high = pc.min_max(doubles).as_py().values()
    return Column(key, title, sql, "number", (), float(low), float(high if high > low else low + 1)), doubles


# What a model predicts: files of predictions, every row at a stage, single rows.


class PredictionsFile:
    """A file of predictions, read without its logits, block by block, or one row of it.

    Args:
        class_names: what the classes are called elsewhere; labels that are words need it where the file does not say.
    """

    def __init__(self, path: Path, split: str, class_names: tuple[str, ...] = ()) -> None:
        self.path, self.split, self.class_names = path, split, class_names
        self.roles = column_roles(formats.column_names(path), str(path))

    def stamp(self) -> FileStamp:
        """The file as it is now."""
        known = self.path.stat()
        return FileStamp(self.path, known.st_mtime_ns, known.st_size)

    def read_ids(self) -> pa.Array:
        """The ids as words, by position where the file has none."""
        outputs = self.roles.outputs.names if self.roles.outputs else ()
        # Any column of one value a row tells how many there are.
        known = (self.roles.id, self.roles.label, self.roles.confidence, *outputs)
        names = [name for name in known if name is not None]
        table, _ = formats.read_arrow(self.path, names[:1])
        ids = pa.array(np.arange(table.num_rows)) if self.roles.id is None else _one_chunk(table.column(self.roles.id))
        return pc.cast(ids, pa.string())

    def read_samples(self) -> _SplitColumns:
        """Ids, labels, the user's columns and the names of the classes; no logits where they can be left unread."""
        stamp = self.stamp()  # before it is read: what changes meanwhile counts as changed
        if self.path.suffix != ".parquet" or self.roles.outputs is None:
            whole = Predictions.load(self.path)
            own = {k: pa.array(v) for k, v in whole.columns.items() if v.ndim == 1}
            columns = {"id": pc.cast(pa.array(whole.ids), pa.string())}
            if whole.has_labels:
                columns["label"] = pa.array(whole.labels.numpy(), pa.int32())
            # A class may be predicted, or have an output, that no label names.
            number = 0 if whole.facts.predicted is None else whole.num_classes
            return _SplitColumns(columns | own, whole.class_names or (), number, source=stamp, unit=whole.unit)
        names = [self.roles.label, *self.roles.others]
        table, metadata = formats.read_arrow(self.path, [name for name in names if name is not None])
        columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
        class_names = self.roles.outputs.classes or _class_names(metadata)
        if self.roles.label is not None:
            labels = columns.pop(self.roles.label)
            columns["label"] = _class_indices(labels, class_names, str(self.path))
        width = max(2, self._width())
        return _SplitColumns(
            {"id": self.read_ids(), **columns}, class_names, width, source=stamp, unit=metadata.get("unit")
        )

    def read_facts(self, calibrator: StageCalibrator | None) -> tuple[Facts, Tensor | None]:
        """What the model predicts for every sample of the file, and its trust, read in blocks of bounded memory."""
        roles = self.roles
        outputs = roles.outputs.names if roles.outputs else ()
        names = [roles.label, *outputs, roles.prediction, roles.confidence, roles.correct, roles.trust]
        if calibrator is not None and calibrator.goes_by_ids:
            names.append(roles.id)
        blocks, trust = FactsBuilder(), []
        for columns, metadata in formats.table_batches(self.path, self._block_rows(), [n for n in names if n]):
            predictions = self._predictions(columns, metadata)
            facts = (predictions if calibrator is None else calibrator(predictions)).facts
            predicted = None if facts.predicted is None else facts.predicted.int()
            sure = torch.from_numpy(facts.sureness())
            blocks.add(Facts(sure, predicted, facts.right, nll=facts.nll))
            trust += [] if predictions.trust is None else [predictions.trust.float()]
        return blocks.join(), torch.cat(trust) if trust else None

    def read_row(self, connection: Any, place: int) -> Predictions:
        """All outputs of one sample, by a connection to DuckDB."""
        if self.path.suffix != ".parquet" or self.roles.outputs is None:
            return Predictions.load(self.path, self.split).take([place])
        names = [*self.roles.outputs.names, *(name for name in (self.roles.label, self.roles.id) if name)]
        table = parquet_row(connection, self.path, names, place)
        columns = {name: formats.arrow_to_numpy(table.column(name)) for name in names}
        return self._predictions(columns, formats.parquet_metadata(self.path))

    def _predictions(self, columns: dict[str, NDArray[Any]], metadata: Mapping[str, str]) -> Predictions:
        # A block of predicted words alone knows only the classes in it.
        known = {"class_names": json.dumps(self.class_names)} if self.class_names and not self.roles.outputs else {}
        return predictions_from_columns(columns, {**known, **metadata}, self.split, str(self.path))

    def _block_rows(self) -> int:
        """So many rows that their logits fit a block."""
        return MEMORY if self.path.suffix != ".parquet" else rows_in(MEMORY, self._width())

    def _width(self) -> int:
        """Outputs of a sample in a parquet file, at least 1."""
        names = self.roles.outputs.names if self.roles.outputs else ()
        return max(1, formats.list_width(self.path, names[:1]) * len(names))


def _whole_numbers(values: pa.Array) -> pa.Array:
    """Class indices as int32, NaN as missing; fractions and what does not fit are errors, not other classes."""
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    return pc.cast(values, pa.int32())


def _class_indices(labels: pa.Array, class_names: tuple[str, ...], where: str) -> pa.Array:
    if pa.types.is_integer(labels.type) or pa.types.is_floating(labels.type) or pa.types.is_boolean(labels.type):
        return _whole_numbers(labels)
    words = np.asarray(labels.to_pylist()).astype(np.str_)
    return pa.array(class_indices_of(words, class_names or None, where), pa.int32())


def model_table(layout: Layout, samples: SampleTable, model: str, stage: str) -> pa.Table:
    """One row per sample, in the order of the samples; null where the model predicts nothing."""
    n = samples.table.num_rows
    prediction = np.full(n, -1, dtype=np.int32)
    # Single precision would round many confidences to 1, and no link of the report could part them.
    confidence = np.full(n, np.nan)
    loss, trust = (np.full(n, np.nan, dtype=np.float32) for _ in range(2))
    correct = np.full(n, -1, dtype=np.int8)
    calibrator = load_calibrator(layout, model, stage)
    for split, path in layout.predictions[model].items():
        with reading(path):
            file = PredictionsFile(path, split, samples.classes.names)
            rows, places = _aligned_rows(samples, split, samples.places_in(split, file))
            if not len(prediction[rows]):
                continue
            facts, own_trust = file.read_facts(calibrator)
        known = ((prediction, facts.predicted), (confidence, facts.confidence), (correct, facts.right))
        for target, values in (*known, (loss, facts.nll), (trust, own_trust)):
            if values is not None:
                target[rows] = values.numpy()[places]
    for split, path in layout.trust.get(model, {}).items():
        with reading(path):
            table, _ = formats.read_arrow(path)
            ids = _one_chunk(table.column("id")).cast(pa.string())
            rows, places = _aligned_rows(samples, split, align(samples.ids[split], ids))
            trust[rows] = table.column("trust").to_numpy()[places]
    changes = _prediction_changes(layout, samples, model)
    return pa.table(
        {
            "prediction": pa.array(prediction, mask=prediction < 0),
            "confidence": pa.array(confidence, mask=~np.isfinite(confidence)),
            "loss": pa.array(loss, mask=~np.isfinite(loss)),
            "hit": pa.array(correct == 1, mask=correct < 0),
            "trust": pa.array(trust, mask=~np.isfinite(trust)),
            "changes": pa.array(changes, mask=~np.isfinite(changes)),
        }
    )


def _prediction_changes(layout: Layout, samples: SampleTable, model: str) -> NDArray[np.float32]:
    """How often the predicted class of a sample changed from one epoch to the next; NaN where that was not recorded."""
    changes = np.full(samples.table.num_rows, np.nan, dtype=np.float32)
    folder = layout.history.get(model)
    if folder is None:
        return changes
    with reading(folder):
        files = sorted(folder.glob("*.parquet"), key=lambda path: int(path.stem.split("-")[-1]))
        split = formats.parquet_metadata(files[0]).get("split", "") if len(files) > 1 else ""
        path = layout.predictions[model].get(split)
        if path is None or split not in samples.ids:
            return changes
        rows, places = _aligned_rows(samples, split, samples.places_in(split, PredictionsFile(path, split)))
        epochs = (np.asarray(pq.read_table(file, columns=["prediction"]).column(0))[places] for file in files)
        last = next(epochs)
        count = np.zeros(len(last), dtype=np.float32)
        for predicted in epochs:
            count += predicted != last
            last = predicted
    changes[rows] = count
    return changes


@dataclass(frozen=True, eq=False)
class StageCalibrator:
    """A fitted calibrator, with the difficulty of the predicted class or the features where it goes by these."""

    calibrator: Calibrator
    by: str = ""
    difficulty: Scores | None = None
    features: tuple[Features, ...] = ()

    def __call__(self, predictions: Predictions) -> Predictions:
        if self.difficulty is not None:
            predictions = predictions.with_column(self.by, self.difficulty.of(predictions.ids))
        if self.calibrator.feature_dim is None:
            return self.calibrator(predictions)
        # Ids are unique within a split alone: the split whose ids these are has their rows.
        split = next((part for part in self.features if np.isin(predictions.ids, part.ids).all()), None)
        rows = None if split is None else split.values[rows_of(predictions.ids, split.ids, "features")]
        return self.calibrator(predictions, rows)

    @property
    def goes_by_ids(self) -> bool:
        """Whether predictions need their ids to be calibrated."""
        return self.difficulty is not None or bool(self.features)


def load_calibrator(layout: Layout, model: str, stage: str) -> StageCalibrator | None:
    """The calibrator of a stage; none as trained. Imported here because the package takes a second to load."""
    if stage == RAW:
        return None
    from confide import calibrators

    path, scores = layout.calibrators[model][stage], layout.predicted_class_scores
    with reading(path):
        calibrator = calibrators.load(path)
    by = calibrator.by if isinstance(calibrator, calibrators.GroupCalibrator) else ""
    known = Scores.load(scores) if by == calibrators.DIFFICULTY and scores else None
    files = layout.features.values() if calibrator.feature_dim is not None else ()
    return StageCalibrator(calibrator, by, known, tuple(Features.load(path) for path in files))


def stage_title(stage: str) -> str | None:
    """What a calibrator's stage is called in a sentence; None as trained."""
    if stage == RAW:
        return None
    from confide import calibrators

    return calibrators.stage_titles([stage]).get(stage, stage)


def _aligned_rows(samples: SampleTable, split: str, places: pa.Array | None) -> tuple[Any, Any]:
    """Rows of the table that a file's samples have, and which of the file's rows they are."""
    start = samples.starts[split]
    if places is None:
        return slice(start, start + len(samples.ids[split])), slice(None)
    present = places.is_valid().to_numpy(zero_copy_only=False)
    return start + np.flatnonzero(present), places.drop_null().to_numpy()


def parquet_row(connection: Any, path: Path, names: Sequence[str], place: int) -> pa.Table:
    """These columns of one row of a parquet file, read by DuckDB; of other rows nothing is read.

    DuckDB takes a path for a pattern of names (`run[1]` means `run1`) and a folder `label=3` for a column `label`.
    """
    if "\\" in str(path) and any(mark in str(path) for mark in "*?["):
        return pq.read_table(path, columns=list(names)).slice(place, 1)
    pattern = "".join(f"[{mark}]" if mark in "*?[" else mark for mark in str(path.absolute()))
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    source = "read_parquet(?, file_row_number = true, hive_partitioning = false)"
    sql = f"SELECT {quoted} FROM {source} WHERE file_row_number = ?"
    return connection.cursor().sql(sql, params=[pattern, place]).to_arrow_table()


class LogitsReader:
    """Single rows of a model's outputs, and what calibrates them; of parquet only that row is read, by DuckDB."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        import duckdb

        self.layout, self.samples = layout, samples
        self._connection = duckdb.connect()
        self._files: dict[Path, tuple[PredictionsFile, pa.Array | None]] = {}
        self._calibrators: dict[tuple[str, str], StageCalibrator | None] = {}

    def read(self, model: str, row: int) -> Predictions | None:
        """A model's outputs on one sample; None where it predicts nothing, or only its top class is known."""
        split = self.samples.split_of(row)
        path = self.layout.predictions.get(model, {}).get(split)
        if path is None:
            return None
        with reading(path):
            if path not in self._files:
                file = PredictionsFile(path, split)
                self._files[path] = file, self.samples.places_in(split, file)
            file, places = self._files[path]
            position = row - self.samples.starts[split]
            place = position if places is None else places[position].as_py()
            return None if place is None or file.roles.outputs is None else file.read_row(self._connection, place)

    def calibrator(self, model: str, stage: str) -> StageCalibrator | None:
        """The calibrator of a stage, read once; none as trained."""
        if (model, stage) not in self._calibrators:
            self._calibrators[model, stage] = load_calibrator(self.layout, model, stage)
        return self._calibrators[model, stage]

    def close(self) -> None:
        """Let go of the database, which a call that still runs keeps until then."""
        del self._connection
