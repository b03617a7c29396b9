"""The map: every sample as a point of the plane by its features, computed once and kept beside the tags."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.block_sizes import MEMORY, rows_in
from confide.checks import InputError
from confide.explorer.details import SampleFeatures
from confide.explorer.layout import Layout, Missing
from confide.explorer.queries import Query, QueryRunner
from confide.explorer.samples import Column, SampleTable
from confide.files import formats
from confide.files.disk import atomic
from confide.types import Flags, Floats, Indices

FITTED_ROWS = 20_000
"""Samples that the directions of PCA are fitted on."""
UMAP_ROWS = 50_000
"""Samples up to which UMAP is used, where it is installed; of more it would take many minutes."""
COLUMNS, ROWS = 128, 96
"""Cells of the density."""
MAX_POINTS = 2_000
"""Points in sight up to which each is drawn, and can be opened."""
COLOURS = ("gap", "difficulty", "class", "tag")
NAMED_CLASSES = 5
"""Classes with a colour of their own."""

CLUSTERS, CLUSTERED_ROWS = 12, 50_000
"""Clusters of the points that slices are made of, as many as `find_slices` makes; points that they are found among."""

Plane = NDArray[np.float32]


@dataclass(frozen=True)
class MapClusters:
    """Clusters of the points: which each sample is in, -1 without features, and the lasso that holds each."""

    index: Indices
    lassos: tuple[str, ...]


@dataclass(frozen=True)
class Box:
    """A part of the plane."""

    left: float
    right: float
    bottom: float
    top: float


@dataclass(frozen=True)
class MapCells:
    """Cells of the density in sight: place (row times COLUMNS plus column), samples, the mean of what colours it."""

    cell: tuple[int, ...]
    n: tuple[int, ...]
    value: tuple[float | None, ...]


@dataclass(frozen=True)
class MapPoints:
    """Points in sight, where they are few."""

    row: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    value: tuple[float | None, ...]


@dataclass(frozen=True)
class MapView:
    """A part of the map: how it was made, where it ends, what is in sight, and the classes that have colours."""

    method: str
    whole: Box
    """All samples."""
    middle: Box
    """All but the outermost thousandth on each side, which the map opens with: a stray sample would make it tiny."""
    box: Box
    columns: int
    rows: int
    n: int
    cells: MapCells
    points: MapPoints | None
    low: float | None
    high: float | None
    classes: tuple[tuple[int, str | None], ...]


class FeatureMap:
    """Two numbers a sample; NaN for samples without features."""

    def __init__(self, layout: Layout, samples: SampleTable, features: SampleFeatures) -> None:
        self.layout, self.samples, self.features = layout, samples, features
        self._lock = threading.Lock()
        self._plane: Plane | None = None
        self._method = ""
        self._working = False
        self._failed = ""
        self._ends: tuple[Box, Box] | None = None
        self._clusters: MapClusters | None = None

    @property
    def splits(self) -> list[str]:
        """Splits that have features and samples here."""
        return [split for split in self.layout.features if split in self.samples.ids]

    def start(self) -> Missing | None:
        """Compute it in the background, once; what is missing for it where it cannot be."""
        if not self.splits:
            why = "A map needs the features of the samples, and they are not here."
            command = self.layout.rerun or f"confide explore {self.layout.path} --features features.npz"
            return Missing("Map", why, command)
        if self._failed:
            return Missing("Map", f"It could not be computed: {self._failed}.", "")
        if self._plane is None and not self._working:
            self._working = True
            threading.Thread(target=self._work, daemon=True).start()
        return None

    def _work(self) -> None:
        try:
            self.plane()
        except Exception as error:  # of a thread nobody hears: pages would wait for ever
            self._failed = str(error) or type(error).__name__

    @property
    def ready(self) -> bool:
        return self._plane is not None

    def plane(self) -> tuple[Plane, str]:
        """The points and how they were made: read from their file, or computed and kept there."""
        with self._lock:
            if self._plane is None:
                key = self._key()
                saved = _read_plane(self.layout.map, key, self.samples.table.num_rows)
                method = _method(sum(len(self.samples.ids[split]) for split in self.splits))
                self._plane = self._compute(method) if saved is None else saved
                self._method = method
                if saved is None:
                    _keep_plane(self.layout.map, key, self._plane)
            return self._plane, self._method

    def ends(self) -> tuple[Box, Box]:
        """The part of the plane that holds all points, and the one that holds all but the outermost thousandth."""
        if self._ends is None:
            plane, _ = self.plane()
            self._ends = _ends(plane, 0.0), _ends(plane, 0.001)
        return self._ends

    def clusters(self) -> MapClusters:
        """Clusters of the points by k-means; of each the part of the plane nearest to its centre is a filter."""
        from confide.difficulty.from_features import kmeans

        if self._clusters is None:
            plane, _ = self.plane()
            known = plane[np.isfinite(plane[:, 0])].astype(np.float64)
            few = known[:: max(1, len(known) // CLUSTERED_ROWS)]
            centres = np.unique(kmeans(few, k=min(CLUSTERS, len(few))).centres, axis=0)
            index, corners = np.full(len(plane), -1), _nearest_parts(centres, self.ends()[0])
            for k, line in enumerate(corners):
                index[self.inside(tuple(line.ravel().tolist()))] = k
            lassos = (";".join(f"{x!r},{y!r}" for x, y in line.tolist()) for line in corners)
            self._clusters = MapClusters(index, tuple(lassos))
        return self._clusters

    def _key(self) -> str:
        """Changes with the files of features, and with how the map is made."""
        words = [_method(sum(len(self.samples.ids[split]) for split in self.splits)), str(self.samples.table.num_rows)]
        for split in self.splits:
            about = self.layout.features[split].stat()
            words += [split, str(about.st_size), str(about.st_mtime_ns)]
        return " ".join(words)

    def _compute(self, method: str) -> Plane:
        plane = np.full((self.samples.table.num_rows, 2), np.nan, dtype=np.float32)
        sources = [(split, source) for split in self.splits if (source := self.features.read(split)) is not None]
        total = sum(source.features.values.shape[0] for _, source in sources)
        step = max(1, total // FITTED_ROWS)
        fitted = np.concatenate([np.asarray(s.features.values[::step], dtype=np.float64) for _, s in sources])
        centre = fitted.mean(axis=0)
        _, directions = np.linalg.eigh(np.cov(fitted - centre, rowvar=False).reshape(len(centre), len(centre)))
        axes = directions[:, ::-1][:, :2]
        # A direction may point either way: its largest part is positive.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        values = [source.features.values for _, source in sources]
        projected = _umap(values) if method == "UMAP" else [_projected(part, centre, axes) for part in values]
        for (split, source), points in zip(sources, projected, strict=True):
            start = self.samples.starts[split]
            rows = np.arange(len(self.samples.ids[split]))
            places = rows if source.places is None else source.places.to_numpy(zero_copy_only=False)
            known = np.isfinite(places.astype(np.float64))
            plane[start + rows[known]] = points[places[known].astype(np.intp)]
        return plane

    def inside(self, corners: tuple[float, ...]) -> Flags:
        """Which samples lie within a closed line through these corners (x, y, x, y, ...)."""
        if not self.splits:
            raise InputError("a lasso needs the features of the samples, but they are not here; open with --features")
        plane, _ = self.plane()
        x, y = np.array(corners[::2]), np.array(corners[1::2])
        near = (plane[:, 0] >= x.min()) & (plane[:, 0] <= x.max()) & (plane[:, 1] >= y.min()) & (plane[:, 1] <= y.max())
        rows = np.flatnonzero(near)
        points = plane[rows].astype(np.float64)
        odd = np.zeros(len(rows), dtype=bool)
        for k in range(len(x)):
            (x0, y0), (x1, y1) = (x[k - 1], y[k - 1]), (x[k], y[k])
            if y0 != y1:
                crosses = (points[:, 1] < y0) != (points[:, 1] < y1)
                odd ^= crosses & (points[:, 0] < x0 + (points[:, 1] - y0) * (x1 - x0) / (y1 - y0))
        near[rows] = odd
        return np.asarray(near)


def _nearest_parts(centres: Floats, box: Box) -> list[Floats]:
    """The corners of the part of a box that is nearer to each centre than to any other."""
    parts = []
    for k, centre in enumerate(centres):
        line = [(box.left, box.bottom), (box.right, box.bottom), (box.right, box.top), (box.left, box.top)]
        for other in np.delete(centres, k, axis=0):
            # Nearer to the centre: x . (other - centre) <= (|other|^2 - |centre|^2) / 2. Corners beyond are cut off.
            across = other - centre
            beyond = [float(np.dot(corner, across) - (other @ other - centre @ centre) / 2) for corner in line]
            cut = []
            for (a, b), (x, y) in zip(pairwise([beyond[-1], *beyond]), pairwise([line[-1], *line]), strict=True):
                if (a > 0) != (b > 0):
                    share = a / (a - b)
                    cut.append((x[0] + share * (y[0] - x[0]), x[1] + share * (y[1] - x[1])))
                if b <= 0:
                    cut.append(y)
            line = cut
        parts.append(np.array(line))
    return parts


def _method(n: int) -> str:
    return "UMAP" if n <= UMAP_ROWS and find_spec("umap") is not None else "PCA"


def _umap(parts: list[Any]) -> list[Plane]:
    """All splits on one map."""
    import umap

    values = [np.asarray(part) for part in parts]
    plane = umap.UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(np.concatenate(values))
    return np.split(np.asarray(plane, dtype=np.float32), np.cumsum([len(part) for part in values])[:-1])


def _projected(values: Any, centre: Floats, axes: Floats) -> Plane:
    """Rows on the two directions, in blocks of bounded memory."""
    n, step = int(values.shape[0]), rows_in(MEMORY, int(values.shape[1]))
    points = np.zeros((n, 2), dtype=np.float32)
    for start in range(0, n, step):
        block = np.asarray(values[start : start + step], dtype=np.float64) - centre
        points[start : start + step, : axes.shape[1]] = block @ axes
    return points


def _read_plane(path: Path, key: str, n: int) -> Plane | None:
    """The points in a file, where they are of these features; the folder may be someone else's, and hold anything."""
    try:
        saved, _ = formats.read_table(path)
    except InputError:
        return None
    plane = saved.get("plane", np.zeros(0))
    whole = plane.shape == (n, 2) and plane.dtype == np.float32 and not np.isinf(plane).any()
    return plane if str(saved.get("key")) == key and whole else None


