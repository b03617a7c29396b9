"""Predictions in more shards than one machine reads: sketch, sample and calibrate a folder of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from confide import evaluation, scale
from confide.block_sizes import SHARD_ROWS
from confide.checks import InputError
from confide.evaluation.streaming import shard_paths
from confide.files import formats
from confide.files.columns import ID_COLUMNS
from confide.predictions import Predictions, predictions_from_columns
from confide.random import generator


@dataclass(frozen=True)
class SketchJob:
    """Shards that one job counts, and the file it writes."""

    paths: tuple[str, ...]
    target: str
    split: str | None = None


def sketch_files(job: SketchJob) -> str:
    """The sketch of some files, written to its target; one that is there is not made again.

    Args:
        job: which files, and where to.

    Returns:
        The path of the sketch.

    Example:
        >>> confide.Predictions([[2.0, 0.0]], [0]).save("a.parquet")
        >>> confide.pipeline.sketch_files(confide.pipeline.SketchJob(("a.parquet",), "a.npz"))
        'a.npz'
    """
    if not Path(job.target).exists():
        sketch = evaluation.Sketch()
        for path in job.paths:
            for columns, metadata in formats.table_batches(path, SHARD_ROWS):
                sketch.add(predictions_from_columns(columns, metadata, job.split, path))
        sketch.save(job.target)
    return job.target


def sketch_folder(
    folder: str | Path, out: str | Path, *, engine: str = "local", workers: int = 2, split: str | None = None
) -> evaluation.Sketch:
    """The sketch of a folder of shards, counted by several workers; memory does not grow with the rows.

    Every worker writes what it counted under a name that its files determine: after a crash the same call goes on with
    what is missing, and a worker that dies is started again. The numbers do not depend on the workers.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        out: a folder for the parts, which all workers see.
        engine: `local` processes, or `ray`.
        workers: at a time.
        split: overrides the split that files name.

    Returns:
        A `Sketch` for `evaluation.evaluate_sketch`.

    Raises:
        InputError: there are no shards, or one cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0]], [0]).save("shards/0.parquet")
        >>> confide.pipeline.sketch_folder("shards", "parts", workers=1).rows  # doctest: +SKIP
        1
    """
    paths = [str(path) for path in shard_paths(Path(folder))]
    each = max(1, math.ceil(len(paths) / (4 * workers)))
    jobs = []
    for first in range(0, len(paths), each):
        part = tuple(paths[first : first + each])
        facts = [(path, Path(path).stat()) for path in part]
        stamps = [f"{path} {known.st_size} {known.st_mtime_ns}" for path, known in facts]
        key = hashlib.sha256("\n".join([str(split), *stamps]).encode()).hexdigest()[:16]
        payload = SketchJob(part, str(Path(out).resolve() / f"{key}.npz"), split)
        jobs.append(scale.Job(f"shards {first} to {first + len(part) - 1}", sketch_files, payload, gpu=0.0))
    sketch = evaluation.Sketch()
    for target in scale.run_jobs(jobs, engine=engine, workers=workers):
        sketch.merge(evaluation.Sketch.load(target))
    return sketch


FIT_ROWS = 200_000
"""Rows of a folder that a fit looks at: its parameters are then known far better than shards differ."""


def sample_folder(
    folder: str | Path, *, rows: int = FIT_ROWS, seed: int = 0, split: str | None = None
) -> tuple[Predictions, int]:
    """About so many rows of a folder of shards, drawn at random by seed and place, all of them where there are fewer.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        rows: how many to draw, about.
        seed: of the draw.
        split: overrides the split that files name.

    Returns:
        The drawn predictions, for a fit; and how many rows the folder has.

    Raises:
        InputError: there are no shards, or one cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1]).save("shards/0.parquet")
        >>> drawn, total = confide.pipeline.sample_folder("shards")
        >>> len(drawn), total
        (2, 2)
    """
    paths = shard_paths(Path(folder))
    total = sum(formats.row_count(path) for path in paths)
    share, parts, about = rows / max(total, 1), [], dict[str, str]()
    for number, path in enumerate(paths):
        for batch, (columns, metadata) in enumerate(formats.table_batches(path, SHARD_ROWS)):
            about = about or metadata
            n = max(len(values) for values in columns.values())
            drawn = generator(seed, "folder sample", number, batch).random(n) < share
            parts.append({name: own[drawn] if len(own) == n else own for name, own in columns.items()})
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = [name for name in ID_COLUMNS if name in table]
    if names and len(np.unique(table[names[0]])) < len(table[names[0]]):
        del table[names[0]]  # numbers that count the rows of each shard name no sample
    return predictions_from_columns(table, about, split, str(folder)), total


def apply_to_folder(
    fitted: Callable[[Predictions], Predictions], folder: str | Path, out: str | Path, split: str | None = None
) -> list[Path]:
    """What a fitted calibrator makes of every shard, written under the same names; one shard at a time.

    Args:
        fitted: a calibrator.
        folder: of the shards.
        out: another folder.
        split: overrides the split that files name.

    Returns:
        The files, as .parquet.

    Raises:
        InputError: both folders are one.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], split="val")
        >>> p.save("shards/0.parquet")
        >>> confide.pipeline.apply_to_folder(confide.calibrators.fit("temperature", p), "shards", "calibrated")
        [PosixPath('calibrated/0.parquet')]
    """
    if Path(folder).resolve() == Path(out).resolve():
        raise InputError(f"calibrated shards must go to another folder than {folder}; give one")
    written = []
    for path in shard_paths(Path(folder)):
        target = Path(out) / f"{path.name.split('.')[0]}.parquet"
        fitted(Predictions.load(path, split)).save(target)
        written.append(target)
    return written
