"""kill -9 of a run at random moments, and resumption to the same numbers."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow


def command(out):
    return [sys.executable, "-m", "confide", "demo", "--out", str(out), "--epochs", "2", "--quiet"]


def numbers(out):
    evaluation = json.loads((out / "evaluation.json").read_text())
    return evaluation["measurements"], evaluation["comparisons"]


@pytest.mark.timeout(900)
def test_a_run_killed_at_five_random_moments_ends_with_the_same_numbers(tmp_path):
    started = time.monotonic()
    subprocess.run(command(tmp_path / "whole"), check=True, timeout=600, capture_output=True)
    whole = time.monotonic() - started
    chance = random.Random(20261115)
    killed = 0
    for _ in range(5):
        process = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(0.1, 0.8) * whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)
            killed += 1
    assert killed >= 1
    subprocess.run(command(tmp_path / "killed"), check=True, timeout=600, capture_output=True)
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob(".*.part"))
