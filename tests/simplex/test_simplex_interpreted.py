"""The GPU kernels of the losses, without a GPU: by Triton's interpreter, value and gradient against float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interpreted.py")


@pytest.mark.slow
def test_the_gpu_kernels_give_what_float64_gives() -> None:
    pytest.importorskip("triton", reason="Triton's interpreter runs the kernels")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith(" cases, 0 wrong\n")
