"""Where work runs: jobs as local processes or tasks of a Ray cluster, one training over several workers, and the
difficulty of a folder of parquet files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from confide import difficulty, features
from confide.checks import InputError, MissingExtra, OptionError, check_choice, check_range
from confide.difficulty.from_features import GaussianDifficulty
from confide.features.extraction import weights_digest
from confide.files import disk, formats
from confide.numerics.gaussians import Moments, fourth_moment, gaussians_from, moments_of
from confide.progress import ENGINES, Progress
from confide.records import Split, default_ids
from confide.types import JsonObject, Options

__all__ = ["FolderScores", "FolderScoring", "Job", "map_items", "run_jobs", "score_folder", "train_workers"]

Payload = TypeVar("Payload")
Answer = TypeVar("Answer")

# Jobs: independent pieces of work, each a function with the record that it is called with, run by several processes.


@dataclass(frozen=True)
class Job(Generic[Payload, Answer]):
    """One piece of work: `function(payload)`, called in a process of its own.

    Args:
        name: tells the jobs of one call apart.
        function: of a module that other processes can import.
        payload: what it is called with; like the answer, it is pickled on its way.
        gpu: the share of a GPU that it takes on a Ray cluster that has any.
    """

    name: str
    function: Callable[[Payload], Answer]
    payload: Payload
    gpu: float = 1.0

    def __call__(self) -> Answer:
        """Do the work here."""
        return self.function(self.payload)


@dataclass
class _RunningJob:
    job: int
    process: BaseProcess
    answer: Connection


def run_jobs(
    jobs: Sequence[Job[Payload, Answer]],
    *,
    engine: str = "local",
    workers: int = 2,
    retries: int = 2,
    on_done: Callable[[Job[Payload, Answer], Answer], None] | None = None,
) -> list[Answer]:
    """Answers of all jobs in order. A worker that dies is tried again; bad input is not, it stays bad.

    Args:
        jobs: of different names; function, payload and answer must be what `pickle` takes.
        engine: local (processes of this machine) or ray (tasks on a cluster).
        workers: jobs at the same time.
        retries: how often a job whose worker died is started again.
        on_done: called with each job and its answer as it ends.

    Returns:
        What the functions returned.

    Raises:
        InputError: a job refused its input, or its worker died too often.

    Example:
        >>> jobs = [confide.scale.Job("of-9", abs, -9)]
        >>> confide.scale.run_jobs(jobs, workers=1)  # doctest: +SKIP
        [9]
        >>> jobs[0]()
        9
    """
    check_choice(engine, ENGINES, "engine")
    check_range(workers, "workers", 1)
    names = [job.name for job in jobs]
    if len(set(names)) != len(names):
        raise InputError("jobs must have different names, got some twice; add what tells them apart")
    if engine == "ray":
        return _run_ray_tasks(jobs, workers, retries, on_done)
    return _run_local(jobs, workers, retries, on_done)


def _run_local(
    jobs: Sequence[Job[Payload, Answer]],
    workers: int,
    retries: int,
    on_done: Callable[[Job[Payload, Answer], Answer], None] | None,
) -> list[Answer]:
    answers: list[Any] = [None] * len(jobs)
    waiting, tries = list(range(len(jobs))), [0] * len(jobs)
    running: list[_RunningJob] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start_process(waiting.pop(0), jobs, workers))
            ended = [work for work in running if work.answer.poll() or not work.process.is_alive()]
            if not ended:
                time.sleep(0.02)
            for work in ended:
                running.remove(work)
                kind, value = _result(work)
                tries[work.job] += 1
                if kind == "done":
                    answers[work.job] = value
                    if on_done is not None:
                        on_done(jobs[work.job], value)
                elif kind == "bad" or tries[work.job] > retries:
                    raise InputError(f"job '{jobs[work.job].name}': {value}")
                else:
                    waiting.append(work.job)
    finally:
        for work in running:
            work.process.kill()
            work.process.join()
    return answers


def _start_process(number: int, jobs: Sequence[Job[Any, Any]], workers: int) -> _RunningJob:
    # A fresh process each: torch does not survive a fork, and a job's memory goes back when it ends.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work_in_process, args=(jobs[number], sender), daemon=False)
    with _threads_of_children(max(1, (os.cpu_count() or 1) // workers)):
        process.start()
    sender.close()
    return _RunningJob(number, process, receiver)


@contextmanager
def _threads_of_children(threads: int) -> Iterator[None]:
    """Processes started here take so many threads, unless OMP_NUM_THREADS says otherwise.

    The number is read when torch is imported, which a process has done before its first line of ours: it must be in
    the environment that the process starts with.
    """
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


def _end_with_parent() -> None:
    """End this process when the one that started it ends, however it ends; files are written whole or not at all."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work_in_process(job: Job[Any, Any], sender: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Progress.quiet = True
    try:
        sender.send(("done", job()))
    except (InputError, OptionError, MissingExtra) as error:
        sender.send(("bad", str(error)))
    except Exception as error:
        sender.send(("failed", f"{type(error).__name__}: {error}"))


