"""Jobs: independent pieces of work, each a function by name with a plain payload, run by several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from confide.core.door import InputError, check_choice, check_range

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Job:
    """One piece of work: `function` is "module:name", `payload` goes to it as JSON, and so does its answer back.

    `gpu` is the share of a GPU that it takes on a Ray cluster that has any.
    """

    name: str
    function: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    gpu: float = 1.0


@dataclass
class _Running:
    job: int
    process: BaseProcess
    answer: Connection


def call(job: Job) -> Any:
    """Do the work here."""
    module, _, name = job.function.partition(":")
    return getattr(import_module(module), name)(json.loads(json.dumps(dict(job.payload))))


def run_jobs(
    jobs: Sequence[Job],
    *,
    engine: str = "local",
    workers: int = 2,
    retries: int = 2,
    on_done: Callable[[Job, Any], None] | None = None,
) -> list[Any]:
    """Answers of all jobs in order. A worker that dies is tried again; bad input is not, it stays bad.

    Args:
        engine: local (processes of this machine) or ray (tasks on a cluster).
        workers: jobs at the same time.
        retries: how often a job whose worker died is started again.
        on_done: told of each job as it ends.
    """
    check_choice(engine, ENGINES, "engine")
    check_range(workers, "workers", 1)
    names = [job.name for job in jobs]
    if len(set(names)) != len(names):
        raise InputError("jobs must have different names, got some twice; add what tells them apart")
    if engine == "ray":
        from confide.scale.ray import run_tasks

        return run_tasks(jobs, workers, retries, on_done)
    return _run_local(jobs, workers, retries, on_done)


def _run_local(
    jobs: Sequence[Job], workers: int, retries: int, on_done: Callable[[Job, Any], None] | None
) -> list[Any]:
    answers: list[Any] = [None] * len(jobs)
    waiting, tries = list(range(len(jobs))), [0] * len(jobs)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_begin(waiting.pop(0), jobs, workers))
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


def _begin(number: int, jobs: Sequence[Job], workers: int) -> _Running:
    # A fresh process each: torch does not survive a fork, and a job's memory goes back when it ends.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    threads = max(1, (os.cpu_count() or 1) // workers)
    process = context.Process(target=_work, args=(jobs[number], sender, threads), daemon=False)
    process.start()
    sender.close()
    return _Running(number, process, receiver)


def _work(job: Job, sender: Connection, threads: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from confide.core.door import MissingExtra, OptionError
    from confide.core.progress import Progress

    Progress.quiet = True
    try:
        sender.send(("done", json.dumps(call(job))))
    except (InputError, OptionError, MissingExtra) as error:
        sender.send(("bad", str(error)))
    except Exception as error:
        sender.send(("failed", f"{type(error).__name__}: {error}"))


def _result(work: _Running) -> tuple[str, Any]:
    try:
        kind, value = work.answer.recv() if work.answer.poll() else ("failed", "")
    except EOFError:
        kind, value = "failed", ""
    work.process.join()
    if kind == "done":
        return kind, json.loads(value)
    return kind, value or f"its process ended with status {work.process.exitcode}"
