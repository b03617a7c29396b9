"""Compiled Triton kernels, kept under the few things that decide which one it is.

Triton's own launch binds and hashes some forty arguments on every call, which takes longer than the kernels themselves
at small sizes. A kept kernel is given addresses, not tensors: for those the launcher would ask the driver about each.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from torch import Tensor

KEPT: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
MOST = 4096


def aligned(pointers: Sequence[int | None]) -> bool | tuple[bool | None, ...]:
    """True if all begin at a multiple of 16 bytes, else which do: they compile to other code."""
    if functools.reduce(operator.or_, (pointer or 0 for pointer in pointers)) % 16 == 0:
        return True
    return tuple(None if pointer is None else pointer % 16 == 0 for pointer in pointers)


def keep(
    key: Any, function: Any, args: tuple[Any, ...], grid: tuple[int, int, int], constants: dict[str, Any], warps: int
) -> None:
    """Launch by Triton's own way, and keep the compiled kernel for the next call like this one."""
    compiled = function[grid](*args, **constants, num_warps=warps)
    if compiled is not None and hasattr(compiled, "__getitem__"):
        if len(KEPT) >= MOST:
            KEPT.clear()
        KEPT[key] = (compiled[grid], tuple(constants.values()))


def launch(
    function: Any,
    blocks: int,
    tensors: tuple[Tensor, ...],
    n: int,
    numbers: tuple[float, ...],
    constants: dict[str, Any],
    warps: int,
) -> None:
    """A kernel over vectors of n samples; its arguments are tensors, n, numbers that change no code, constants."""
    pointers = [tensor.data_ptr() for tensor in tensors]
    first = tensors[0]
    key = (id(function), n, *constants.values(), first.dtype, first.device, aligned(pointers))
    kept = KEPT.get(key)
    if kept is None:
        keep(key, function, (*tensors, n, *numbers), (blocks, 1, 1), constants, warps)
    else:
        kept[0](*pointers, n, *numbers, *kept[1])
