"""The GPU kernels of the losses, without a GPU: by Triton's interpreter, against what the CPU gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("script", ["interpreted.py", "sample_facts_interpreted.py"])
def test_the_gpu_kernels_give_what_the_host_gives(script: str) -> None:
    pytest.importorskip("triton", reason="Triton's interpreter runs the kernels")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith(" cases, 0 wrong\n")