def _result(work: _RunningJob) -> tuple[str, Any]:
    try:
        kind, value = work.answer.recv() if work.answer.poll() else ("failed", "")
    except EOFError:
        kind, value = "failed", ""
    work.process.join()
    if kind == "done":
        return kind, value
    return kind, value or f"its process ended with status {work.process.exitcode}"


def map_items(
    function: Callable[[Payload], Any], items: Sequence[Payload], *, engine: str = "local", workers: int = 2, what: str
) -> None:
    """Call a function on every item, by several processes or as a Ray Data job; each call writes its own result.

    A worker that dies is started again, so that a call may be made twice.

    Args:
        function: of a module that other processes can import.
        items: what it is called with; they are pickled on their way.
        engine: local (processes of this machine) or ray (a cluster).
        workers: calls at the same time.
        what: is done, for the line of progress.

    Raises:
        InputError: a call refused its input, or its worker died too often.

    Example:
        >>> confide.scale.map_items(print, [], what="nothing")
    """
    check_choice(engine, ENGINES, "engine")
    check_range(workers, "workers", 1)
    if items and engine == "ray":
        _map_on_ray(function, items, workers, what, gpu=False)
    elif items:
        each = max(1, -(-len(items) // (4 * workers)))  # a process takes seconds to start
        parts = [tuple(items[k : k + each]) for k in range(0, len(items), each)]
        jobs = [Job(f"{what} {k + 1} of {len(parts)}", call_each, (function, own)) for k, own in enumerate(parts)]
        run_jobs(jobs, engine=engine, workers=workers)


def call_each(work: tuple[Callable[[Any], Any], Sequence[Any]]) -> None:
    """Call a function on one item after the other."""
    function, items = work
    for item in items:
        function(item)


# Ray: jobs as tasks of a cluster, and one training over several of its workers.


def connect_ray(workers: int) -> Any:
    """Ray, joined to the cluster of RAY_ADDRESS, or started here with room for the workers."""
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "engine 'ray'") from None
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        # One more than the workers: Ray Train keeps a processor for itself.
        own: Options = {} if address else {"num_cpus": max(workers + 1, os.cpu_count() or 1)}
        # From a checkout nothing is installed: workers must find the package where this process did.
        places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(places)}}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, runtime_env=environment, **own)
    return ray


def _run_ray_tasks(
    jobs: Sequence[Job[Payload, Answer]],
    workers: int,
    retries: int,
    on_done: Callable[[Job[Payload, Answer], Answer], None] | None,
) -> list[Answer]:
    """Answers of all jobs in order, each a task with retries."""
    ray = connect_ray(workers)
    gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    remote = ray.remote(num_cpus=1, max_retries=retries)(Job.__call__)
    numbers: dict[Any, int] = {}
    answers: list[Any] = [None] * len(jobs)
    left = list(range(len(jobs)))
    while left or numbers:
        while left and len(numbers) < workers:
            number = left.pop(0)
            numbers[remote.options(num_gpus=gpus * jobs[number].gpu).remote(jobs[number])] = number
        ready, _ = ray.wait(list(numbers), num_returns=1)
        for reference in ready:
            number = numbers.pop(reference)
            try:
                answers[number] = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                reason = str(error.cause).splitlines()[0] if str(error.cause) else type(error.cause).__name__
                raise InputError(f"job '{jobs[number].name}': {reason}") from None
            if on_done is not None:
                on_done(jobs[number], answers[number])
    return answers


