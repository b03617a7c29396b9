"""Ray: jobs as tasks of a cluster, and one training over several of its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
        import os

        address = os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = {} if address else {"num_cpus": max(workers, os.cpu_count() or 1)}
        ray.init(address=address, log_to_driver=False, include_dashboard=False, **own)
    return ray


def run_tasks(jobs: Sequence[Job], workers: int, retries: int, on_done: Callable[[Job, Any], None] | None) -> list[Any]:
    """Answers of all jobs in order, each a task with retries."""
    ray = connect(workers)
    gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(call)
    numbers: dict[Any, int] = {}
    answers: list[Any] = [None] * len(jobs)
    left = list(range(len(jobs)))
    while left or numbers:
        while left and len(numbers) < workers:
            number = left.pop(0)
            numbers[remote.remote(jobs[number])] = number
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


def train_workers(job: Job, workers: int, *, gpu: bool = False, storage: str | None = None) -> Any:
    """One job on several workers of a cluster that form one torch process group (Ray Train); the first one's answer."""
    connect(workers)
    from ray import train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def work(config: dict[str, Any]) -> None:
        answer = call(Job(config["name"], config["function"], config["payload"]))
        train.report({"answer": answer, "rank": train.get_context().get_world_rank()})

    trainer = TorchTrainer(
        work,
        train_loop_config={"name": job.name, "function": job.function, "payload": dict(job.payload)},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(name=job.name, storage_path=storage),
    )
    result = trainer.fit()
    if result.error is not None:
        raise InputError(f"job '{job.name}': {str(result.error).splitlines()[0]}") from None
    return (result.metrics or {}).get("answer")
