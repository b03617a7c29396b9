"""The GPU kernels of the losses, without a GPU: by Triton's interpreter, against what the CPU gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize(
    "script",
    ["interpreted.py few", "sample_facts_interpreted.py", pytest.param("interpreted.py", marks=pytest.mark.slow)],
)
def test_the_gpu_kernels_give_what_the_host_gives(script: str) -> None:
    pytest.importorskip("triton", reason="Triton's interpreter runs the kernels")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    name, *words = script.split()
    command = [sys.executable, Path(__file__).with_name(name), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith(" cases, 0 wrong\n")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("n", "classes", "stride"), [(3, 300, 300), (3, 301, 301), (2, 2501, 2501), (8, 2501, 2501), (4, 2504, 2560)]
)
def test_rows_are_read_in_chunks_that_begin_where_memory_allows(kind, n, classes, stride):
    """What an access of 16 bytes reads begins at a multiple of them and does not leave the tensor."""
    launch = pytest.importorskip("confide.simplex.launch", reason="Triton compiles the kernels")
    memory = torch.zeros(n * stride + 64, dtype=kind)
    first = (-memory.data_ptr() % 16) // memory.element_size()
    logits = memory[first : first + n * stride].view(n, stride)[:, :classes]
    block = launch.forward_tile(classes, logits.element_size(), apart=False, twice=False)[1]
    chunk, align, ragged = launch.alignment(logits, block)
    each = 16 // logits.element_size()
    starts = [row * stride for row in range(n)]
    assert chunk in (1, each)
    assert align in (1, chunk)
    # Whole chunks wherever they can be: rows begin at one, or are longer than a block and entered before their start.
    assert (chunk == each) == (all(start % each == 0 for start in starts) or classes > block)
    assert all((start - start % align) % chunk == 0 for start in starts)
    assert ragged == (align > 1 and (starts[-1] + classes) % each != 0)
    assert launch.alignment(memory[first + 1 : first + 1 + n * stride].view(n, stride), block) == (1, 1, False)
    assert launch.alignment(logits, 256) == (1, 1, False)


def test_pointers_that_begin_at_sixteen_bytes_are_told_apart():
    launch = pytest.importorskip("confide.simplex.launch", reason="Triton compiles the kernels")
    assert launch.aligned([32, None, 0, 4096]) is True
    assert launch.aligned([32, None, 8]) == (True, None, False)