def _keep_plane(path: Path, key: str, plane: Plane) -> None:
    """Write the points; a folder that cannot be written means that they are computed again next time."""
    try:
        with atomic(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, plane=plane, key=np.array(key))
    except OSError:
        pass


# What is in sight.


def map_view(runner: QueryRunner, query: Query, feature_map: FeatureMap, box: Box | None, colour: str) -> MapView:
    """The samples that fit all filters but the lasso, in a part of the map, as a density or as points."""
    if colour not in COLOURS:
        raise InputError(f"colour must be one of {', '.join(COLOURS)}, got '{colour}'")
    plane, method = feature_map.plane()
    whole, middle = feature_map.ends()
    seen = box or middle
    if not (seen.left < seen.right and seen.bottom < seen.top):
        raise InputError("box must have left below right and bottom below top")
    x, y = plane[:, 0], plane[:, 1]
    fits = runner.fits(query, ("lasso",))
    rows = np.flatnonzero(fits & (x >= seen.left) & (x <= seen.right) & (y >= seen.bottom) & (y <= seen.top))
    across = ((x[rows] - seen.left) * (COLUMNS / (seen.right - seen.left))).astype(np.intp).clip(0, COLUMNS - 1)
    up = ((y[rows] - seen.bottom) * (ROWS / (seen.top - seen.bottom))).astype(np.intp).clip(0, ROWS - 1)
    cell = up * COLUMNS + across
    values, classes = _values(runner, query, rows, colour)
    count = np.bincount(cell, minlength=COLUMNS * ROWS)
    full = np.flatnonzero(count)
    means = _means(cell, values, colour)[full]
    known = means[np.isfinite(means)]
    few = len(rows) <= MAX_POINTS
    return MapView(
        method,
        whole,
        middle,
        seen,
        COLUMNS,
        ROWS,
        len(rows),
        MapCells(tuple(full.tolist()), tuple(count[full].tolist()), _plain(means)),
        MapPoints(tuple(rows.tolist()), _plain(x[rows], 5), _plain(y[rows], 5), _plain(values)) if few else None,
        float(known.min()) if len(known) else None,
        float(known.max()) if len(known) else None,
        classes,
    )


