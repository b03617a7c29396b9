"""Jobs in local processes: order, retries after a killed worker, bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from confide.checks import InputError
from confide.scale import Job, run_jobs


def square(x: int) -> int:
    return x**2


def dies_once(mark: Path) -> str:
    if not mark.exists():
        mark.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def refuses(mark: Path) -> None:
    mark.write_text(mark.read_text() + "x" if mark.exists() else "x")
    raise InputError("x must be positive, got -1")


def threads(_: None) -> tuple[int, str]:
    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def test_a_job_calls_its_function() -> None:
    assert Job("one", square, 5)() == 25


def test_names_must_differ() -> None:
    with pytest.raises(InputError, match="different names"):
        run_jobs([Job("a", square, 1), Job("a", square, 2)])


@pytest.mark.slow
def test_answers_come_in_order_and_a_killed_worker_is_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    jobs: list[Job[Any, Any]] = [Job(f"square{x}", square, x) for x in range(3)]
    jobs.append(Job("dies", dies_once, tmp_path / "mark"))
    answers = run_jobs(jobs, workers=2, on_done=lambda job, answer: told.append(job.name))
    assert answers == [0, 1, 4, "survived"]
    assert sorted(told) == ["dies", "square0", "square1", "square2"]


@pytest.mark.slow
def test_bad_input_is_not_tried_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(InputError, match="job 'bad': x must be positive"):
        run_jobs([Job("bad", refuses, mark)])
    assert mark.read_text() == "x"


@pytest.mark.slow
def test_local_workers_do_not_each_take_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert run_jobs([Job("half", threads, None)], workers=2) == [(1, "1")]
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run_jobs([Job("own", threads, None)], workers=2) == [(2, "2")]


PARENT = """
import os
import sys
import time
from pathlib import Path
from confide.scale import Job, run_jobs


def write_pid_and_wait(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)


if __name__ == "__main__":
    run_jobs([Job(name, write_pid_and_wait, sys.argv[1] + name) for name in "ab"], workers=2)
"""


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at /proc")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, end: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, script, f"{tmp_path}/pid-"], env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    )
    files = [tmp_path / f"pid-{name}" for name in "ab"]
    wait_until(lambda: all(file.exists() and bool(file.read_text()) for file in files), 120)
    parent.send_signal(end)
    parent.wait(timeout=30)
    wait_until(lambda: not any(is_alive(int(file.read_text())) for file in files), 20)


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)
