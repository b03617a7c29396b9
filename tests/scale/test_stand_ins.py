"""Jobs by stand-ins for processes and for Ray: who is started when, tried again, told of, and given what."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from confide import scale
from confide.checks import InputError
from confide.scale import Job, map_items, run_jobs, train_workers


class Thread:
    """A process that is a thread; `dies` ends it before its answer."""

    started: ClassVar[list[str]] = []
    alive = 0
    most = 0
    environment: ClassVar[list[str | None]] = []

    def __init__(self, target: Any, args: Any, daemon: bool) -> None:
        assert not daemon
        self.work, (self.job, self.sender), self.exitcode = target, args, -9
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        Thread.alive += 1
        Thread.most = max(Thread.most, Thread.alive)
        if not (self.job.name == "dies" and Thread.started.count("dies") == 1):
            self.work(self.job, self.sender)
        self.sender.close()
        Thread.alive -= 1

    def start(self) -> None:
        Thread.started.append(self.job.name)
        Thread.environment.append(os.environ.get("OMP_NUM_THREADS"))
        self.thread.start()

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def join(self) -> None:
        self.thread.join()

    def kill(self) -> None:
        pass


class Kept:
    """The parent's end of a pipe is closed by the thread that uses it."""

    def __init__(self, end: Any) -> None:
        self.end, self.send = end, end.send

    def close(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.end.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> type[Thread]:
    def pipe(duplex: bool) -> tuple[Any, Any]:
        receiver, sender = multiprocessing.Pipe(duplex)
        return receiver, Kept(sender)

    Thread.started, Thread.environment, Thread.most, Thread.alive = [], [], 0, 0
    context = SimpleNamespace(Pipe=pipe, Process=Thread)
    monkeypatch.setattr(scale.multiprocessing, "get_context", lambda kind: context)
    return Thread


def square(x: int) -> int:
    return x**2


def refuse(x: int) -> int:
    raise InputError("x must be positive")


def fail(x: int) -> int:
    raise ZeroDivisionError("by zero")


def test_answers_come_in_the_order_of_jobs_by_at_most_so_many_workers(threads: type[Thread]) -> None:
    told: list[tuple[str, int]] = []
    jobs = [Job(f"j{k}", square, k) for k in range(5)]
    assert run_jobs(jobs, workers=2, on_done=lambda job, answer: told.append((job.name, answer))) == [0, 1, 4, 9, 16]
    assert threads.started == [f"j{k}" for k in range(5)]
    assert threads.most <= 2
    assert sorted(told) == [(f"j{k}", k**2) for k in range(5)]
    assert run_jobs(jobs[:1], workers=1) == [0]
    assert run_jobs([], workers=1) == []


def test_a_worker_that_dies_is_started_again_as_often_as_allowed(threads: type[Thread]) -> None:
    assert run_jobs([Job("dies", square, 3), Job("other", square, 2)], workers=1, retries=1) == [9, 4]
    assert threads.started == ["dies", "other", "dies"]
    threads.started.clear()
    with pytest.raises(InputError, match="job 'dies': its process ended with status -9"):
        run_jobs([Job("dies", square, 3)], workers=1, retries=0)
    assert threads.started == ["dies"]


def test_bad_input_ends_at_once_and_a_failure_after_its_last_try(threads: type[Thread]) -> None:
    with pytest.raises(InputError, match="job 'bad': x must be positive"):
        run_jobs([Job("bad", refuse, 3)], workers=1, retries=5)
    assert threads.started == ["bad"]
    with pytest.raises(InputError, match="job 'fails': ZeroDivisionError: by zero"):
        run_jobs([Job("fails", fail, 3)], workers=1, retries=2)
    assert threads.started == ["bad", "fails", "fails", "fails"]


@pytest.mark.parametrize(("cores", "workers", "share"), [(8, 2, "4"), (2, 3, "1"), (None, 1, "1")])
def test_workers_share_the_cores(
    threads: type[Thread], monkeypatch: pytest.MonkeyPatch, cores: int | None, workers: int, share: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    run_jobs([Job("a", square, 1)], workers=workers)
    assert threads.environment == [share]
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    run_jobs([Job("b", square, 1)], workers=workers)
    assert threads.environment == [share, "3"]
    assert os.environ["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(("items", "workers", "jobs"), [(1, 2, 1), (8, 2, 8), (9, 2, 5), (16, 2, 8), (17, 2, 6)])
def test_items_go_to_four_processes_a_worker_at_most(
    monkeypatch: pytest.MonkeyPatch, items: int, workers: int, jobs: int
) -> None:
    made: list[Job[Any, Any]] = []
    monkeypatch.setattr(scale, "run_jobs", lambda jobs, *, engine, workers: made.extend(jobs))
    map_items(square, list(range(items)), workers=workers, what="squares")
    assert [job.name for job in made] == [f"squares {k + 1} of {jobs}" for k in range(jobs)]
    assert [item for job in made for item in job.payload[1]] == list(range(items))
    map_items(square, [], workers=workers, what="squares")
    map_items(square, [], engine="ray", what="squares")  # asks for no cluster
    for bad in ({"engine": "dask"}, {"workers": 0}):
        with pytest.raises(InputError):
            map_items(square, [1], what="squares", **bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="workers must"):
        run_jobs([], workers=0)


# Ray: a stand-in that works at once and notes what it is asked for.


class FakeRay(ModuleType):
    def __init__(self, gpus: int = 0) -> None:
        super().__init__("ray")
        self.gpus, self.started, self.asked = gpus, [], []  # type: ignore[var-annotated]
        self.running, self.most = 0, 0

        class RayTaskError(Exception):
            def __init__(self, cause: Exception) -> None:
                super().__init__(str(cause))
                self.cause = cause

        self.exceptions = SimpleNamespace(RayTaskError=RayTaskError)

    def is_initialized(self) -> bool:
        return bool(self.started)

    def init(self, **options: Any) -> None:
        self.started.append(options)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0, **({"GPU": float(self.gpus)} if self.gpus else {})}

    def remote(self, **options: Any) -> Any:
        self.asked.append(options)
        ray = self

        def wrap(function: Any) -> Any:
            def with_options(**own: Any) -> Any:
                ray.asked.append(own)

                def begin(job: Any) -> Reference:
                    ray.running += 1
                    ray.most = max(ray.most, ray.running)
                    return Reference(function, job)

                return SimpleNamespace(remote=begin)

            return SimpleNamespace(options=with_options)

        return wrap

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]  # the last is ready first

    def get(self, reference: Any) -> Any:
        self.running -= 1
        try:
            return reference.function(reference.job)
        except Exception as error:
            raise self.exceptions.RayTaskError(error) from None


class Reference:
    def __init__(self, function: Any, job: Any) -> None:
        self.function, self.job = function, job


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


def test_ray_is_started_once_with_room_for_the_workers(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    scale.connect_ray(5)
    scale.connect_ray(9)
    home = str(Path(scale.__file__).parents[1])
    assert ray.started == [
        {
            "address": None,
            "log_to_driver": False,
            "include_dashboard": False,
            "runtime_env": {"env_vars": {"PYTHONPATH": f"{home}{os.pathsep}elsewhere"}},
            "num_cpus": 6,
        }
    ]
    ray.started.clear()
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    scale.connect_ray(5)
    assert (ray.started[0]["address"], "num_cpus" in ray.started[0]) == ("auto", False)
    ray.started.clear()
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    scale.connect_ray(0)
    assert ray.started[0]["num_cpus"] == 1


@pytest.mark.parametrize("gpus", [0, 1])
def test_tasks_of_ray_answer_in_order_and_are_told_of(ray: FakeRay, gpus: int) -> None:
    ray.gpus, told = gpus, list[str]()
    jobs = [Job(f"j{k}", square, k, gpu=k == 1) for k in range(4)]
    answers = run_jobs(jobs, engine="ray", workers=2, retries=4, on_done=lambda job, _: told.append(job.name))
    assert answers == [0, 1, 4, 9]
    assert ray.most == 2
    assert told == ["j1", "j2", "j3", "j0"]
    assert ray.asked[0] == {"num_cpus": 1, "max_retries": 4}
    assert [own["num_gpus"] for own in ray.asked[1:]] == [0, gpus, 0, 0]
    assert run_jobs(jobs, engine="ray", workers=2) == [0, 1, 4, 9]


def test_a_task_of_ray_that_fails_is_one_line(ray: FakeRay) -> None:
    with pytest.raises(InputError, match=r"^job 'bad': x must be positive$"):
        run_jobs([Job("bad", refuse, 1)], engine="ray")

    def silent(x: int) -> None:
        raise KeyError

    with pytest.raises(InputError, match=r"^job 'silent': KeyError$"):
        run_jobs([Job("silent", silent, 1)], engine="ray")


def with_train(monkeypatch: pytest.MonkeyPatch, ranks: int, error: str | None = None) -> list[Any]:
    made: list[Any] = []
    here = SimpleNamespace(rank=0)
    train = ModuleType("ray.train")
    train.get_context = lambda: SimpleNamespace(get_world_rank=lambda: here.rank)  # type: ignore[attr-defined]
    train.RunConfig = lambda **own: own  # type: ignore[attr-defined]
    train.ScalingConfig = lambda **own: own  # type: ignore[attr-defined]
    torch_part = ModuleType("ray.train.torch")

    class TorchTrainer:
        def __init__(self, work: Any, **own: Any) -> None:
            self.work, self.own = work, own
            made.append(own)

        def fit(self) -> None:
            if error is not None:
                raise RuntimeError(error)
            for rank in range(ranks)[::-1]:
                here.rank = rank
                self.work(self.own["train_loop_config"])

    torch_part.TorchTrainer = TorchTrainer  # type: ignore[attr-defined]
    sys.modules["ray"].train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.train", train)
    monkeypatch.setitem(sys.modules, "ray.train.torch", torch_part)
    return made


def test_one_training_on_several_workers_leaves_the_answer_of_the_first(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = with_train(monkeypatch, 2)
    calls: list[int] = []
    job = Job("train", lambda x: calls.append(x) or len(calls), 7)  # type: ignore[func-returns-value]
    assert train_workers(job, 2, storage=tmp_path) == 2  # rank 1 works first here, and writes nothing
    assert made[0]["scaling_config"] == {"num_workers": 2, "use_gpu": False}
    assert made[0]["run_config"] == {"name": "train", "storage_path": str(tmp_path.resolve())}
    with_train(monkeypatch, 0)
    with pytest.raises(InputError, match="job 'train' left no answer"):
        train_workers(job, 2, storage=tmp_path)  # what an earlier one left does not count
    for error, line in (("first\n  last line \n\n", "last line"), ("", "RuntimeError")):
        with_train(monkeypatch, 1, error)
        with pytest.raises(InputError, match=f"^job 'train': {line}$"):
            train_workers(job, 2, storage=tmp_path)


@pytest.mark.parametrize("gpus", [0, 1])
def test_items_on_ray_are_a_block_each_and_failures_are_counted(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    ray.gpus, seen = gpus, list[Any]()

    class Rows:
        def __init__(self, rows: list[Any]) -> None:
            self.rows = rows

        def map(self, task: Any, *, compute: int, **own: Any) -> Any:
            seen.append((compute, own))
            return SimpleNamespace(iter_rows=lambda: map(task, self.rows))

    data, context = ModuleType("ray.data"), SimpleNamespace(enable_progress_bars=True)
    data.DataContext = SimpleNamespace(get_current=lambda: context)  # type: ignore[attr-defined]
    data.TaskPoolStrategy = lambda size: size  # type: ignore[attr-defined]
    data.from_items = lambda rows, override_num_blocks: (seen.append(override_num_blocks), Rows(rows))[1]  # type: ignore[attr-defined]
    ray.data = data  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.data", data)
    done: list[int] = []
    map_items(done.append, [3, 1, 2], engine="ray", workers=2, what="squares")
    assert (done, seen) == ([3, 1, 2], [3, (2, {})])
    assert not context.enable_progress_bars
    scale._map_on_ray(done.append, [3], 5, "squares", gpu=True)
    assert seen[-1] == (1, {"num_gpus": 1} if gpus else {})
    odd = {1: "one", 3: "three"}

    def refuse_odd(x: int) -> None:
        if x in odd:
            raise InputError(odd[x])

    with pytest.raises(InputError, match=r"^three \(2 of 3 parts failed; the rest is kept, run it again\)$"):
        map_items(refuse_odd, [2, 3, 1], engine="ray", what="squares")
