"""Predictions in more shards than one machine reads: evaluate, draw from, calibrate and make sets for a folder of them.

Every step is a map over the shards whose calls write their own results, and a merge of these in the order of the
shards. Calls run in this process, in several, or on a Ray cluster; the numbers are the same to the last digit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from confide import evaluation, scale, sets
from confide.block_sizes import RANGE_ROWS, RUN_ROWS, SHARD_ROWS
from confide.calibrators import Calibrator
from confide.calibrators.streams import SAMPLE_ROWS as FIT_ROWS, mean_moments, shard_moments, with_all_rows
from confide.checks import InputError, check_range
from confide.evaluation.evaluate import metric_words
from confide.evaluation.external_sort import (
    ScoreRange,
    merged_run,
    range_values,
    rankings_of,
    score_ranges,
    sortable_words,
    sorted_run,
)
from confide.evaluation.streaming import shard_paths
from confide.files import disk, formats
from confide.files.columns import ID_COLUMNS
from confide.predictions import Predictions, predictions_from_columns
from confide.progress import Progress
from confide.random import generator
from confide.results import About, Evaluation, SetResult
from confide.types import Columns, Options

MOST_PARTS = 64
"""Parts that a folder is counted in, whoever counts: what is added up first does not depend on the workers."""


@dataclass(frozen=True)
class Workers:
    """Who does the work on the shards of a folder, and where the parts of the result lie.

    Args:
        parts: a folder that all workers see; the same work goes on there where it was.
        engine: None for this process, `local` for several of this machine, `ray` for a cluster.
        workers: at a time.
    """

    parts: Path
    engine: str | None = None
    workers: int = 2

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], what: str) -> None:
        """Call a function on every item."""
        if self.engine is not None:
            scale.map_items(function, items, engine=self.engine, workers=self.workers, what=what)
            return
        with Progress(what, len(items)) as progress:
            for item in items:
                function(item)
                progress.step()

    def target(self, name: str, paths: Sequence[str], *facts: Any, ending: str = ".json") -> str:
        """The file of a result: a name that the shards, as they are now, and these facts determine."""
        known = [(path, Path(path).stat()) for path in paths]
        stamps = [f"{path} {own.st_size} {own.st_mtime_ns}" for path, own in known]
        key = hashlib.sha256("\n".join([*map(str, facts), *stamps]).encode()).hexdigest()[:16]
        return str(self.parts.resolve() / f"{name}-{key}{ending}")


def paths_of(folder: str | Path) -> list[str]:
    """The shards of a folder, in order."""
    return [str(path.resolve()) for path in shard_paths(Path(folder))]


def shards_of(paths: Sequence[str], split: str | None) -> Iterator[Predictions]:
    """Records of some files, large ones in parts."""
    for path in paths:
        for columns, metadata in formats.table_batches(path, SHARD_ROWS):
            yield predictions_from_columns(columns, metadata, split, path)


# Counting: sketches of parts, merged in the order of the shards.


@dataclass(frozen=True)
class SketchJob:
    """Shards that one call counts, and the file it writes."""

    paths: tuple[str, ...]
    target: str
    split: str | None = None
    by: tuple[str, ...] = ()


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
        sketch = evaluation.Sketch(by=job.by)
        for shard in shards_of(job.paths, job.split):
            sketch.add(shard)
        sketch.save(job.target)
    return job.target


def sketch_folder(
    folder: str | Path,
    out: str | Path,
    *,
    engine: str | None = "local",
    workers: int = 2,
    split: str | None = None,
    by: Sequence[str] = (),
) -> evaluation.Sketch:
    """The sketch of a folder of shards, counted by several workers; memory does not grow with the rows.

    Every worker writes what it counted under a name that its files determine: after a crash the same call goes on with
    what is missing, and a worker that dies is started again. The numbers do not depend on the workers.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        out: a folder for the parts, which all workers see.
        engine: `local` processes, `ray`, or None for this process.
        workers: at a time.
        split: overrides the split that files name.
        by: columns, "class" or "predicted", whose every value is counted apart too.

    Returns:
        A `Sketch` for `evaluation.evaluate_sketch`.

    Raises:
        InputError: there are no shards, or one cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0]], [0]).save("shards/0.parquet")
        >>> confide.pipeline.sketch_folder("shards", "parts", engine=None).rows
        1
    """
    return _sketch(paths_of(folder), Workers(Path(out), engine, workers), split, tuple(by))


def _sketch(paths: list[str], work: Workers, split: str | None, by: tuple[str, ...]) -> evaluation.Sketch:
    each = math.ceil(len(paths) / MOST_PARTS)
    parts = [tuple(paths[first : first + each]) for first in range(0, len(paths), each)]
    jobs = [SketchJob(own, work.target("sketch", own, split, by, ending=".npz"), split, by) for own in parts]
    work.map(sketch_files, jobs, "count shards")
    sketch = evaluation.Sketch(by=by)
    for job in jobs:
        sketch.merge(evaluation.Sketch.load(job.target))
    if not sketch.rows:
        raise InputError(f"{Path(paths[0]).parent} must hold at least one row, got none; check the shards")
    return sketch


# Sorting: runs that fit into memory, and ranges of confidence that are merged from all of them.


@dataclass(frozen=True)
class SortJob:
    """Shards that one call sorts, and the run it writes."""

    paths: tuple[str, ...]
    target: str
    split: str | None = None


def sort_files(job: SortJob) -> None:
    """A sorted run of some files."""
    if not Path(job.target).exists():
        run = sorted_run(shards_of(job.paths, job.split))
        formats.write_table(job.target, run, group_rows=RUN_ROWS)


@dataclass(frozen=True)
class RangeJob:
    """A range of confidences, the runs it is merged from, and where its part of the metrics is written."""

    runs: tuple[str, ...]
    own: ScoreRange
    words: tuple[str, ...]
    target: str


def rank_range(job: RangeJob) -> None:
    """What a range adds to ranking metrics."""
    if not Path(job.target).exists():
        parts = [formats.read_between(run, "cell", job.own.first, job.own.last) for run in job.runs]
        formats.write_json(job.target, range_values(job.words, merged_run(parts), job.own))


def _rankings(
    paths: list[str], sketch: evaluation.Sketch, words: Sequence[str], work: Workers, split: str | None, rows: int
) -> dict[str, float]:
    """Ranking metrics of all rows by an external sort; runs are removed in the end."""
    before = np.cumsum([0, *map(formats.row_count, paths)])
    number = np.maximum(before[1:] - 1, 0) // rows
    cuts = [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), len(paths)]
    runs = [
        SortJob(own, work.target("run", own, split, ending=".parquet"), split)
        for own in (tuple(paths[first:last]) for first, last in pairwise(cuts))
    ]
    ranges = score_ranges(sketch, rows)
    names = tuple(run.target for run in runs)
    jobs = [RangeJob(names, own, tuple(words), work.target("range", paths, split, words, own)) for own in ranges]
    if not all(Path(job.target).exists() for job in jobs):
        work.map(sort_files, runs, "sort shards")
        work.map(rank_range, jobs, "merge ranges")
    for name in names:
        disk.remove(Path(name))
    return rankings_of(words, ranges, [formats.read_json(job.target) for job in jobs])


def evaluate_folder(
    folder: str | Path,
    out: str | Path,
    metrics: str | Sequence[str] = "core",
    intervals: bool = True,
    by: str | Sequence[str] = (),
    *,
    exact: bool = False,
    engine: str | None = None,
    workers: int = 2,
    split: str | None = None,
    rows: int = RANGE_ROWS,
    model: str = "model",
    seed: int = 0,
    title: str | None = None,
    about: About | None = None,
) -> Evaluation:
    """The evaluation of a folder of shards in memory that does not grow with their number.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        out: a folder for the parts of the work, which all workers see; the same call goes on there where it was.
        metrics: "core", "all", or a list of words; those that need all rows at once are named as missing.
        intervals: with 95 % intervals and the calibration test.
        by: columns, "class" or "predicted", whose every value is a group.
        exact: sort all rows on disk, so that ranking metrics are those of an evaluation in memory; otherwise rows of
            one cell count as tied, and a note says how far off that can be. Groups stay as they are.
        engine: None for this process, `local` for several, `ray` for a cluster.
        workers: at a time.
        split: overrides the split that files name.
        rows: of a sorted run: what a worker has in memory.
        model: the model's name in every row.
        seed: of what is drawn.
        title: of the report.
        about: what else the report says of it.

    Returns:
        An `Evaluation`.

    Raises:
        InputError: there are no shards, one cannot be read, or they have weights.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1]).save("shards/0.parquet")
        >>> evaluation = confide.pipeline.evaluate_folder("shards", "parts", ["auroc"], False, exact=True)
        >>> evaluation.value("auroc")
        0.75
    """
    check_range(rows, "rows", 1)
    paths, work = paths_of(folder), Workers(Path(out), engine, workers)
    sketch = _sketch(paths, work, split, (by,) if isinstance(by, str) else tuple(by))
    rankings = {}
    if exact:
        words = sortable_words(metric_words(metrics))
        rankings = _rankings(paths, sketch, words, work, split, rows) if words else {}
    options: Options = {"model": model, "seed": seed, "title": title, "about": about}
    return evaluation.evaluate_sketch(sketch, metrics, intervals, rankings=rankings, **options)


# Drawing: rows for a fit.


@dataclass(frozen=True)
class DrawJob:
    """A shard that rows are drawn from, and the file they are written to."""

    path: str
    number: int
    share: float
    seed: int
    target: str


def draw_rows(job: DrawJob) -> None:
    """Rows of a shard, drawn by seed and place."""
    if not Path(job.target).exists():
        columns, metadata = _drawn(job)
        formats.write_table(job.target, columns, metadata)


def _drawn(job: DrawJob) -> tuple[Columns, dict[str, str]]:
    parts, about = [], dict[str, str]()
    for batch, (columns, metadata) in enumerate(formats.table_batches(job.path, SHARD_ROWS)):
        about = about or metadata
        n = max(len(values) for values in columns.values())
        drawn = generator(job.seed, "folder sample", job.number, batch).random(n) < job.share
        parts.append({name: own[drawn] if len(own) == n else own for name, own in columns.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}, about


def sample_folder(
    folder: str | Path,
    *,
    rows: int = FIT_ROWS,
    seed: int = 0,
    split: str | None = None,
    work: Workers | None = None,
) -> tuple[Predictions, int]:
    """About so many rows of a folder of shards, drawn at random by seed and place, all of them where there are fewer.

    Args:
        folder: of .parquet, .npz, .csv or .jsonl files of predictions.
        rows: how many to draw, about.
        seed: of the draw.
        split: overrides the split that files name.
        work: who draws; by default this process. The rows are the same.

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
    paths = paths_of(folder)
    total = sum(formats.row_count(path) for path in paths)
    share = rows / max(total, 1)
    jobs = [DrawJob(path, number, share, seed, "") for number, path in enumerate(paths)]
    if work is None or work.engine is None:
        parts = [_drawn(job) for job in jobs]
    else:
        jobs = [replace(j, target=work.target("drawn", [j.path], j.number, share, seed, ending=".npz")) for j in jobs]
        work.map(draw_rows, jobs, "draw rows")
        parts = [formats.read_table(job.target) for job in jobs]
    about = next((metadata for _, metadata in parts if metadata), {})
    filled = [columns for columns, _ in parts if columns]
    if not filled:
        raise InputError(f"{folder} must hold at least one row, got none; check the shards")
    table = {name: np.concatenate([part[name] for part in filled]) for name in filled[0]}
    names = [name for name in ID_COLUMNS if name in table]
    if names and len(np.unique(table[names[0]])) < len(table[names[0]]):
        del table[names[0]]  # numbers that count the rows of each shard name no sample
    return predictions_from_columns(table, about, split, str(folder)), total


