"""How the Triton kernels of `simplex` cut up the logits, as measured on an H200."""

from __future__ import annotations

import triton
from torch import Tensor

IN_TURN = {2: (4, 3), 4: (1, 1)}
"""Rows in turn and stages of their loading, by bytes of a logit: rows of 4-byte logits keep the memory busy anyway."""


def forward_tile(num_classes: int, bytes_each: int, apart: bool, twice: bool) -> tuple[int, int, int, int, int]:
    """Rows, columns, rows in turn, warps and stages of a forward program.

    `apart` asks for one row at a time, `twice` says that long rows are read again.
    """
    block = min(triton.next_power_of_2(num_classes), 2048)
    if block <= 256:
        return max(1, min(512 // block, 32)), block, 1, 1, 1
    if block <= 1024:
        group, stages = (1, 1) if apart else IN_TURN[min(bytes_each, 4)]
        return 1, block, group, 1, stages
    if twice and bytes_each == 4:
        return 1, 4096, 1, 8, 1
    return 1, block, 1, 4, 1


def backward_tile(num_classes: int, bytes_each: int) -> tuple[int, int, int]:
    """Rows, columns and warps of a backward program."""
    block = min(triton.next_power_of_2(num_classes), 2048)
    if block <= 256:
        return max(1, min(1024 // block, 32)), block, 2
    if block <= 1024:
        return 1, block, 1 if bytes_each == 2 else 2
    return 1, block, 4


def alignment(logits: Tensor, block: int) -> tuple[int, int, bool]:
    """How rows lie in memory: logits read at once, how far before its first logit a row may be entered, ragged end.

    16 bytes at once where every row begins at a multiple of them, or where it is long enough to be entered at the
    multiple before it. An end is ragged where the last row would be read past it that way.
    """
    n, num_classes = logits.shape
    stride, chunk = logits.stride(0), 16 // logits.element_size()
    if block <= 256 or logits.data_ptr() % 16:
        return 1, 1, False
    if stride % chunk == 0:
        return chunk, 1, False
    if num_classes <= block:
        return 1, 1, False
    return chunk, chunk, ((n - 1) * stride + num_classes) % chunk != 0