def train_workers(job: Job[Any, Any], workers: int, *, storage: str | Path, gpu: bool = False) -> Any:
    """One job on several workers of a cluster that form one torch process group (Ray Train).

    Args:
        job: its answer must be plain JSON values.
        workers: processes of the group.
        storage: a folder that all workers see; the first worker leaves its answer there.
        gpu: give each worker a GPU.

    Returns:
        The answer of the first worker.

    Raises:
        InputError: a worker failed, or the storage is not one that all workers see.

    Example:
        >>> job = confide.scale.Job("train", abs, -9)
        >>> confide.scale.train_workers(job, 2, storage="ray")  # doctest: +SKIP
        9
    """
    connect_ray(workers)
    from ray import train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    note = Path(storage).resolve() / f"{job.name}.json"
    disk.remove(note)

    def work(config: JsonObject) -> None:
        answer = config["job"]()
        if train.get_context().get_world_rank() == 0:
            formats.write_json(config["note"], answer)

    trainer = TorchTrainer(
        work,
        train_loop_config={"job": job, "note": str(note)},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(name=job.name, storage_path=str(note.parent)),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray wraps what a worker raised in errors of its own, many lines long
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"job '{job.name}': {lines[-1] if lines else type(error).__name__}") from None
    if not note.exists():
        raise InputError(f"job '{job.name}' left no answer in {note.parent}; all workers must see that folder")
    return formats.read_json(note)


def _map_on_ray(function: Callable[[Any], None], items: Sequence[Any], workers: int, what: str, gpu: bool) -> None:
    """A Ray Data job (on the cluster of RAY_ADDRESS, or one started here) that calls a function on every item."""
    ray = connect_ray(workers)
    from ray import data as ray_data

    # Our own line of progress says enough; Ray's would be many.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray_data.DataContext.get_current().enable_progress_bars = False

    def task(row: JsonObject) -> JsonObject:
        try:
            function(items[int(row["place"])])
        except InputError as error:
            return {"place": row["place"], "error": str(error)}
        return {"place": row["place"], "error": ""}

    places = [{"place": i} for i in range(len(items))]
    # One block per item: Ray gives each to a free worker and repeats it elsewhere when a machine is lost.
    pool = ray_data.TaskPoolStrategy(size=min(workers, len(places)))
    resources = {"num_gpus": 1} if gpu and ray.cluster_resources().get("GPU", 0) >= 1 else {}
    data = ray_data.from_items(places, override_num_blocks=len(places)).map(task, compute=pool, **resources)
    failed = []
    with Progress(what, len(items)) as progress:
        for row in data.iter_rows():
            failed += [row["error"]] if row["error"] else []
            progress.step()
    if failed:
        raise InputError(f"{failed[0]} ({len(failed)} of {len(items)} parts failed; the rest is kept, run it again)")


# Difficulty of a folder of parquet files: features, moments and scores as three maps with a merge between them.
#
# Every part is written by the task that made it, atomically, under a name that its inputs determine: running the same
# job again does only what is missing. Nothing the driver holds grows with the number of samples.

FOLDER_METHODS = ("rmd", "md")
GROUP_FILES = 16
"""Files whose moments one task adds up: the driver then merges few, small results."""


