"""Launches of the Triton kernels: their tiles as measured on an H200, compiled kernels kept, and what to ask of
them.

Triton's own launch binds and hashes some forty arguments on every call, which takes longer than the kernels themselves
at small sizes. A compiled kernel is given addresses, not tensors: for those the launcher would ask the driver about
each.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from confide.simplex import row_sums as parts
from confide.simplex.gradient import GradientLayout
from confide.simplex.kernels import backward_kernel, forward_kernel
from confide.simplex.reference import STATISTICS, accumulator, device_flag

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


Constants = dict[str, int | bool | Any]
COMPILED: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
MOST_COMPILED = 4096


def aligned(pointers: Sequence[int | None]) -> bool | tuple[bool | None, ...]:
    """True if all begin at a multiple of 16 bytes, else which do: they compile to other code."""
    if functools.reduce(operator.or_, (pointer or 0 for pointer in pointers)) % 16 == 0:
        return True
    return tuple(None if pointer is None else pointer % 16 == 0 for pointer in pointers)


def compile_and_launch(
    key: Any, function: Any, args: tuple[Any, ...], grid: tuple[int, int, int], constants: Constants, warps: int
) -> None:
    """Launch by Triton's own way, and keep the compiled kernel for the next call like this one."""
    compiled = function[grid](*args, **constants, num_warps=warps)
    if compiled is not None and hasattr(compiled, "__getitem__"):
        if len(COMPILED) >= MOST_COMPILED:
            COMPILED.clear()
        COMPILED[key] = (compiled[grid], tuple(constants.values()))


def launch_over_samples(
    function: Any,
    tensors: tuple[Tensor, ...],
    n: int,
    numbers: tuple[float, ...],
    constants: Constants,
    warps: int,
) -> None:
    """A kernel over vectors of n samples; its arguments are tensors, n, numbers that change no code, constants."""
    pointers = [tensor.data_ptr() for tensor in tensors]
    first = tensors[0]
    key = (function, n, *constants.values(), first.dtype, first.device, aligned(pointers))
    compiled = COMPILED.get(key)
    if compiled is None:
        grid = (triton.cdiv(n, constants["BLOCK"]), 1, 1)
        compile_and_launch(key, function, (*tensors, n, *numbers), grid, constants, warps)
    else:
        compiled[0](*pointers, n, *numbers, *compiled[1])


ROW_NAMES = (*(name for name in STATISTICS if name != "prediction"), "count")
"""What the forward kernel stores, in the order of its rows."""
FORMULAS = {
    "cross_entropy": (parts.LINEAR, parts.NO_TERM, 0),
    "entropy": (parts.LINEAR, parts.ENTROPY, 0),
    "mean_log_p": (parts.LINEAR, parts.MEAN, 0),
    "poly": (parts.LINEAR, parts.POLY, 0),
    "brier": (parts.LINEAR, parts.BRIER, 0),
    "norm": (parts.LINEAR, parts.NORM, 0),
    "excess": (parts.LINEAR, parts.EXCESS, 0),
    "focal": (parts.POWER, 0, parts.FOCAL),
    "inverse": (parts.POWER, 0, parts.INVERSE),
    "dual": (parts.POWER, 0, parts.DUAL),
    "dual_released": (parts.POWER, 0, parts.RELEASED),
    "flsd53": (parts.POWER, 0, parts.STEPS),
    "gammas": (parts.TABLE, 0, parts.GAMMAS),
    "accuracies": (parts.TABLE, 0, parts.SAMPLED),
}
POINTED = ("excess", "dual", "dual_released")
_PLACE, _SECOND, _BELOW, _EXCESS = (
    bit.value for bit in (parts.WITH_PLACE, parts.WITH_SECOND, parts.WITH_BELOW, parts.WITH_EXCESS)
)
_BITS = {
    "entropy": parts.WITH_ENTROPY.value,
    "sum_squares": parts.WITH_SQUARES.value,
    "brier": parts.WITH_SQUARES.value,
    "mean_log_p": parts.WITH_MEAN.value,
    "p_max": _PLACE,
    "prediction": _PLACE,
    "p_other": _PLACE,
    "dual": _PLACE,
    "p_second": _PLACE | _SECOND,
    "p_below": _BELOW,
    "dual_released": _BELOW,
    "excess": _PLACE | _EXCESS,
}
"""What the forward kernel must find for a statistic, or for a formula."""


