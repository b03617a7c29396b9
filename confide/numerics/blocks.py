"""Rows in blocks of bounded memory over arrays, tensors, memory maps and shards, flags of a block, factors of d x d
matrices on the device where the rows were, and threads for small blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED, DEVICE_MEMORY, MEMORY, rows_in
from confide.checks import InputError
from confide.types import Floats

T = TypeVar("T")
U = TypeVar("U")

# Rows of features in blocks: one way to walk over arrays, tensors, memory maps and shards with bounded memory.


def block_rows(values: Any, width: int) -> int:
    """How many rows of `width` elements fit into one block of working memory, where the values live."""
    on_device = isinstance(values, Tensor) and values.device.type != "cpu"
    return max(64, rows_in(DEVICE_MEMORY if on_device else MEMORY, width))


def cache_rows(values: Any, width: int) -> int:
    """Rows of a block that several passes go over: on a CPU few enough to stay in its cache."""
    rows = block_rows(values, width)
    on_device = isinstance(values, Tensor) and values.device.type != "cpu"
    return rows if on_device else max(64, min(rows, rows_in(CACHED, width)))


def blocks(values: Any, rows: int) -> Iterator[tuple[int, Tensor]]:
    """(first row, block) over anything sliced by rows; float64 stays float64, everything else becomes float32."""
    for start in range(0, int(values.shape[0]), rows):
        yield start, working_block(values[start : start + rows], start)


def working_block(part: Any, start: int = 0) -> Tensor:
    """One slice of rows as a floating tensor, float64 or float32."""
    try:
        block = part if isinstance(part, Tensor) else torch.from_numpy(_writable(np.asarray(part)))
    except (TypeError, OSError) as error:
        raise InputError(f"features from row {start} on must be readable numbers, but: {error}") from None
    return block if block.dtype == torch.float64 else block.to(torch.float32)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    # A read-only memory map cannot become a tensor without a warning; one block is copied, never the file.
    return array if array.flags.writeable and array.flags.c_contiguous else np.array(array, order="C")


def matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right; on a CPU by numpy, whose products are the faster ones (and X'X costs half)."""
    if left.device.type != "cpu":
        return left @ right
    # Overflow and NaN are looked for in the result, with a message that names the sample.
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))


def check_block(block: Tensor, start: int, n: int) -> None:
    """Refuse NaN and infinity, naming the first row by its number in the whole."""
    finite = torch.isfinite(block).all(dim=1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        bad = block[row][~torch.isfinite(block[row])][0]
        raise InputError(
            f"features must be finite, got {float(bad)} at sample {start + row} of {n}; "
            "drop that sample or mend the extractor that made it"
        )


# Factors of d x d matrices in float64, where the rows were: a host can take longer for one than a GPU for all rows.

HOST = "cpu"


def cholesky(matrix: Floats, device: str = HOST) -> Floats | None:
    """Lower factor L of L L', or None where the matrix is not positive definite."""
    if device == HOST:
        from scipy import linalg

        try:
            return np.asarray(linalg.cholesky(matrix, lower=True))
        except linalg.LinAlgError:
            return None
    factor, failed = torch.linalg.cholesky_ex(_to_device(matrix, device))
    return None if int(failed) else _to_numpy(factor)


def solve_lower(factor: Floats, columns: Floats, *, transposed: bool = False, device: str = HOST) -> Floats:
    """L^-1 columns, or L'^-1 columns."""
    if device == HOST:
        from scipy import linalg

        return np.asarray(linalg.solve_triangular(factor, columns, lower=True, trans="T" if transposed else "N"))
    left = _to_device(factor, device)
    return _to_numpy(
        torch.linalg.solve_triangular(left.T if transposed else left, _to_device(columns, device), upper=transposed)
    )


def eigh(matrix: Floats, device: str = HOST) -> tuple[Floats, Floats]:
    """Eigenvalues, rising, and eigenvectors of a symmetric matrix."""
    if device == HOST:
        from scipy import linalg

        values, vectors = linalg.eigh(matrix)
        return values, vectors
    decomposition = torch.linalg.eigh(_to_device(matrix, device))
    return _to_numpy(decomposition.eigenvalues), _to_numpy(decomposition.eigenvectors)


def _to_device(matrix: Any, device: str) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(matrix), dtype=torch.float64, device=device)


def _to_numpy(tensor: Tensor) -> Floats:
    return tensor.cpu().numpy()


# Flags of a block: numpy finds and counts them one by one.


def places_of(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """np.flatnonzero of a contiguous array, quicker for few flags: those of eight at a time are looked for first."""
    flat = flags.reshape(-1)
    eights = flat[: len(flat) // 8 * 8].view(np.uint64)
    held = np.flatnonzero(eights != 0)
    if 2 * len(held) > len(eights):
        return np.flatnonzero(flat)
    inner = np.flatnonzero(eights[held].view(np.bool_))
    rest = 8 * len(eights) + np.flatnonzero(flat[8 * len(eights) :])
    return np.concatenate(((held[inner >> 3] << 3) + (inner & 7), rest))


def row_counts(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many flags each row has; np.count_nonzero adds in 64 bits, which takes four times as long."""
    narrow = np.uint16 if flags.shape[1] < 1 << 16 else np.int64
    return np.asarray(flags.view(np.uint8).sum(axis=1, dtype=narrow), dtype=np.int64)


# Small blocks in one thread: handing 64k elements out costs more than computing them, on a busy machine far more.

_THREADS_BEFORE: ContextVar[int | None] = ContextVar("threads before `one_thread`", default=None)


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """torch computes in the calling thread; the number of threads is put back afterwards."""
    before = torch.get_num_threads()
    token = _THREADS_BEFORE.set(_THREADS_BEFORE.get() or before)
    torch.set_num_threads(1 if when else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _THREADS_BEFORE.reset(token)


PART_ELEMENTS = 1 << 21
"""Elements of a part that is worth a thread of its own."""


def in_threads(work: Callable[[U], T], items: Iterable[U], when: bool = True) -> list[T]:
    """What the work gives of every item, in as many threads as torch has, where that is worth it.

    In these threads torch computes alone, and so must the work: a BLAS of numpy's has threads of its own, and they and
    these would wait for each other.
    """
    if not when or allowed_threads() < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(allowed_threads(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(work, items))


def in_parts(work: Callable[[slice], T], n: int, width: int, step: int) -> list[T]:
    """What the work gives of all rows at once, or of as many parts of them as torch has threads (`in_threads`).

    Parts begin at multiples of `step`, the rows of a block, so that blocks and what they give are the same for any
    number of threads.
    """
    count = min(allowed_threads(), n * width // PART_ELEMENTS)
    if count < 2:
        with one_thread():
            return [work(slice(0, n))]
    edges = [*(n * k // count // step * step for k in range(count)), n]
    return in_threads(work, map(slice, edges[:-1], edges[1:]))


def allowed_threads() -> int:
    """How many threads torch had before `one_thread`, for work that hands out large parts itself."""
    return _THREADS_BEFORE.get() or torch.get_num_threads()
