"""One sample: its row in words, top classes before and after calibration, picture or text, neighbours, score parts
and
history over epochs.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from PIL import Image

from confide.checks import InputError, MissingExtra, OptionError
from confide.explorer.layout import RAW, Layout, Missing
from confide.explorer.queries import Question, SampleDatabase
from confide.explorer.samples import Column, LogitsReader, SampleTable, align, load_calibrator
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Dataset, Features, Split, load_features

# Pictures and texts of samples, from the dataset the run was made of; loaded in the background.

LONGEST_SIDE = 512
SHORT_TEXT = 220


@dataclass(frozen=True)
class Content:
    """What a sample is: the bytes of an image with their type, or a text, or the reason why neither is there."""

    image: bytes | None = None
    media_type: str = ""
    text: str | None = None
    reason: str = ""


class Pictures:
    """Loads the dataset once, when first asked; a dataset that cannot be loaded is one line, and the rows stay."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        self.layout, self.samples = layout, samples
        self._lock = threading.Lock()
        self._dataset: Dataset | None = None
        self._places: dict[str, list[tuple[Split, Any]]] = {}
        self.reason = "" if layout.data is not None else self._advice("no dataset is named")
        self.loaded = layout.data is None

    def _advice(self, what: str) -> str:
        return f"Pictures are not shown: {what}; open with: confide explore {self.layout.path} --data DATASET"

    def load(self) -> None:
        """Load the dataset; its room takes its time, so this is called from a thread of its own."""
        source = self.layout.data
        with self._lock:
            if self.loaded or source is None:
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
        found = ((part, position if at is None else at[position].as_py()) for part, at in self._parts(split))
        part, place = next(((part, place) for part, place in found if place is not None), (None, None))
        if part is None or place is None:
            return Content(reason="it is not in the dataset")
        try:
            value = part.inputs[int(place)]
        except (InputError, OSError, IndexError, ValueError) as error:
            return Content(reason=str(error))
        if isinstance(value, str):
            return Content(text=value)
        return _encoded(np.asarray(value), longest_side)

    def texts(self, rows: list[int]) -> list[str | None] | None:
        """The beginnings of the texts of some rows; None where the samples are no texts."""
        if not self.loaded or self.kind != "text":
            return None
        found = [self.content(row).text for row in rows]
        return [None if t is None else t[:SHORT_TEXT] for t in found]

    def _parts(self, split: str) -> list[tuple[Split, Any]]:
        """The dataset's splits that hold the samples of a split here, and where: places, or None for the same order."""
        with self._lock:
            if split not in self._places:
                self._places[split] = self._search(split)
            return self._places[split]

    def _search(self, split: str) -> list[tuple[Split, Any]]:
        assert self._dataset is not None
        wanted = self.samples.ids[split]
        # A run sets a part of val apart under a name of its own: any split may hold it, the like-named one first.
        names = sorted(self._dataset.splits, key=lambda name: (name != split, name != "val"))
        holding: list[tuple[Split, Any]] = []
        for name in names:
            part = self._dataset.splits[name]
            known = pa.array(part.ids).cast(pa.string())
            if known.equals(wanted):
                return [(part, None)]
            places = pc.index_in(wanted, value_set=known)
            if places.null_count == 0:
                return [(part, places)]
            if places.null_count < len(places):
                holding.append((part, places))
        return holding


def _encoded(pixels: Any, longest_side: int) -> Content:
    """A uint8 image `c h w` as PNG when small, else JPEG; anything else is no picture."""
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[0] not in (1, 3):
        return Content(reason="it is no picture")
    drawn = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(drawn.size) > longest_side:
        drawn.thumbnail((longest_side, longest_side))
    kind = "png" if max(drawn.size) <= 96 else "jpeg"
    buffer = io.BytesIO()
    drawn.save(buffer, format=kind, **({"compress_level": 1} if kind == "png" else {"quality": 88}))
    return Content(buffer.getvalue(), f"image/{kind}")


# What the drawer shows of one sample beyond its row: neighbours, score parts, history over epochs.

NEIGHBOURS = 6


