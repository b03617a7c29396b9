"""Jobs in local processes: order, retries after a killed worker, bad input."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from confide.checks import InputError
from confide.scale import Job, call_job, run_jobs

HERE = "tests.scale.test_jobs"


def square(payload: dict[str, Any]) -> int:
    return int(payload["x"]) ** 2


def dies_once(payload: dict[str, Any]) -> str:
    mark = Path(payload["mark"])
    if not mark.exists():
        mark.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def refuses(payload: dict[str, Any]) -> None:
    Path(payload["mark"]).write_text(Path(payload["mark"]).read_text() + "x" if Path(payload["mark"]).exists() else "x")
    raise InputError("x must be positive, got -1")


def test_a_job_is_called_by_name() -> None:
    assert call_job(Job("one", "tests.scale.test_jobs:square", {"x": 5})) == 25


def test_names_must_differ() -> None:
    with pytest.raises(InputError, match="different names"):
        run_jobs([Job("a", f"{HERE}:square"), Job("a", f"{HERE}:square")])


@pytest.mark.slow
def test_answers_come_in_order_and_a_killed_worker_is_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    jobs = [Job(f"square{x}", f"{HERE}:square", {"x": x}) for x in range(3)]
    jobs.append(Job("dies", f"{HERE}:dies_once", {"mark": str(tmp_path / "mark")}))
    answers = run_jobs(jobs, workers=2, on_done=lambda job, answer: told.append(job.name))
    assert answers == [0, 1, 4, "survived"]
    assert sorted(told) == ["dies", "square0", "square1", "square2"]


@pytest.mark.slow
def test_bad_input_is_not_tried_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(InputError, match="job 'bad': x must be positive"):
        run_jobs([Job("bad", f"{HERE}:refuses", {"mark": str(mark)})])
    assert mark.read_text() == "x"
