"""Folders of shards by several workers: the numbers of one process, whoever works and whoever dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import confide
from confide.cli.main import main
from confide.pipeline import SketchJob, Workers, shards, sketch_files

try:
    import ray
except ImportError:
    ray = None

HERE = str(Path(__file__).parents[2])


def predictions(n: int, seed: int = 0, split: str | None = None) -> confide.Predictions:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, 5))
    labels = (np.cumsum(np.exp(logits), 1) < rng.random((n, 1)) * np.exp(logits).sum(1, keepdims=True)).sum(1)
    return confide.Predictions((1.4 * logits).astype(np.float32), labels, split=split)


def saved_shards(folder: Path, record: confide.Predictions, parts: int) -> Path:
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(record)), parts)):
        record.take(rows).save(folder / f"{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    if ray is None:
        pytest.skip("ray is not installed")
    environment = {"env_vars": {"PYTHONPATH": ":".join([HERE, *sys.path]), "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


def values(evaluation: confide.Evaluation) -> list[float]:
    rows = [(m.value, m.low, m.high) for m in evaluation.measurements]
    return np.array(rows).reshape(-1).tolist()


def killed_once(job: SketchJob) -> str:
    """Counts, but the first process that gets any job is killed by a signal on its way."""
    mark = Path(job.target + ".tried")
    if not mark.exists():
        mark.parent.mkdir(exist_ok=True)
        mark.write_text("", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)
    return sketch_files(job)


def worker_dies(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch, engine: str, exact: bool) -> None:
    plain = confide.pipeline.evaluate_folder(folder, out / "a", exact=exact, rows=700)
    monkeypatch.setattr(shards, "sketch_files", killed_once)
    killed = confide.pipeline.evaluate_folder(folder, out / "b", exact=exact, rows=700, engine=engine, workers=2)
    assert len(list((out / "b").glob("*.tried"))) == len(list(folder.iterdir()))
    assert np.array_equal(values(plain), values(killed), equal_nan=True)


@pytest.mark.slow
def test_a_killed_process_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved_shards(tmp_path / "shards", predictions(2000), 2)  # a process each, killed once
    worker_dies(folder, tmp_path, monkeypatch, "local", exact=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_of_ray_changes_no_number(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved_shards(tmp_path / "shards", predictions(2000), 4)
    worker_dies(folder, tmp_path, monkeypatch, "ray", exact=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_evaluate_calibrate_sets_and_score_run_on_ray(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    val, test = predictions(1500, 0, "val"), predictions(1200, 1)
    saved_shards(tmp_path / "val", val, 3)
    saved_shards(tmp_path / "test", test, 3)
    ray_flags = ["--engine", "ray", "--workers", "2"]

    assert main(["evaluate", "test", "--exact", *ray_flags, "--out", "e"]) == 0
    evaluation, whole = confide.Evaluation.load("e/evaluation.json"), confide.evaluate(test, score="msp")
    for word in ("accuracy", "nll", "brier", "ece", "auroc", "aurc", "aupr_error", "fpr95"):
        assert evaluation.value(word) == pytest.approx(whole.value(word, group=None), abs=1e-9)

    call = ["calibrate", "--fit", "val", "--apply", "test", "--methods", "temperature", "--exact"]
    assert main([*call, *ray_flags, "--save", "t.json", "--out", "calibrated"]) == 0
    best = confide.calibrators.fit("temperature", val)
    found = confide.calibrators.load("t.json")
    assert found.temperature == pytest.approx(best.temperature, rel=1e-6)
    moved = confide.Predictions.load("calibrated/1.parquet")
    assert moved.logits.numpy() == pytest.approx(found(test).logits[400:800].numpy(), rel=1e-6)

    assert main(["sets", "--fit", "val", "--apply", "test", *ray_flags, "--save", "s.json", "--out", "sets"]) == 0
    fitted = confide.sets.load("s.json")
    work = Workers(tmp_path / "parts", "ray", 2)
    counted = confide.pipeline.sets_of_folder(fitted, "test", work=work)
    assert counted.groups == confide.sets.measure(confide.sets.fit("lac", val), test).groups
    assert len(list(Path("sets").glob("*.parquet"))) == 3

    rng = np.random.default_rng(0)
    Path("features").mkdir()
    for k in range(2):
        columns = {"features": rng.normal(size=(60, 3)).astype(np.float32), "label": np.arange(60) % 2}
        confide.files.write_table(f"features/{k}.parquet", columns)
    assert main(["score", "features", *ray_flags, "-o", "scores"]) == 0
    assert sum(len(confide.files.read_table(p)[0]["score"]) for p in Path("scores").rglob("*.parquet")) == 120