# Calibrators: a temperature of all rows, and what a calibrator makes of every shard.


@dataclass(frozen=True)
class MomentsJob:
    """Shards, the scale of the logits that their likelihood is wanted at, and the file it is written to."""

    paths: tuple[str, ...]
    scale: float
    bend: bool
    target: str
    split: str | None = None


def add_moments(job: MomentsJob) -> None:
    """Rows of some shards, their mean NLL at a temperature and its derivatives."""
    if not Path(job.target).exists():
        parts = [shard_moments(shard, job.scale, job.bend) for shard in shards_of(job.paths, job.split) if len(shard)]
        formats.write_json(job.target, [[n, *(None if math.isnan(v) else v for v in own)] for n, *own in parts])


def fit_temperature_on_folder(
    calibrator: Calibrator, drawn: Predictions, folder: str | Path, work: Workers, *, split: str | None = None
) -> Calibrator:
    """A temperature that was fitted on some rows of a folder, moved to the optimum of all of them in some passes.

    Args:
        calibrator: a `temperature`, fitted on the drawn rows.
        drawn: these rows.
        folder: of the shards.
        work: who reads them, and where to keep sums.
        split: overrides the split that files name.

    Returns:
        The calibrator of all rows.

    Raises:
        InputError: the calibrator is no temperature.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], split="val")
        >>> p.save("shards/0.parquet")
        >>> work = confide.pipeline.Workers(Path("parts"))
        >>> first = confide.calibrators.fit("temperature", p)
        >>> found = confide.pipeline.fit_temperature_on_folder(first, p, "shards", work)
        >>> abs(found.temperature - first.temperature) < 1e-6
        True
    """
    if calibrator.word != "temperature":
        raise InputError(
            f"a fit on all rows of a folder is of temperature alone, got '{calibrator.word}'; leave --exact out, or "
            "pass --methods temperature"
        )
    paths = paths_of(folder)
    each = math.ceil(len(paths) / MOST_PARTS)
    groups = [tuple(paths[first : first + each]) for first in range(0, len(paths), each)]

    def moments(scale_of_logits: float, bend: bool) -> tuple[float, float, float]:
        facts = (split, scale_of_logits.hex(), bend)
        jobs = [MomentsJob(own, scale_of_logits, bend, work.target("moments", own, *facts), split) for own in groups]
        work.map(add_moments, jobs, "add up the likelihood")
        rows = (row for job in jobs for row in formats.read_json(job.target))
        return mean_moments((n, *(math.nan if v is None else v for v in own)) for n, *own in rows)

    total = sum(formats.row_count(path) for path in paths)
    return with_all_rows(calibrator, drawn, total, moments)


