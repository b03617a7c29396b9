"""Ray: jobs as tasks of a cluster, and one training over several of its workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confide.core import files
from confide.core.door import InputError, MissingExtra
from confide.scale.jobs import Job, call


def _library() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "engine 'ray'") from None
    return ray


def connect(workers: int) -> Any:
    """Ray, joined to the cluster of RAY_ADDRESS, or started here with room for the workers."""
    ray = _library()
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        # One more than the workers: Ray Train keeps a processor for itself.
        own: dict[str, Any] = {} if address else {"num_cpus": max(workers + 1, os.cpu_count() or 1)}
        # From a checkout nothing is installed: workers must find the package where this process did.
        places = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(places)}}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, runtime_env=environment, **own)
    return ray


def run_tasks(jobs: Sequence[Job], workers: int, retries: int, on_done: Callable[[Job, Any], None] | None) -> list[Any]:
    """Answers of all jobs in order, each a task with retries."""
    ray = connect(workers)
    gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    remote = ray.remote(num_cpus=1, max_retries=retries)(call)
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


def train_workers(job: Job, workers: int, *, storage: str | Path, gpu: bool = False) -> Any:
    """One job on several workers of a cluster that form one torch process group (Ray Train).

    Args:
        storage: a folder that all workers see; the first worker leaves its answer there.
        gpu: give each worker a GPU.
    """
    connect(workers)
    from ray import train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    note = Path(storage).resolve() / f"{job.name}.json"
    note.unlink(missing_ok=True)

    def work(config: dict[str, Any]) -> None:
        answer = call(Job(config["name"], config["function"], config["payload"]))
        if train.get_context().get_world_rank() == 0:
            files.write_json(config["note"], answer)

    plan = {"name": job.name, "function": job.function, "payload": dict(job.payload), "note": str(note)}
    trainer = TorchTrainer(
        work,
        train_loop_config=plan,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(name=job.name, storage_path=str(note.parent)),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray wraps what a worker raised in errors of its own, many lines long
        raise InputError(f"job '{job.name}': {_last_line(error)}") from None
    if not note.exists():
        raise InputError(f"job '{job.name}' left no answer in {note.parent}; all workers must see that folder")
    return files.read_json(note)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
