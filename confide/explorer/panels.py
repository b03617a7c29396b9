"""What the drawer shows of one sample beyond its row: neighbours, score parts, history over epochs."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from confide.core import arrow_files
from confide.core.feature_files import load_features
from confide.core.records import Features
from confide.explorer.layout import Layout, Missing
from confide.explorer.samples import Samples, align

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

    def __init__(self, layout: Layout, samples: Samples) -> None:
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
        from confide.core.distances import class_fit, own_distances

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

    def __init__(self, layout: Layout, samples: Samples) -> None:
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
            self._splits[str(folder)] = arrow_files.metadata_of(first).get("split", "")
        return self._splits[str(folder)]

    def _place(self, model: str, split: str, row: int) -> int:
        """Epochs are kept in the order of the split, which is that of its predictions."""
        if (model, split) not in self._places:
            table, _ = arrow_files.read_arrow(self.layout.predictions[model][split])
            ids = table.column("id").combine_chunks().cast(pa.string())
            self._places[model, split] = align(self.samples.ids[split], ids)
        places = self._places[model, split]
        position = row - self.samples.starts[split]
        return position if places is None else int(places[position].as_py())