@dataclass(frozen=True)
class FolderScoring:
    """What to score, how and where.

    Args:
        source: folder of parquet files with `label` and `features`, `image` or `text`.
        out: folder of the results; the same job goes on there where it was.
        method: rmd or md, with its `options`.
        features: extractor word, with `feature_options`, where the files hold no features.
        batch_size: samples at a time of the extractor.
        workers: tasks at a time.
        engine: local or ray.
        labels: the class that distances are measured to: `given`, `predicted` or `min`.
    """

    source: Path
    out: Path
    method: str = "rmd"
    options: Options = field(default_factory=dict)
    features: str | None = None
    feature_options: Options = field(default_factory=dict)
    batch_size: int = 64
    workers: int = 2
    engine: str = "ray"
    labels: str = "given"

    def map(self, function: Callable[[Any], None], items: Sequence[Any], what: str, *, gpu: bool = False) -> None:
        """Call `function` on every item; it writes its own result, so a stopped job goes on with what is missing.

        Args:
            gpu: each task takes a GPU of the cluster, where it has any.
        """
        check_choice(self.engine, ENGINES, "engine")
        # Here, unlike in `map_items`, functions may be closures: local work stays in this process.
        if items and self.engine == "ray":
            _map_on_ray(function, items, self.workers, what, gpu)
        elif items:
            with Progress(what, len(items)) as progress:
                for item in items:
                    function(item)
                    progress.step()

    def key(self, name: str) -> str:
        """A short name for what these options make."""
        facts: list[Any] = [str(self.source.resolve()), self.features, sorted(self.feature_options.items())]
        if self.features is not None and (weights := weights_digest(self.features)):
            facts.append(weights)
        if name == "scores":
            facts += [self.method, sorted(self.options.items())]
            facts += [] if self.labels == "given" else [self.labels]
        return hashlib.sha256(json.dumps([name, facts], default=str).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class FolderScores:
    """Where the scores of a folder lie: parquet files, of which `computed` were made by this call."""

    scores: Path
    n: int
    files: int
    computed: int
    notes: tuple[str, ...]

    def as_dict(self) -> JsonObject:
        """Plain dictionary, for printing."""
        counts = {"n": self.n, "files": self.files, "made": self.computed}
        return {"scores": str(self.scores), **counts, "notes": list(self.notes)}


def score_folder(job: FolderScoring) -> FolderScores:
    """Score every sample of a folder of parquet files; parts of the result are parquet files of the same names.

    Args:
        job: what to score, how and where.

    Returns:
        Folder and number of the scores.

    Raises:
        InputError: the method does not work at this scale, or files lack columns.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from confide.files.formats import write_table
        >>> rows = np.random.default_rng(0).normal(size=(40, 2))
        >>> write_table("in/part.parquet", {"features": rows, "label": np.arange(40) % 2})
        >>> job = confide.scale.FolderScoring(Path("in"), Path("out"), engine="local")
        >>> confide.scale.score_folder(job).n
        40
    """
    if job.method not in FOLDER_METHODS:
        raise InputError(f"at this scale the methods are {' and '.join(FOLDER_METHODS)}, got '{job.method}'")
    difficulty.DIFFICULTY.get(job.method).checked(job.options)
    check_choice(job.labels, ("given", "predicted", "min"), "labels")
    if not job.source.is_dir():
        raise InputError(f"{job.source} must be a folder of parquet files, but it is none")
    # Workers start elsewhere: a path must not depend on where this process is.
    job = replace(job, source=job.source.resolve(), out=job.out.resolve())
    sources = sorted(job.source.glob("*.parquet"))
    if not sources:
        raise InputError(f"{job.source} must hold .parquet files, got none")
    with disk.locked(job.out):
        disk.remove_leftovers(job.out.glob("*-*"))
        return _score_files(job, sources)


def _score_files(job: FolderScoring, sources: list[Path]) -> FolderScores:
    rows = _feature_files(job, sources)
    num_classes = 1 + max(_largest_label(path) for path in rows)
    model = _fit_gaussians(job, rows, num_classes)
    parts = job.out / f"scores-{job.key('scores')}-{_names_key(rows)}"
    todo = [path for path in rows if not (parts / path.name).exists()]
    job.map(lambda path: _score_file(path, parts / path.name, model, job), todo, "scores")
    n = sum(pq.read_metadata(parts / path.name).num_rows for path in rows)
    return FolderScores(parts, n, len(rows), len(todo), tuple(model.notes))


def _feature_files(job: FolderScoring, sources: list[Path]) -> list[Path]:
    if job.features is None:
        return sources
    folder = job.out / f"features-{job.key('features')}"
    todo = [path for path in sources if _source_of(folder / path.name) != _stamp(path)]
    job.map(lambda path: _extract_file(path, folder / path.name, job), todo, "features", gpu=True)
    return [folder / path.name for path in sources]


def _extract_file(path: Path, target: Path, job: FolderScoring) -> None:
    columns, _ = formats.read_table(path)
    name = next((c for c in ("image", "text", "row") if c in columns), None)
    if name is None or "label" not in columns:
        raise InputError(f"{path} must have columns label and image, text or row, got {', '.join(columns)}")
    inputs = columns[name]
    labels = columns["label"].astype(np.int64)
    split = Split(inputs if inputs.ndim > 1 else list(inputs), labels, _ids_of_rows(columns, path))
    extracted = features.extract(str(job.features), split, batch_size=job.batch_size, **job.feature_options)
    values = extracted.values.astype(np.float32)
    columns = {"id": extracted.ids, "label": extracted.labels, "features": values}
    formats.write_table(target, columns, {"source": _stamp(path)})


def _ids_of_rows(columns: Mapping[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    if "id" in columns:
        return columns["id"].astype(np.str_) if columns["id"].dtype == object else columns["id"]
    return default_ids(len(columns["label"]), f"{path.stem}-")


def _read_rows(path: Path) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    columns, _ = formats.read_table(path)
    if "features" not in columns or "label" not in columns or columns["features"].ndim != 2:
        raise InputError(f"{path} must have columns features (a list of numbers) and label; name --features to extract")
    return columns["features"], columns["label"].astype(np.int64), _ids_of_rows(columns, path)


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
    return int(formats.read_table(path)[0]["label"].max())


def _fit_gaussians(job: FolderScoring, rows: list[Path], num_classes: int) -> GaussianDifficulty:
    """Moments of groups of files, merged here, and the Gaussians they give."""
    groups = [rows[k : k + GROUP_FILES] for k in range(0, len(rows), GROUP_FILES)]
    moments = reduce(Moments.merge, _moments_of_groups(job, groups, num_classes))
    fourth = partial(_fourth_moment, job, groups)
    shrinkage = job.options.get("shrinkage", "auto")
    return GaussianDifficulty(gaussians_from(moments, fourth, shrinkage=shrinkage), job.method == "rmd")


def _moments_of_groups(job: FolderScoring, groups: list[list[Path]], num_classes: int) -> list[Moments]:
    folder = job.out / f"moments-{job.key('features')}"
    targets = [folder / f"{_names_key(group)}.npz" for group in groups]
    todo = [i for i, target in enumerate(targets) if not target.exists()]

    def make(i: int) -> None:
        # Every file has its own pilots: files sorted by class would leave shared ones far from most classes.
        rows = (_read_rows(path) for path in groups[i])
        total = reduce(Moments.merge, (moments_of(values, labels, num_classes) for values, labels, _ in rows))
        sums = {k: getattr(total, k) for k in ("pilots", "counts", "sums", "scatter")}
        formats.write_table(targets[i], {**sums, "precision": np.array(total.precision)})

    job.map(make, todo, "moments")
    tables = (formats.read_table(target)[0] for target in targets)
    return [Moments(t["pilots"], t["counts"], t["sums"], t["scatter"], float(t["precision"])) for t in tables]


def _names_key(group: list[Path]) -> str:
    """A short name for these files as they are now: a changed file makes other moments and other scores."""
    facts = [f"{path.name} {_stamp(path)}" for path in group]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _stamp(path: Path) -> str:
    """Size and time of a file."""
    return f"{path.stat().st_size} {path.stat().st_mtime_ns}"


def _source_of(target: Path) -> str:
    """The stamp of the file that features were made of; empty where there are none yet."""
    return formats.parquet_metadata(target).get("source", "") if target.exists() else ""


def _fourth_moment(job: FolderScoring, groups: list[list[Path]], centres: NDArray[np.float64], by_class: bool) -> float:
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
        formats.write_json(targets[i], {"total": total, "n": n})

    todo = [i for i, target in enumerate(targets) if not target.exists()]
    job.map(make, todo, "fourth moments")
    parts = [formats.read_json(target) for target in targets]
    return float(sum(part["total"] for part in parts) / sum(part["n"] for part in parts))


def _score_file(path: Path, target: Path, model: GaussianDifficulty, job: FolderScoring) -> None:
    values, labels, ids = _read_rows(path)
    scored = model.values_of(values, labels if job.labels == "given" else job.labels)
    options, notes = json.dumps(formats.plain(dict(job.options))), json.dumps(model.notes)
    about = {"confide": formats.SCORES.tag, "method": job.method, "options": options, "notes": notes}
    formats.write_table(target, {"id": ids, "label": labels, "score": scored}, about)
