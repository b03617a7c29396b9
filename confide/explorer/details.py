"""One sample, as a cell of the grid and as the drawer beside it shows it: its row in words, the top classes before and
after calibration, its picture or text, its neighbours, the parts of its difficulty, its history over epochs.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from confide.block_sizes import MEMORY, rows_in
from confide.checks import InputError, MissingExtra, OptionError
from confide.data.images import LazyImages, as_picture, picture_bytes
from confide.explorer.layout import DataSource, Layout, Missing
from confide.explorer.queries import Query, SampleDatabase
from confide.explorer.samples import (
    Column,
    LogitsReader,
    PredictionsFile,
    SampleTable,
    align,
    parquet_row,
    stage_title,
)
from confide.explorer.tags import TAG_KINDS, SampleTag
from confide.files import formats
from confide.files.formats import reading
from confide.records import Dataset, Features, Split
from confide.results import RAW

if TYPE_CHECKING:
    from confide.difficulty.from_features import DistanceParts, GaussianDifficulty

# A row in words.

TOP = 5


@dataclass(frozen=True)
class RowCell:
    """What a cell of the grid shows of a sample; `value` is that of the column it is sorted by."""

    row: int
    id: str
    split: str
    label: str | None
    difficulty: float | None
    prediction: str | None
    confidence: float | None
    right: bool | None
    tag: str | None
    value: float | None


@dataclass(frozen=True)
class TopClass:
    """A class, whether it is the label, and its probability as trained and calibrated."""

    label: int
    name: str | None
    own: bool
    before: float
    after: float | None


@dataclass(frozen=True)
class TopClasses:
    """The most probable classes, and the stage that calibrates them where there is one."""

    stage: str | None
    stage_title: str | None
    classes: tuple[TopClass, ...]


@dataclass(frozen=True)
class ColumnValue:
    """A sample's value of a column; `rank` is the share of samples that are at least as hard, of difficulty only."""

    key: str
    title: str
    kind: str
    value: Any
    word: str | None
    rank: float | None = None


@dataclass(frozen=True)
class NamedClass:
    """A class by index and name."""

    label: int
    name: str | None


@dataclass(frozen=True)
class TagState:
    """A tag as it is on disk, in the words of the page."""

    tag: str | None
    kind: str | None
    new_label: str | None
    new_value: int | None
    note: str
    changed: str

    @classmethod
    def of(cls, tag: SampleTag, samples: SampleTable) -> TagState:
        """The state of a tag."""
        return cls(tag.action, tag.kind, samples.name_of(tag.new_label), tag.new_label, tag.note, tag.changed)


@dataclass(frozen=True)
class SampleDetails:
    """Everything of one sample that is known at once."""

    cell: RowCell
    top: TopClasses | Missing
    values: tuple[ColumnValue, ...]
    suggested: NamedClass | None
    tag: TagState


def describe_rows(database: SampleDatabase, query: Query, rows: list[int]) -> list[RowCell]:
    """The cells of some rows, in their order."""
    columns, samples, at = query.columns, database.samples, np.array(rows, dtype=np.intp)

    def numbers(key: str) -> list[float | None]:
        if key not in columns:
            return [None] * len(rows)
        return [value if math.isfinite(value) else None for value in database.values(columns[key])[at].tolist()]

    def codes(key: str) -> list[int | None]:
        if key not in columns:
            return [None] * len(rows)
        return [code - 1 if code else None for code in database.codes(columns[key])[at].tolist()]

    splits, kinds = samples.columns["split"].values, database.marks.kinds[at].tolist()
    outcome = [None if hit is None else hit == 1 for hit in codes("outcome")]
    words = zip(
        rows,
        samples.table.column("id").take(pa.array(at)).to_pylist(),
        (splits[split or 0] for split in codes("split")),
        map(samples.name_of, codes("label")),
        numbers("difficulty"),
        map(samples.name_of, codes("prediction")),
        numbers("confidence"),
        outcome,
        (None if kind < 0 else TAG_KINDS[kind] for kind in kinds),
        # The sorted-by value is shown where it is neither difficulty nor confidence.
        numbers(query.sort),
        strict=True,
    )
    return [RowCell(*cell) for cell in words]