@dataclass(frozen=True)
class Neighbour:
    """A near sample: its row here (None where it is not shown), id, label and distance."""

    row: int | None
    id: str
    label: int
    distance: float


class FeatureRows:
    """Features by split, read when first asked for."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        self.layout, self.samples = layout, samples
        self._lock = threading.Lock()
        self._read: dict[str, tuple[Features, Any]] = {}
        self._gaussians: Any = None

    def of(self, split: str) -> tuple[Features, Any] | None:
        """The features of a split, and where its samples' rows lie in them (None: in the same order)."""
        path = self.layout.features.get(split)
        if path is None:
            return None
        with self._lock:
            if split not in self._read:
                found = load_features(path)
                ids = pa.array(found.ids).cast(pa.string())
                places = align(self.samples.ids[split], ids) if split in self.samples.ids else None
                self._read[split] = found, places
            return self._read[split]

    def row(self, row: int) -> Any | None:
        """The feature vector of one sample, as double; None without features."""
        split = self.samples.split_of(row)
        found = self.of(split)
        if found is None:
            return None
        features, places = found
        position = row - self.samples.starts[split]
        place = position if places is None else places[position].as_py()
        return None if place is None else np.asarray(features.values[int(place)], dtype=np.float64)

    def reference(self) -> str | None:
        """The split neighbours are looked for in and Gaussians are fitted on: train, else the only one there is."""
        if "train" in self.layout.features:
            return "train"
        return next(iter(self.layout.features), None)

    def nearest(self, row: int) -> list[Neighbour] | Missing:
        """The nearest samples of the training split, by Euclidean distance in feature space."""
        vector, name = self.row(row), self.reference()
        if vector is None or name is None:
            return self._absent("Neighbours")
        found = self.of(name)
        assert found is not None
        features, places = found
        same = name == self.samples.split_of(row)
        distance = _distances(features.values, vector)
        order = np.argsort(distance, kind="stable")[: NEIGHBOURS + int(same)]
        own = self.samples.table.column("id")[row].as_py()
        near = [int(k) for k in order if not (same and str(features.ids[k]) == own)][:NEIGHBOURS]
        rows = self._rows_here(name, places, [str(features.ids[k]) for k in near], near)
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
        import pyarrow.compute as pc

        found = pc.index_in(pa.array(ids), value_set=self.samples.ids[split]).to_pylist()
        return [None if k is None else start + k for k in found]

    def parts(self, row: int) -> dict[str, Any] | Missing:
        """The distances that make up RMD or MD: to the own class, to all data, and the closest class."""
        method, label = self.samples.method, self._label(row)
        if method not in ("rmd", "md") or label is None or label < 0:
            return Missing("Parts", f"Difficulty '{method or 'unknown'}' is not made of distances.", "")
        vector, name = self.row(row), self.reference()
        if vector is None or name is None:
            return self._absent("Score parts")
        fitted = self._fitted(name)
        from confide.numerics.gaussians import class_fit, own_distances

        values = vector[None, :]
        fit = class_fit(fitted, values)
        own = float(own_distances(fitted, values, np.array([label]), relative=False)[0])
        return {
            "own": own,
            "all": float(fit.agnostic[0]),
            "closest": int(fit.nearest[0]),
            "closest_distance": float(fit.nearest_distance[0]),
            "relative": method == "rmd",
        }

    def _fitted(self, name: str) -> Any:
        found = self.of(name)
        assert found is not None
        with self._lock:
            if self._gaussians is None:
                from confide import difficulty

                options = {k: v for k, v in self.samples.options.items() if k == "shrinkage"}
                model: Any = difficulty.fit(self.samples.method, found[0], **options).model
                self._gaussians = model.gaussians
            return self._gaussians

    def _label(self, row: int) -> int | None:
        if "label" not in self.samples.table.column_names:
            return None
        value: int | None = self.samples.table.column("label")[row].as_py()
        return value

    def _absent(self, what: str) -> Missing:
        if self.layout.rerun:
            why = "The run folder holds no features of this sample."
            return Missing(what, why, self.layout.rerun)
        return Missing(
            what, "A file alone has no features.", f"confide explore {self.layout.path} --features features.npz"
        )