class Formula(NamedTuple):
    """Which loss the forward kernel ends in (a name of FORMULAS), or the statistics where there is no name."""

    name: str = ""
    order: int = 0
    detach: bool = False
    bins: int = 0
    want: frozenset[str] = frozenset()


_LAYOUTS = {
    "entropy": GradientLayout(scale=2, label=3, slope=4),
    "mean_log_p": GradientLayout(scale=2, label=3, constant=4),
    "brier": GradientLayout(scale=2, label=3, square=4),
    "excess": GradientLayout(scale=2, label=3, excess=4, points=1, first_point=5),
    "dual": GradientLayout(scale=2, label=3, points=1, first_point=4),
    "dual_released": GradientLayout(scale=2, label=3, points=1, first_point=4),
}
_PLAIN_LAYOUT = GradientLayout(scale=2, label=3)
_NORM_LAYOUTS = {1: GradientLayout(scale=2, label=3, absolute=4), 2: GradientLayout(scale=2, label=3, linear=4)}


def layout_of(formula: Formula) -> GradientLayout:
    """Where the forward kernel leaves the terms of a fused formula."""
    if formula.name == "norm":
        return _NORM_LAYOUTS[formula.order]
    return _LAYOUTS.get(formula.name, _PLAIN_LAYOUT)


def _elsewhere(logits: Tensor) -> bool:
    """Whether the logits are on another GPU than the current one, where Triton would launch."""
    return logits.is_cuda and logits.device.index != torch.cuda.current_device()