def describe(database: SampleDatabase, query: Query, row: int, logits: LogitsReader) -> SampleDetails:
    """Everything of one sample that is known at once."""
    cell = describe_rows(database, query, [row])[0]
    tag = database.marks.tags.get(cell.split, cell.id) or SampleTag(cell.split, cell.id)
    top, values = _top_classes(database, query, row, logits), _values(database, query, row)
    return SampleDetails(cell, top, values, _suggested(database.samples, row), TagState.of(tag, database.samples))


def _values(database: SampleDatabase, query: Query, row: int) -> tuple[ColumnValue, ...]:
    """The value of every column that is not shown elsewhere."""
    columns = [c for c in query.columns.values() if c.key not in ("split", "label", "prediction", "outcome")]
    if not columns:
        return ()
    source = database.source(query.model_stage)
    values = database.fetch(f"SELECT {', '.join(c.sql for c in columns)} FROM {source} WHERE row = ?", [row])[0]
    return tuple(
        ColumnValue(c.key, c.title, c.kind, value, _word(database.samples, c, value), _rank(database, c, value))
        for c, value in zip(columns, values, strict=True)
    )


def _word(samples: SampleTable, column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.kind == "class":
        return samples.name_of(int(value))
    return column.values[int(value)] if column.kind == "category" else None


def _rank(database: SampleDatabase, column: Column, value: Any) -> float | None:
    """Share of all samples that are at least as hard; of difficulty only."""
    if column.key != "difficulty" or value is None:
        return None
    sql = "SELECT count(*) FILTER (difficulty >= ?), count(difficulty) FROM samples"
    at_least, scored = database.fetch(sql, [value])[0]
    return float(at_least) / float(max(scored, 1))


def _suggested(samples: SampleTable, row: int) -> NamedClass | None:
    if "suggested" not in samples.table.column_names:
        return None
    label = samples.table.column("suggested")[row].as_py()
    return None if label is None else NamedClass(label, samples.name_of(label))


def _top_classes(database: SampleDatabase, query: Query, row: int, logits: LogitsReader) -> TopClasses | Missing:
    """The most probable classes, as trained and calibrated; the label is always among them."""
    model, layout = query.model_stage, database.layout
    predictions = None if model is None else logits.read(model.model, row)
    if model is None or predictions is None:
        why = "There are no predictions here." if model is None else "All probabilities of this sample are not known."
        return Missing("Top classes", why, layout.rerun or "confide predict --help")
    stage = model.stage if model.stage != RAW else layout.opening_stage(model.model)
    calibrator = logits.calibrator(model.model, stage)
    before = predictions.probabilities()[0].double()
    after = before if calibrator is None else calibrator(predictions).probabilities()[0].double()
    leading = after if model.stage != RAW else before
    top = torch.topk(leading, min(TOP, len(leading))).indices.tolist()
    label = int(predictions.labels[0]) if predictions.has_labels else -1
    if 0 <= label < len(leading) and label not in top:
        top[-1] = label
    name = database.samples.name_of
    classes = (
        TopClass(k, name(k), k == label, float(before[k]), None if calibrator is None else float(after[k])) for k in top
    )
    return TopClasses(None if calibrator is None else stage, stage_title(stage), tuple(classes))


# Pictures and texts, from the dataset the run was made of.

LONGEST_SIDE = 512
WHOLE_SIDE = 2048
SHORT_TEXT = 220


@dataclass(frozen=True)
class Content:
    """What a sample is: the bytes of an image with their type, or a text, or the reason why neither is there."""

    image: bytes | None = None
    media_type: str = ""
    text: str | None = None
    reason: str = ""


class Pictures:
    """Pictures and texts by row; a dataset that cannot be loaded is a reason to show, and the rows stay."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        self.layout, self.samples = layout, samples
        self._lock = threading.Lock()
        self._dataset: Dataset | None = None
        self._places: dict[str, list[tuple[Split, Any]]] = {}
        self.loaded = not isinstance(layout.data, DataSource)
        self.reason = "" if not self.loaded else self._advice("no dataset is named")
        if isinstance(layout.data, Missing):
            self.reason = f"Pictures are not shown: {layout.data.why}; if you trust it: {layout.data.command}"

    def _advice(self, what: str) -> str:
        return f"Pictures are not shown: {what}; open with: confide explore {self.layout.path} --data DATASET"

    def load(self) -> None:
        """Load the dataset, once; it may take long, so this is called from a thread of its own."""
        source = self.layout.data
        with self._lock:
            if self.loaded or not isinstance(source, DataSource):
                return
            try:
                from confide import data

                self._dataset = data.load_dataset(source.source, seed=source.seed, **dict(source.options))
            except (InputError, OptionError, MissingExtra, OSError) as error:
                self.reason = self._advice(str(error).split(";")[0])
            if self._dataset is not None:
                self.samples.classes.complete(self._dataset.class_names)
            self.loaded = True

    @property
    def kind(self) -> str:
        """image, text, rows; or none where there is no dataset."""
        self.load()
        return "none" if self._dataset is None else self._dataset.kind

    def content(self, row: int, longest_side: int = LONGEST_SIDE) -> Content:
        """The picture or text of a row."""
        self.load()
        if self._dataset is None:
            return Content(reason=self.reason)
        split = self.samples.split_of(row)
        position = row - self.samples.starts[split]
        places = ((part, position if at is None else at[position].as_py()) for part, at in self._parts(split))
        part, place = next(((part, place) for part, place in places if place is not None), (None, None))
        if part is None or place is None:
            return Content(reason="it is not in the dataset")
        try:
            value = part.inputs[int(place)]
        except (InputError, OSError, IndexError, ValueError) as error:
            return Content(reason=str(error))
        if isinstance(value, str):
            return Content(text=value)
        return encoded_picture(np.asarray(value), longest_side)

    def whole(self, row: int) -> Content:
        """The picture as it lies in its file, before it was cut and scaled for the model, where that file is known."""
        self.load()
        split = self.samples.split_of(row)
        position = row - self.samples.starts[split]
        for part, at in () if self._dataset is None else self._parts(split):
            place = position if at is None else at[position].as_py()
            file = None if place is None else self._file(part, int(place))
            if file is None:
                continue
            try:
                with file, Image.open(file) as opened:
                    opened.draft(None, (WHOLE_SIDE, WHOLE_SIDE))
                    drawn = ImageOps.exif_transpose(opened).convert("RGB")
                drawn.thumbnail((WHOLE_SIDE, WHOLE_SIDE))
                return Content(picture_bytes(drawn, "jpeg", quality=90), "image/jpeg")
            except (OSError, ValueError, Image.DecompressionBombError) as error:
                return Content(reason=str(error))
        return Content(reason="its file is not known")

    def _file(self, part: Split, place: int) -> IO[bytes] | None:
        """The file of a picture: of images that are decoded when needed, or below the folder that the dataset is."""
        if isinstance(part.inputs, LazyImages):
            return part.inputs.encoded.open(int(part.inputs.rows[place]))
        source = self.layout.data
        folder = Path(source.source) if isinstance(source, DataSource) else None
        if folder is None or not folder.is_dir():
            return None
        path = (folder / str(part.ids[place])).resolve()
        return open(path, "rb") if path.is_relative_to(folder.resolve()) and path.is_file() else None

    def texts(self, rows: list[int]) -> list[str | None] | None:
        """The beginnings of the texts of some rows; None where the samples are no texts."""
        if not self.loaded or self.kind != "text":
            return None
        texts = [self.content(row).text for row in rows]
        return [None if text is None else text[:SHORT_TEXT] for text in texts]

    def _parts(self, split: str) -> list[tuple[Split, Any]]:
        """The dataset's splits that hold the samples of a split here, and where: places, or None for the same order."""
        with self._lock:
            if split not in self._places:
                self._places[split] = self._search(split)
            return self._places[split]

    def _search(self, split: str) -> list[tuple[Split, Any]]:
        assert self._dataset is not None
        ids = self.samples.ids[split]
        # A run sets a part of val apart under a name of its own: any split may hold it, the like-named one first.
        holding: list[tuple[Split, Any]] = []
        for name in sorted(self._dataset.splits, key=lambda name: (name != split, name != "val")):
            part = self._dataset.splits[name]
            known = pa.array(part.ids).cast(pa.string())
            if known.equals(ids):
                return [(part, None)]
            places = pc.index_in(ids, value_set=known)
            if places.null_count == 0:
                return [(part, places)]
            if places.null_count < len(places):
                holding.append((part, places))
        return holding


def encoded_picture(pixels: Any, longest_side: int) -> Content:
    """A uint8 image `c h w` as PNG when small, else JPEG; anything else is no picture."""
    drawn = as_picture(pixels)
    if drawn is None:
        return Content(reason="it is no picture")
    if max(drawn.size) > longest_side:
        drawn.thumbnail((longest_side, longest_side))
    if max(drawn.size) <= 96:
        return Content(picture_bytes(drawn, "png", compress_level=1), "image/png")
    return Content(picture_bytes(drawn, "jpeg", quality=88), "image/jpeg")


# Neighbours and score parts, from the features.

NEIGHBOURS = 6


@dataclass(frozen=True)
class Neighbour:
    """A near sample: its row here (None where it is not shown), id, label and distance."""

    row: int | None
    id: str
    label: int
    distance: float


@dataclass(frozen=True, eq=False)
class SplitFeatures:
    """Features of a split, and where the samples shown lie in them: places, or None for the same order."""

    features: Features
    places: Any


class SampleFeatures:
    """Features by split, read when first asked for."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        self.layout, self.samples = layout, samples
        self._lock = threading.Lock()
        self._splits: dict[str, SplitFeatures] = {}
        self._fitted: GaussianDifficulty | None = None

    def read(self, split: str) -> SplitFeatures | None:
        """The features of a split; None without them."""
        path = self.layout.features.get(split)
        if path is None:
            return None
        with self._lock:
            if split not in self._splits:
                with reading(path):
                    features = Features.load(path)
                    ids = pa.array(features.ids).cast(pa.string())
                places = align(self.samples.ids[split], ids) if split in self.samples.ids else None
                self._splits[split] = SplitFeatures(features, places)
            return self._splits[split]

    def row(self, row: int) -> NDArray[np.float64] | None:
        """The feature vector of one sample; None without features."""
        split = self.samples.split_of(row)
        source = self.read(split)
        if source is None:
            return None
        position = row - self.samples.starts[split]
        place = position if source.places is None else source.places[position].as_py()
        return None if place is None else np.asarray(source.features.values[int(place)], dtype=np.float64)

    @property
    def reference(self) -> str | None:
        """The split neighbours are looked for in and Gaussians are fitted on: train, else the only one there is."""
        return "train" if "train" in self.layout.features else next(iter(self.layout.features), None)

    def nearest(self, row: int) -> list[Neighbour] | Missing:
        """The nearest samples of the training split, by Euclidean distance in feature space."""
        vector, split = self.row(row), self.reference
        source = None if split is None else self.read(split)
        if vector is None or split is None or source is None:
            return self._absent("Neighbours")
        features = source.features
        same_split = split == self.samples.split_of(row)
        distance = _distances(features.values, vector)
        order = np.argsort(distance, kind="stable")[: NEIGHBOURS + int(same_split)]
        own = self.samples.table.column("id")[row].as_py()
        near = [int(k) for k in order if not (same_split and str(features.ids[k]) == own)][:NEIGHBOURS]
        rows = self._rows_here(split, source.places, [str(features.ids[k]) for k in near], near)
        return [
            Neighbour(here, str(features.ids[k]), int(features.labels[k]), float(distance[k]))
            for here, k in zip(rows, near, strict=True)
        ]

    def _rows_here(self, split: str, places: Any, ids: list[str], near: list[int]) -> list[int | None]:
        if split not in self.samples.ids:
            return [None] * len(near)
        start = self.samples.starts[split]
        if places is None:
            return [start + k for k in near]
        here = pc.index_in(pa.array(ids), value_set=self.samples.ids[split]).to_pylist()
        return [None if k is None else start + k for k in here]

    def parts(self, row: int) -> DistanceParts | Missing:
        """The distances that make up RMD or MD: to the own class, to all data, and the closest class."""
        # Imported here because the package takes a second to load.
        from confide.difficulty.from_features import GAUSSIAN_WORDS

        method, label = self.samples.method, self.samples.label_of(row)
        if method not in GAUSSIAN_WORDS or label is None or label < 0:
            return Missing("Parts", f"Difficulty '{method or 'unknown'}' is not made of distances.", "")
        vector = self.row(row)
        source = None if self.reference is None else self.read(self.reference)
        if vector is None or source is None:
            return self._absent("Score parts")
        return self._gaussians(source.features).parts(vector, label)

    def _gaussians(self, features: Features) -> GaussianDifficulty:
        """The run's own fit where it kept one."""
        with self._lock:
            if self._fitted is None:
                from confide import difficulty
                from confide.difficulty.from_features import GaussianDifficulty

                fitted = None if self.layout.difficulty is None else difficulty.load(self.layout.difficulty)
                if fitted is None or fitted.method != self.samples.method:
                    options = {k: v for k, v in self.samples.options.items() if k == "shrinkage"}
                    fitted = difficulty.fit(self.samples.method, features, **options)
                assert isinstance(fitted.model, GaussianDifficulty)
                self._fitted = fitted.model
            return self._fitted

    def _absent(self, what: str) -> Missing:
        if self.layout.rerun:
            return Missing(what, "The run folder holds no features of this sample.", self.layout.rerun)
        command = f"confide explore {self.layout.path} --features features.npz"
        return Missing(what, "A file alone has no features.", command)


def _distances(values: Any, vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of all rows to one vector, in blocks of bounded memory."""
    n = int(values.shape[0])
    distances = np.empty(n)
    step = rows_in(MEMORY, int(values.shape[1]))
    for start in range(0, n, step):
        gap = np.asarray(values[start : start + step], dtype=np.float32) - vector.astype(np.float32)
        distances[start : start + step] = np.sqrt(np.einsum("nd,nd->n", gap, gap))
    return distances


# History over epochs, from what the training recorded.


@dataclass(frozen=True)
class EpochHistory:
    """Epochs with the probability of the label and the predicted class after each."""

    epoch: tuple[int, ...]
    probability: tuple[float, ...]
    prediction: tuple[int, ...]


class History:
    """The probability of the label and the prediction after every epoch, where the training recorded them."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        import duckdb

        self.layout, self.samples = layout, samples
        self._connection = duckdb.connect()
        self._places: dict[tuple[str, str], Any] = {}

    def read(self, model: str, row: int) -> EpochHistory | Missing:
        """The history of one sample."""
        folder = self.layout.history.get(model)
        if folder is None:
            return Missing("History", "The training of this model kept none.", self.layout.rerun or "confide run")
        with reading(folder):
            return self._read(model, folder, row)

    def _read(self, model: str, folder: Path, row: int) -> EpochHistory | Missing:
        split, rerun = self.samples.split_of(row), self.layout.rerun or "confide run"
        files = sorted(folder.glob("*.parquet"))
        recorded = formats.parquet_metadata(files[0]).get("split", "")
        if recorded != split:
            why = f"It was kept for the split '{recorded}'; for this one say record: {split} under training."
            return Missing("History", why, rerun)
        place, columns = self._place(model, split, row), ("probability", "prediction")
        if place is None:
            return Missing("History", "This model has not predicted this sample.", rerun)
        rows = {
            int(path.stem.split("-")[-1]): parquet_row(self._connection, path, columns, place).to_pylist()
            for path in files
        }
        points = [(epoch, *values) for epoch, values in rows.items() if values]
        return EpochHistory(
            tuple(epoch for epoch, _ in points),
            tuple(float(values["probability"]) for _, values in points),
            tuple(int(values["prediction"]) for _, values in points),
        )

    def close(self) -> None:
        """Let go of the database, which a call that still runs keeps until then."""
        del self._connection

    def _place(self, model: str, split: str, row: int) -> int | None:
        """Where epochs keep a sample: in the order of the split, which is that of its predictions."""
        path = self.layout.predictions[model].get(split)
        if path is None:
            return None
        if (model, split) not in self._places:
            self._places[model, split] = self.samples.places_in(split, PredictionsFile(path, split))
        places = self._places[model, split]
        position = row - self.samples.starts[split]
        place: int | None = position if places is None else places[position].as_py()
        return place
