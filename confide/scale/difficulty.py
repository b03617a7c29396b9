"""Difficulty of a folder of parquet files: features, moments and scores as three maps with a merge between them.

Every part is written by the task that made it, atomically, under a name that its inputs determine: running the same
job again does only what is missing. Nothing the driver holds grows with the number of samples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from confide import difficulty, features
from confide.core import files
from confide.core.door import InputError, check_choice
from confide.core.gaussians import gaussians_from
from confide.core.moments import Moments, fourth_moment, moments_of
from confide.core.records import Split, default_ids
from confide.difficulty.gaussian import GaussianDifficulty
from confide.scale.engine import run_all

METHODS = ("rmd", "md")
GROUP_FILES = 16
"""Files whose moments one task adds up: the driver then merges few, small results."""


@dataclass(frozen=True)
class Scoring:
    """What to score, how and where. `source` holds parquet files with `label` and `features`, `image` or `text`."""

    source: Path
    out: Path
    method: str = "rmd"
    options: Mapping[str, Any] = field(default_factory=dict)
    features: str | None = None
    feature_options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    workers: int = 2
    engine: str = "ray"
    labels: str = "given"  # or "predicted", "min": the class that distances are measured to

    def key(self, name: str) -> str:
        """A short name for what these options make."""
        facts: list[Any] = [str(self.source.resolve()), self.features, sorted(self.feature_options.items())]
        if name == "scores":
            facts += [self.method, sorted(self.options.items())]
            facts += [] if self.labels == "given" else [self.labels]
        return hashlib.sha256(json.dumps([name, facts], default=str).encode()).hexdigest()[:12]


def score_folder(job: Scoring) -> dict[str, Any]:
    """Score every sample of a folder of parquet files; parts of the result are parquet files of the same names."""
    if job.method not in METHODS:
        raise InputError(f"at this scale the methods are {' and '.join(METHODS)}, got '{job.method}'")
    difficulty.DIFFICULTY.get(job.method).check_options(job.options)
    check_choice(job.labels, ("given", "predicted", "min"), "labels")
    if not job.source.is_dir():
        raise InputError(f"{job.source} must be a folder of parquet files, but it is none")
    sources = sorted(job.source.glob("*.parquet"))
    if not sources:
        raise InputError(f"{job.source} must hold .parquet files, got none")
    rows = _features(job, sources)
    num_classes = 1 + max(_largest_label(path) for path in rows)
    model = _fit(job, rows, num_classes)
    parts = job.out / f"scores-{job.key('scores')}-{_names_key(rows)}"
    todo = [path for path in rows if not (parts / path.name).exists()]
    run_all(
        lambda path: _score_file(path, parts / path.name, model, job),
        todo,
        engine=job.engine,
        workers=job.workers,
        what="scores",
    )
    n = sum(pq.read_metadata(parts / path.name).num_rows for path in rows)
    return {"scores": str(parts), "n": n, "files": len(rows), "made": len(todo), "notes": list(model.notes)}


def _features(job: Scoring, sources: list[Path]) -> list[Path]:
    if job.features is None:
        return sources
    folder = job.out / f"features-{job.key('features')}"
    todo = [path for path in sources if not _is_newer(folder / path.name, path)]
    run_all(
        lambda path: _extract_file(path, folder / path.name, job),
        todo,
        engine=job.engine,
        workers=job.workers,
        what="features",
        gpu=True,
    )
    return [folder / path.name for path in sources]


def _extract_file(path: Path, target: Path, job: Scoring) -> None:
    columns, _ = files.read_table(path)
    name = next((c for c in ("image", "text", "row") if c in columns), None)
    if name is None or "label" not in columns:
        raise InputError(f"{path} must have columns label and image, text or row, got {', '.join(columns)}")
    inputs = columns[name]
    labels = columns["label"].astype(np.int64)
    split = Split(inputs if inputs.ndim > 1 else list(inputs), labels, _ids(columns, path))
    found = features.extract(str(job.features), split, batch_size=job.batch_size, **job.feature_options)
    files.write_table(target, {"id": found.ids, "label": found.labels, "features": found.values.astype(np.float32)})


def _ids(columns: Mapping[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    if "id" in columns:
        return columns["id"].astype(np.str_) if columns["id"].dtype == object else columns["id"]
    return default_ids(len(columns["label"]), f"{path.stem}-")


def _read_rows(path: Path) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    columns, _ = files.read_table(path)
    if "features" not in columns or "label" not in columns or columns["features"].ndim != 2:
        raise InputError(f"{path} must have columns features (a list of numbers) and label; name --features to extract")
    return columns["features"], columns["label"].astype(np.int64), _ids(columns, path)


def _largest_label(path: Path) -> int:
    try:
        table = pq.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be a readable parquet file, but: {error}; write it again") from None
    if "label" not in table.schema_arrow.names:
        raise InputError(f"{path} must have a column 'label'")
    place = table.schema_arrow.names.index("label")
    groups = [table.metadata.row_group(k).column(place) for k in range(table.metadata.num_row_groups)]
    if all(g.path_in_schema == "label" and g.statistics is not None and g.statistics.has_min_max for g in groups):
        return max((int(g.statistics.max) for g in groups), default=0)
    return int(files.read_table(path)[0]["label"].max())


def _fit(job: Scoring, rows: list[Path], num_classes: int) -> GaussianDifficulty:
    """Moments of groups of files, merged here, and the Gaussians they give."""
    groups = [rows[k : k + GROUP_FILES] for k in range(0, len(rows), GROUP_FILES)]
    moments: Moments | None = None
    for part in _moments_of_groups(job, groups, num_classes):
        moments = part if moments is None else moments.merge(part)
    assert moments is not None

    def fourth(centres: NDArray[np.float64], by_class: bool) -> float:
        return _fourth_moment(job, groups, centres, by_class)

    shrinkage = job.options.get("shrinkage", "auto")
    return GaussianDifficulty(gaussians_from(moments, fourth, shrinkage=shrinkage), job.method == "rmd")


def _moments_of_groups(job: Scoring, groups: list[list[Path]], num_classes: int) -> list[Moments]:
    folder = job.out / f"moments-{job.key('features')}"
    targets = [folder / f"{_names_key(group)}.npz" for group in groups]
    todo = [i for i, target in enumerate(targets) if not target.exists()]

    def make(i: int) -> None:
        total: Moments | None = None
        for path in groups[i]:
            values, labels, _ = _read_rows(path)
            # Every file has its own pilots: files sorted by class would leave shared ones far from most classes.
            part = moments_of(values, labels, num_classes)
            total = part if total is None else total.merge(part)
        assert total is not None
        names = ("pilots", "counts", "sums", "scatter")
        files.write_table(targets[i], {**{k: getattr(total, k) for k in names}, "precision": np.array(total.precision)})

    run_all(make, todo, engine=job.engine, workers=job.workers, what="moments")
    return [_read_moments(target) for target in targets]


def _read_moments(path: Path) -> Moments:
    columns, _ = files.read_table(path)
    return Moments(
        columns["pilots"], columns["counts"], columns["sums"], columns["scatter"], float(columns["precision"])
    )


def _names_key(group: list[Path]) -> str:
    """A short name for these files as they are now: a changed file makes other moments and other scores."""
    facts = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in group]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _is_newer(target: Path, source: Path) -> bool:
    return target.exists() and target.stat().st_mtime_ns >= source.stat().st_mtime_ns


def _fourth_moment(job: Scoring, groups: list[list[Path]], centres: NDArray[np.float64], by_class: bool) -> float:
    """Mean ||x - centre||^4 over all files, for Ledoit-Wolf; asked for only where the covariance lacks rank."""
    every = _names_key([path for group in groups for path in group])
    folder = job.out / f"fourth-{job.key('features')}-{every}-{'class' if by_class else 'all'}"
    targets = [folder / f"{_names_key(group)}.json" for group in groups]

    def make(i: int) -> None:
        total, n = 0.0, 0
        for path in groups[i]:
            values, labels, _ = _read_rows(path)
            total += fourth_moment(values, labels if by_class else None, centres) * len(labels)
            n += len(labels)
        files.write_json(targets[i], {"total": total, "n": n})

    todo = [i for i, target in enumerate(targets) if not target.exists()]
    run_all(make, todo, engine=job.engine, workers=job.workers, what="fourth moments")
    found = [files.read_json(target) for target in targets]
    return float(sum(f["total"] for f in found) / sum(f["n"] for f in found))


def _score_file(path: Path, target: Path, model: GaussianDifficulty, job: Scoring) -> None:
    values, labels, ids = _read_rows(path)
    scored = model.values_of(values, labels if job.labels == "given" else job.labels)
    about = {"confide": "scores/1", "method": job.method, "options": json.dumps(files.plain(dict(job.options)))}
    files.write_table(
        target, {"id": ids, "label": labels, "score": scored}, {**about, "notes": json.dumps(model.notes)}
    )