def _distances(values: Any, vector: Any) -> Any:
    """Distances of all rows to one vector, in blocks of bounded memory."""
    n = int(values.shape[0])
    found = np.empty(n)
    step = max(1, (1 << 22) // max(int(values.shape[1]), 1))
    for start in range(0, n, step):
        gap = np.asarray(values[start : start + step], dtype=np.float32) - vector.astype(np.float32)
        found[start : start + step] = np.sqrt(np.einsum("nd,nd->n", gap, gap))
    return found


class History:
    """The probability of the label and the prediction after every epoch, where the training recorded them."""

    def __init__(self, layout: Layout, samples: SampleTable) -> None:
        import duckdb

        self.layout, self.samples = layout, samples
        self._connection = duckdb.connect()
        self._splits: dict[str, str] = {}
        self._places: dict[tuple[str, str], Any] = {}

    def of(self, model: str, row: int) -> dict[str, list[Any]] | Missing:
        """Epochs, probability of the label, predicted class."""
        folder = self.layout.history.get(model)
        if folder is None:
            return Missing("History", "The training of this model kept none.", self.layout.rerun or "confide run")
        split = self.samples.split_of(row)
        files = sorted(folder.glob("*.parquet"))
        recorded = self._recorded(folder, files[0])
        if recorded != split:
            why = f"It was kept for the split '{recorded}'; for this one say record: {split} under training."
            return Missing("History", why, self.layout.rerun or "confide run")
        sql = "SELECT probability, prediction FROM read_parquet(?, file_row_number = true) WHERE file_row_number = ?"
        place = self._place(model, split, row)
        cursor = self._connection.cursor()
        rows = [cursor.execute(sql, [str(path), place]).fetchone() for path in files]
        kept = [(int(path.stem.split("-")[-1]), *found) for path, found in zip(files, rows, strict=True) if found]
        return {
            "epoch": [epoch for epoch, _, _ in kept],
            "probability": [float(p) for _, p, _ in kept],
            "prediction": [int(k) for _, _, k in kept],
        }

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
        del self._connection

    def _recorded(self, folder: Path, first: Path) -> str:
        if str(folder) not in self._splits:
            self._splits[str(folder)] = formats.parquet_metadata(first).get("split", "")
        return self._splits[str(folder)]

    def _place(self, model: str, split: str, row: int) -> int:
        """Epochs are kept in the order of the split, which is that of its predictions."""
        if (model, split) not in self._places:
            table, _ = formats.read_arrow(self.layout.predictions[model][split])
            ids = table.column("id").combine_chunks().cast(pa.string())
            self._places[model, split] = align(self.samples.ids[split], ids)
        places = self._places[model, split]
        position = row - self.samples.starts[split]
        return position if places is None else int(places[position].as_py())


# One sample: its row in words, the top classes before and after calibration, and what its scores say.

TOP = 5


def describe_rows(table: SampleDatabase, question: Question, rows: list[int]) -> list[dict[str, Any]]:
    """What a cell of the grid shows, in the order of the rows."""
    if not rows:
        return []
    voice = question.voice
    label = "label" if "label" in question.columns else "NULL"
    hard = "difficulty" if "difficulty" in question.columns else "NULL"
    said = f"{voice.table}.prediction, {voice.table}.confidence, {voice.table}.hit" if voice else "NULL, NULL, NULL"
    source = f"{table.source((voice,))} LEFT JOIN marks USING (row)"
    # The sorted-by value is shown where it is neither difficulty nor confidence.
    shown = question.columns[question.sort].sql if question.sort in question.columns else "NULL"
    places = ", ".join(str(int(row)) for row in rows)
    found = table.fetch(
        f"SELECT row, id, split, {label}, {hard}, {said}, action, {shown} FROM {source} WHERE row IN ({places})"
    )
    by_row = {r[0]: r for r in found}
    from confide.explorer.queries import TAG_KINDS

    name, splits = table.samples.name_of, table.samples.columns["split"].values
    cells = []
    for row in rows:
        _, sample, split, truth, difficulty, prediction, confidence, hit, action, value = by_row[row]
        cells.append(
            {
                "row": row,
                "id": sample,
                "split": splits[split],
                "label": name(truth),
                "difficulty": difficulty,
                "prediction": name(prediction),
                "confidence": confidence,
                "right": hit,
                "tag": None if action is None else TAG_KINDS[action],
                "value": value,
            }
        )
    return cells


def describe(table: SampleDatabase, question: Question, row: int, logits: LogitsReader) -> dict[str, Any]:
    """Everything of one sample that is known at once."""
    cell = describe_rows(table, question, [row])[0]
    tag = table.tags.get(cell["split"], cell["id"])
    new = None if tag is None or tag.new_label is None else table.samples.name_of(tag.new_label)
    values = _values(table, question, row)
    return {
        **cell,
        "top": _top(table, question, row, logits),
        "values": values,
        "suggested": _suggested(table, row),
        "tag": None if tag is None else tag.action,
        "new_label": new,
        "new_value": None if tag is None else tag.new_label,
        "note": "" if tag is None else tag.note,
        "changed": "" if tag is None else tag.changed,
    }


def _values(table: SampleDatabase, question: Question, row: int) -> list[dict[str, Any]]:
    """The value of every column, and the share of samples that have a smaller one where that tells something."""
    columns = [c for c in question.columns.values() if c.key not in ("split", "label", "prediction", "outcome")]
    if not columns:
        return []
    source = table.source((question.voice,))
    found = table.fetch(f"SELECT {', '.join(c.sql for c in columns)} FROM {source} WHERE row = ?", [row])[0]
    return [
        {"key": c.key, "title": c.title, "kind": c.kind, "value": value, "word": _word(table, c, value)}
        | ({"rank": _rank(table, question, c, value)} if c.key == "difficulty" and value is not None else {})
        for c, value in zip(columns, found, strict=True)
    ]


def _word(table: SampleDatabase, column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.kind == "class":
        return table.samples.name_of(int(value))
    return column.values[int(value)] if column.kind == "category" else None


def _rank(table: SampleDatabase, question: Question, column: Column, value: float) -> float:
    """Share of all samples that are at least as hard."""
    source = table.source((question.voice,))
    at_least, all_of_them = table.fetch(
        f"SELECT count(*) FILTER ({column.sql} >= ?), count({column.sql}) FROM {source}", [value]
    )[0]
    return float(at_least) / float(max(all_of_them, 1))


def _suggested(table: SampleDatabase, row: int) -> dict[str, Any] | None:
    names = table.samples.table.column_names
    if "suggested" not in names:
        return None
    value = table.samples.table.column("suggested")[row].as_py()
    return None if value is None else {"label": value, "name": table.samples.name_of(value)}


def _top(table: SampleDatabase, question: Question, row: int, logits: LogitsReader) -> dict[str, Any]:
    """The most probable classes, as trained and calibrated; the label is always among them."""
    voice = question.voice
    spoken = None if voice is None else logits.read(voice.model, row)
    if voice is None or spoken is None:
        why = "There are no predictions here." if voice is None else "All probabilities of this sample are not known."
        return {"missing": Missing("Top classes", why, table.layout.rerun or "confide predict --help").__dict__}
    stage = voice.stage if voice.stage != RAW else table.layout.stages(voice.model)[-1]
    before = spoken.probabilities()[0].double()
    calibrator = load_calibrator(table.layout, voice.model, stage)
    after = before if calibrator is None else _probabilities(calibrator(spoken))
    leading = after if voice.stage != RAW else before
    top = torch.topk(leading, min(TOP, len(leading))).indices.tolist()
    label = int(spoken.labels[0])
    if 0 <= label < len(leading) and label not in top:
        top[-1] = label
    return {
        "stage": None if calibrator is None else stage,
        "classes": [
            {
                "label": k,
                "name": table.samples.name_of(k),
                "own": k == label,
                "before": float(before[k]),
                "after": None if calibrator is None else float(after[k]),
            }
            for k in top
        ],
    }


def _probabilities(predictions: Predictions) -> torch.Tensor:
    return predictions.probabilities()[0].double()