@dataclass(frozen=True)
class ApplyJob:
    """A shard, what was fitted, and the file of what it makes of the shard."""

    path: str
    target: str
    fitted: Any
    split: str | None = None
    table: str | None = None


def calibrate_file(job: ApplyJob) -> None:
    """A calibrated shard."""
    job.fitted(Predictions.load(job.path, job.split)).save(job.target)


def apply_to_folder(
    fitted: Callable[[Predictions], Predictions],
    folder: str | Path,
    out: str | Path,
    split: str | None = None,
    *,
    work: Workers | None = None,
) -> list[Path]:
    """What a fitted calibrator makes of every shard, written under the same names; one shard at a time.

    Args:
        fitted: a calibrator.
        folder: of the shards.
        out: another folder.
        split: overrides the split that files name.
        work: who calibrates; by default this process.

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
    targets = _targets(folder, out, "calibrated shards")
    absolute = [str(target.resolve()) for target in targets]
    jobs = [ApplyJob(path, own, fitted, split) for path, own in zip(paths_of(folder), absolute, strict=True)]
    (work or Workers(Path(out))).map(calibrate_file, jobs, "calibrate shards")
    return targets


def _targets(folder: str | Path, out: str | Path, what: str) -> list[Path]:
    """A file of another folder for every shard."""
    if Path(folder).resolve() == Path(out).resolve():
        raise InputError(f"{what} must go to another folder than {folder}; give one")
    targets = [Path(out) / f"{Path(path).name.split('.')[0]}.parquet" for path in paths_of(folder)]
    if len(set(targets)) < len(targets):
        raise InputError(f"the shards of {folder} must have names of their own without their endings; rename some")
    return targets


# Sets: what they hold, shard by shard, and how often that is the true class in all.


def measure_file(job: ApplyJob) -> None:
    """Coverage and sizes of the sets of a shard; and its sets, where a table of them is wanted."""
    predictions = Predictions.load(job.path, job.split)
    if job.table is not None:
        formats.write_table(job.table, sets.set_columns(job.fitted, predictions))
    formats.write_json(job.target, asdict(sets.measure(job.fitted, predictions)))


def sets_of_folder(
    fitted: sets.PredictionSets,
    folder: str | Path,
    out: str | Path | None = None,
    *,
    work: Workers,
    split: str | None = None,
    model: str = "model",
) -> SetResult:
    """What fitted sets do on all rows of a folder of shards; one shard at a time.

    Args:
        fitted: the sets.
        folder: of the shards.
        out: a folder for id, size and classes of every set, a file a shard; not written where left out.
        work: who makes them, and where to keep counts.
        split: overrides the split that files name.
        model: whose predictions they are, for a report.

    Returns:
        Coverage and sizes of all rows.

    Raises:
        InputError: both folders are one, or a shard cannot be read.

    Example:
        >>> from pathlib import Path
        >>> Path("shards").mkdir()
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> val.save("shards/0.parquet")
        >>> fitted, work = confide.sets.fit("lac", val, coverage=0.8), confide.pipeline.Workers(Path("parts"))
        >>> confide.pipeline.sets_of_folder(fitted, "shards", work=work).whole.share
        0.9
    """
    paths = paths_of(folder)
    tables = [None] * len(paths) if out is None else [str(t.resolve()) for t in _targets(folder, out, "sets")]
    state = formats.json_text(formats.plain(fitted.state().record))
    jobs = [
        ApplyJob(path, work.target("sets", [path], split, state), fitted, split, table)
        for path, table in zip(paths, tables, strict=True)
    ]
    todo = [job for job in jobs if job.table is not None or not Path(job.target).exists()]
    work.map(measure_file, todo, "make sets")
    results = [SetResult.from_row(formats.read_json(job.target)) for job in jobs]
    return replace(sets.merged(fitted, results), model=model)