def _ends(plane: Plane, share: float) -> Box:
    """The ends of all but this share of the points on each side, and a margin."""
    known = plane[np.isfinite(plane[:, 0])]
    if not len(known):
        return Box(0.0, 1.0, 0.0, 1.0)
    if share:
        ends = np.quantile(known[:: max(1, len(known) // 100_000)], (share, 1 - share), axis=0)
    else:
        ends = np.stack([known.min(axis=0), known.max(axis=0)]).astype(np.float64)
    margin = np.maximum(0.04 * (ends[1] - ends[0]), 1e-6)
    (left, bottom), (right, top) = ends[0] - margin, ends[1] + margin
    return Box(float(left), float(right), float(bottom), float(top))


def _plain(values: Any, digits: int = 4) -> tuple[Any, ...]:
    return tuple(float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist())


def _values(
    runner: QueryRunner, query: Query, rows: Indices, colour: str
) -> tuple[Floats, tuple[tuple[int, str | None], ...]]:
    """What colours each row: confidence minus correctness, difficulty, place of its class, or whether it is tagged."""
    database, nothing = runner.database, np.full(len(rows), np.nan)
    columns: dict[str, Column] = dict(query.columns)
    if colour == "gap":
        if not {"confidence", "outcome"} <= set(columns):
            return nothing, ()
        hits = database.codes(columns["outcome"])[rows]
        return np.where(hits > 0, database.values(columns["confidence"])[rows] - (hits == 2), np.nan), ()
    if colour == "difficulty":
        return (database.values(columns["difficulty"])[rows], ()) if "difficulty" in columns else (nothing, ())
    if colour == "tag":
        return (database.marks.kinds[rows] >= 0).astype(np.float64), ()
    key = "label" if "label" in columns else "prediction"
    if key not in columns:
        return nothing, ()
    codes = database.codes(columns[key])[rows]
    frequent = np.argsort(-np.bincount(codes, minlength=2)[1:], kind="stable")[:NAMED_CLASSES]
    place = np.full(int(codes.max(initial=0)) + 2, NAMED_CLASSES, dtype=np.float64)
    for k, label in enumerate(frequent.tolist()):
        if label + 1 < len(place):
            place[label + 1] = k
    return place[codes], tuple((label, database.samples.name_of(label)) for label in frequent.tolist())


def _means(cell: Indices, values: Floats, colour: str) -> Floats:
    """Mean of the known values in each cell; of classes the most frequent."""
    size = COLUMNS * ROWS
    if colour == "class":
        kinds = NAMED_CLASSES + 1
        known = np.isfinite(values)
        counts = np.bincount(cell[known] * kinds + values[known].astype(np.intp), minlength=size * kinds)
        return np.asarray(counts.reshape(size, kinds).argmax(axis=1), dtype=np.float64)
    known = np.isfinite(values)
    if not known.all():
        cell, values = cell[known], values[known]
    sums, counts = np.bincount(cell, values, minlength=size), np.bincount(cell, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts)