def forward(
    logits: Tensor,
    labels: Tensor | None,
    formula: Formula,
    numbers: tuple[float, float, float],
    vector: Tensor | None = None,
    table: Tensor | None = None,
    spare: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """(statistics or values, rows for the backward and `spare` more, indices); numbers: a, b, margin."""
    if _elsewhere(logits):
        with torch.cuda.device(logits.device):
            return forward(logits, labels, formula, numbers, vector, table, spare)
    n, num_classes = logits.shape
    device, acc = logits.device, accumulator(logits.dtype)
    whole = not formula.name
    out = torch.empty((len(ROW_NAMES), n) if whole else (n,), dtype=acc, device=device)
    rows = torch.empty((2 + spare if whole else 6, n), dtype=acc, device=device)
    # A formula without points has no indices, and any tensor may stand for them.
    pointed = whole or formula.name in POINTED
    index = torch.empty((4 if whole else 1, n), dtype=torch.int64, device=device) if pointed else rows
    if n == 0:
        return out, rows, index
    tensors = (logits, labels, out, rows, index, device_flag(device), vector, table)
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    kinds = (None if vector is None else vector.dtype, None if table is None else table.dtype)
    key = (n, num_classes, logits.stride(0), logits.dtype, device, formula, kinds, aligned(pointers))
    compiled = COMPILED.get(key)
    if compiled is None:
        constants = _forward_constants(logits, labels, formula, vector, table, acc)
        compile_and_launch(key, forward_kernel, (*tensors, n, *numbers), *constants)
    else:
        compiled[0](*pointers, n, *numbers, *compiled[1])
    return out, rows, index


def _forward_constants(
    logits: Tensor,
    labels: Tensor | None,
    formula: Formula,
    vector: Tensor | None,
    table: Tensor | None,
    acc: torch.dtype,
) -> tuple[tuple[int, int, int], Constants, int]:
    """Grid, compile-time arguments and warps."""
    n, num_classes = logits.shape
    kind, term, mode = FORMULAS.get(formula.name, (parts.STATISTICS, 0, 0))
    want, name = formula.want, formula.name
    bits = functools.reduce(operator.or_, (_BITS.get(word, 0) for word in (name, *want)), 0)
    apart, twice = bool(bits & (_SECOND | _BELOW)), bool(bits & _EXCESS)
    tile_rows, block, group, warps, stages = forward_tile(num_classes, logits.element_size(), apart, twice)
    chunk, align, ragged = alignment(logits, block)
    constants = {
        "FORMULA": kind,
        "TERM": term,
        "MODE": mode,
        "BINS": formula.bins,
        "BINS_BLOCK": triton.next_power_of_2(max(formula.bins, 2)),
        "HAS_LABELS": labels is not None,
        "HAS_VECTOR": vector is not None,
        "HAS_TABLE": table is not None,
        "DETACH": formula.detach,
        "WANT": bits,
        "ORDER": formula.order,
        "ACC": tl.float64 if acc == torch.float64 else tl.float32,
        "TINY": torch.finfo(acc).tiny,
        "ROWS": tile_rows,
        "BLOCK": block,
        "GROUP": group,
        "CHUNK": chunk,
        "ALIGN": align,
        "RAGGED": ragged,
        "STAGES": stages,
        "num_classes": num_classes,
        "stride": logits.stride(0),
    }
    return (triton.cdiv(n, tile_rows * group), 1, 1), constants, warps


def backward(
    logits: Tensor,
    labels: Tensor | None,
    grad: Tensor | None,
    rows: Tensor,
    index: Tensor,
    layout: GradientLayout,
    margin: float,
    shared: bool = False,
) -> Tensor:
    """The gradient of the logits from the terms in `rows`, times `grad` where it is given.

    Args:
        grad: one number per row, or one that is `shared` by all of them equally, as that of a mean is.
    """
    if _elsewhere(logits):
        with torch.cuda.device(logits.device):
            return backward(logits, labels, grad, rows, index, layout, margin, shared)
    n, num_classes = logits.shape
    out = torch.empty((n, num_classes), dtype=logits.dtype, device=logits.device)
    if n == 0:
        return out
    stride, grad_stride = logits.stride(0), 0 if grad is None or shared else grad.stride(0)
    tensors = (logits, labels, grad, rows, index, out)
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    kind = None if grad is None else grad.dtype
    # A grad of stride 0 or 1 compiles to other code than any other.
    key = (n, num_classes, stride, grad_stride, logits.dtype, logits.device, layout, kind, shared, aligned(pointers))
    compiled = COMPILED.get(key)
    if compiled is None:
        constants = _backward_constants(logits, layout, grad is not None, shared, rows.dtype)
        compile_and_launch(key, backward_kernel, (*tensors, n, grad_stride, margin), *constants)
    else:
        compiled[0](*pointers, n, grad_stride, margin, *compiled[1])
    return out


def _backward_constants(
    logits: Tensor, layout: GradientLayout, has_grad: bool, shared: bool, acc: torch.dtype
) -> tuple[tuple[int, int, int], Constants, int]:
    """Grid, compile-time arguments and warps."""
    n, num_classes = logits.shape
    tile_rows, block, warps = backward_tile(num_classes, logits.element_size())
    chunk, align, ragged = alignment(logits, block)
    if logits.stride(0) != num_classes:
        align = 1  # the gradient is contiguous, so its rows begin elsewhere in their chunks
    constants = {
        "HAS_GRAD": has_grad,
        "SHARED": shared,
        **{name.upper(): row for name, row in layout._asdict().items()},
        "ACC": tl.float64 if acc == torch.float64 else tl.float32,
        "ROWS": tile_rows,
        "BLOCK": block,
        "CHUNK": chunk,
        "ALIGN": align,
        "RAGGED": ragged,
        "num_classes": num_classes,
        "stride": logits.stride(0),
    }
    return (triton.cdiv(n, tile_rows), triton.cdiv(num_classes + align - 1, block), 1), constants, warps
