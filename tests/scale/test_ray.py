"""Jobs as Ray tasks, and one training over two Ray workers, on a local cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide.checks import InputError, MissingExtra
from confide.pipeline import run_training
from confide.scale import Job, run_jobs, train_workers
from confide.training import Settings, Trained
from confide.training.jobs import TrainingJob

try:
    import ray
except ImportError:
    ray = None


def square(x: int) -> int:
    return x**2


def refuses(_: None) -> None:
    raise InputError("x must be positive, got -1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    if ray is None:
        pytest.skip("ray is not installed")
    root = str(Path(__file__).parents[2])
    environment = {"env_vars": {"PYTHONPATH": ":".join([root, *sys.path]), "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


@pytest.mark.skipif(ray is not None, reason="ray is installed")
def test_without_ray_the_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"confide\[ray\]"):
        run_jobs([Job("one", square, 1)], engine="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tasks_answer_in_order_and_refuse_bad_input(cluster: None) -> None:
    jobs = [Job(f"square{x}", square, x) for x in range(4)]
    assert run_jobs(jobs, engine="ray", workers=2) == [0, 1, 4, 9]
    with pytest.raises(InputError, match=r"job 'bad': .*x must be positive"):
        run_jobs([Job("bad", refuses, None)], engine="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_workers_train_one_model(cluster: None, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = Settings(epochs=1, model_options={"width": 4, "hidden": 8}, batch_size=1000, device="cpu")
    job = Job("two", lambda job: run_training(job).as_dict(), TrainingJob("fashion-sample", settings, out))
    answer = train_workers(job, 2, storage=tmp_path / "ray")
    assert answer["members"][0]["train_loss"] < 3
    assert Trained.load(out).identity.processes == 2
