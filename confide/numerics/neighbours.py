"""Nearest neighbours, exact Euclidean, and nearest centres: by matrix products in bounded memory.

Squared distances of a block come from one product, |a - b|^2 = |a|^2 + |b|^2 - 2 a.b; they only choose the neighbours,
whose distances are then computed directly, without the cancellation of that formula. Where its rounding may have hidden
a nearer point, as in tight clusters far from each other, all points that it may concern are compared directly.

Where faiss is installed it chooses the candidates of large searches in float32; the neighbours are the same.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import DISTANCE_BYTES
from confide.checks import InputError, check_choice, check_range
from confide.numerics.blocks import allowed_threads, blocks, cache_rows, check_block, matrix_product
from confide.types import Floats, Indices

Rows: TypeAlias = NDArray[Any]
"""n d, floating."""
CENTRE_ROWS = 4096
GROUP_COLUMNS = 32
"""Columns of which one minimum stands for all in the choice of the smallest."""


def nearest_neighbours(queries: Any, points: Any, k: int = 1, *, exclude_self: bool = False) -> tuple[Rows, Indices]:
    """Distances and rows `n k` of the k nearest points of every query, nearest first; equals go by row number.

    Args:
        exclude_self: the queries are the points, and row i is no neighbour of itself.
    """
    rows, table = np.asarray(queries), np.asarray(points)
    rows = rows.astype(table.dtype, copy=False)
    count = len(table) - int(exclude_self)
    check_range(k, "k", 1)
    if k > count:
        raise InputError(f"k must be at most the {count} points there are, got {k}; ask for fewer neighbours")
    # Any point in their middle does: the mean of some thousand.
    centre = table[:: max(1, len(table) // CENTRE_ROWS)].mean(axis=0, dtype=np.float64).astype(table.dtype)
    centred, squares = centred_squares(table, centre)
    itself = np.arange(len(rows)) if exclude_self else np.full(len(rows), -1)
    if by_faiss(len(rows), centred) and np.isfinite(squares.sum(dtype=np.float64)):
        return _faiss_neighbours(rows, table, centre, centred, squares, itself, k)
    return _neighbours_by_products(rows, table, centre, centred, squares, itself, k)


def _neighbours_by_products(
    rows: Rows, table: Rows, centre: Rows, centred: Rows, squares: Rows, itself: Indices, k: int
) -> tuple[Rows, Indices]:
    """Neighbours but for the row `itself`, where that is not -1."""
    height = int(np.clip(DISTANCE_BYTES // (table.itemsize * len(table)), 16, 4096))
    distances = np.empty((len(rows), k), dtype=table.dtype)
    indices = np.empty((len(rows), k), dtype=np.int64)
    for start in range(0, len(rows), height):
        part = slice(start, start + height)
        block = (rows[part] - centre) @ centred.T
        block *= -2
        block += squares
        alone = np.flatnonzero(itself[part] >= 0)
        block[alone, itself[part][alone]] = np.inf
        candidates = np.sort(smallest_of_rows(block, k), axis=1)
        distances[part], indices[part] = _nearest_first(rows[part], table, candidates)
        within = _rounding_reach(rows[part] - centre, squares, distances[part, -1])
        for row in np.flatnonzero(np.count_nonzero(block <= within[:, None], axis=1) > k):
            near = np.flatnonzero(block[row] <= within[row])
            every = pair_distances(np.broadcast_to(rows[start + row], table[near].shape), table, near[:, None])[:, 0]
            chosen = np.argsort(every, kind="stable")[:k]
            distances[start + row], indices[start + row] = every[chosen], near[chosen]
    return distances, indices


def _nearest_first(rows: Rows, table: Rows, candidates: Indices) -> tuple[Rows, Indices]:
    """Exact distances to candidates in the order of their numbers, nearest first."""
    exact = pair_distances(rows, table, candidates)
    order = np.argsort(exact, axis=1, kind="stable")
    return np.take_along_axis(exact, order, axis=1), np.take_along_axis(candidates, order, axis=1)


# faiss, where it is installed.

FAISS_WORK = 1 << 26
"""Below so many products (queries x points x columns) loading faiss would take longer than the search."""
SPARE_CANDIDATES = 4
"""Candidates beyond those asked for: a gap behind the last neighbour shows that rounding has hidden none."""


@cache
def faiss() -> Any:
    """The package, or None where it is not installed."""
    if find_spec("faiss") is None:
        return None
    import faiss as package

    return package


def by_faiss(queries: int, points: Rows) -> bool:
    """Whether faiss does such a search: a large one in float32."""
    return points.dtype == np.float32 and queries * points.size >= FAISS_WORK and faiss() is not None


def faiss_search(rows: Rows, points: Rows, k: int) -> tuple[Rows, Indices]:
    """Squared distances and numbers of the k nearest points, as faiss rounds them."""
    faiss().omp_set_num_threads(allowed_threads())
    squared, candidates = faiss().knn(np.ascontiguousarray(rows, dtype=np.float32), np.ascontiguousarray(points), k)
    return np.asarray(squared), np.asarray(candidates, dtype=np.int64)


def _faiss_neighbours(
    rows: Rows, table: Rows, centre: Rows, centred: Rows, squares: Rows, itself: Indices, k: int
) -> tuple[Rows, Indices]:
    """The same by faiss; rows for which its rounding leaves a doubt go the other way."""
    shifted = rows - centre
    count = min(k + int((itself >= 0).any()) + SPARE_CANDIDATES, len(table))
    squared, candidates = faiss_search(shifted, centred, count)
    last = squared[:, -1].astype(np.float64)
    distances, indices = _nearest_first(rows, table, np.sort(candidates, axis=1))
    own = indices == itself[:, None]
    if own.any():
        # A row's own place goes to the end, behind all others.
        order = np.argsort(own, axis=1, kind="stable")
        distances, indices = (np.take_along_axis(v, order, axis=1) for v in (distances, indices))
    distances, indices = distances[:, :k].copy(), indices[:, :k].copy()
    lengths = np.einsum("nd,nd->n", shifted, shifted, dtype=np.float64)
    within = _rounding_reach(shifted, squares, distances[:, -1]) + lengths
    doubtful = np.flatnonzero((last <= within) & (distances[:, -1] > 0)) if count < len(table) else np.zeros(0, int)
    if len(doubtful):
        distances[doubtful], indices[doubtful] = _neighbours_by_products(
            rows[doubtful], table, centre, centred, squares, itself[doubtful], k
        )
    return distances, indices


def closest_points(rows: Tensor, points: Tensor) -> Indices:
    """Number of the nearest point of every row: argmax of x.c - ||c||^2 / 2, which has the order of -||x - c||^2."""
    if rows.device.type == "cpu" and by_faiss(len(rows), points.numpy()):
        candidates = faiss_search(rows.numpy(), points.numpy(), 1)[1][:, 0]
        if (candidates >= 0).all():  # NaN has no nearest point; the caller finds it
            return candidates
    table = matrix_product(rows, points.T)
    table -= points.square().sum(dim=1) / 2
    # numpy's argmax is the faster one on a CPU.
    nearest = table.numpy().argmax(axis=1) if table.device.type == "cpu" else table.argmax(dim=1).cpu().numpy()
    return np.asarray(nearest, dtype=np.int64)


def _rounding_reach(queries: Rows, squares: Rows, furthest: Rows) -> Rows:
    """Up to which |b|^2 - 2 a.b a point may be nearer than the k-th found, for all that rounding does to that sum."""
    own = np.einsum("nd,nd->n", queries, queries, dtype=np.float64)
    # Errors of a sum of d products of random sign grow as the root of d.
    rounding = (4 + np.sqrt(queries.shape[1])) * np.finfo(squares.dtype).eps * (own + float(squares.max()))
    reach = (furthest.astype(np.float64) ** 2 - own + rounding).astype(squares.dtype)
    # Nothing is nearer than a twin.
    return np.asarray(np.where(furthest > 0, reach, -np.inf), dtype=squares.dtype)


def centred_squares(points: Rows, centre: Rows) -> tuple[Rows, Rows]:
    """Points minus the centre, and their squared lengths: centring keeps the product's cancellation small."""
    centred = points - centre
    return centred, np.einsum("nd,nd->n", centred, centred)


def smallest_of_rows(table: Rows, k: int) -> Indices:
    """Column numbers of the k smallest values of every row, in no order.

    The k smallest lie in the k groups of columns with the smallest minima, and minima cost one pass of memory.
    """
    n, width = table.shape
    if k >= width:
        return np.broadcast_to(np.arange(width), (n, width)).astype(np.int64)
    if k == 1:
        return np.asarray(table.argmin(axis=1)[:, None], dtype=np.int64)
    groups = width // GROUP_COLUMNS
    if groups <= 2 * k:
        return np.argpartition(table, k - 1, axis=1)[:, :k]
    body = groups * GROUP_COLUMNS
    # Group g holds the columns g, g + groups, g + 2 groups, ...: the reduction runs over contiguous memory.
    minima = table[:, :body].reshape(n, GROUP_COLUMNS, groups).min(axis=1)
    chosen = np.argpartition(minima, k - 1, axis=1)[:, :k]
    columns = (chosen[:, :, None] + groups * np.arange(GROUP_COLUMNS)).reshape(n, -1)
    columns = np.concatenate([columns, np.broadcast_to(np.arange(body, width), (n, width - body))], axis=1)
    values = np.take_along_axis(table, columns, axis=1)
    return np.take_along_axis(columns, np.argpartition(values, k - 1, axis=1)[:, :k], axis=1)


def pair_distances(rows: Rows, points: Rows, indices: Indices) -> Rows:
    """Distance of row i to the points `indices[i]`, computed directly."""
    result = np.empty(indices.shape, dtype=rows.dtype)
    for column in range(indices.shape[1]):
        gap = rows - points[indices[:, column]]
        result[:, column] = np.sqrt(np.einsum("nd,nd->n", gap, gap))
    return result


# Distances to a few centres by blocks: one matrix product per block, bounded memory.


class UnitRows:
    """Rows scaled to length one, slice by slice; a zero row stays zero."""

    def __init__(self, values: Any) -> None:
        self.values, self.shape = values, values.shape
        self.dtype = values.dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Tensor:
        part = self.values[rows]
        block = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        return unit(block if block.dtype == torch.float64 else block.to(torch.float32))


def unit(rows: Tensor) -> Tensor:
    """Rows divided by their lengths."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny)


def nearest_centre(values: Any, centres: Any, *, distance: str = "l2") -> tuple[Floats, Indices]:
    """Distance to the nearest centre and its index, for every row; "cosine" is 1 - cos."""
    check_choice(distance, ("l2", "cosine"), "distance")
    n = int(values.shape[0])
    index = np.empty(n, dtype=np.int64)
    result = np.empty(n)
    for start, block in blocks(values, cache_rows(values, max(int(values.shape[1]), len(centres)))):
        table = _centres_like(centres, block)
        rows, points = (unit(block), unit(table)) if distance == "cosine" else (block, table)
        part = slice(start, start + len(block))
        index[part] = closest_points(rows, points)
        nearest = torch.as_tensor(index[part], device=points.device)
        result[part] = _centre_distances(rows, points[nearest], distance).cpu().numpy()
        if not np.isfinite(result[part]).all():
            check_block(block, start, n)
    return result, index


def distances_to(values: Any, centres: Any, which: Indices, *, distance: str = "l2") -> Floats:
    """Distance of every row to the centre that `which` names for it."""
    check_choice(distance, ("l2", "cosine"), "distance")
    n = int(values.shape[0])
    result = np.empty(n)
    # Three passes over a block and its centres: few rows stay near the processor.
    size = max(64, cache_rows(values, int(values.shape[1])) // 4)
    points: Tensor | None = None
    for start, block in blocks(values, size):
        if points is None:
            points = _centres_like(centres, block)
            points = unit(points) if distance == "cosine" else points
        part = slice(start, start + len(block))
        chosen = points[torch.as_tensor(which[part], device=block.device)]
        result[part] = _centre_distances(unit(block) if distance == "cosine" else block, chosen, distance).cpu().numpy()
        if not np.isfinite(result[part]).all():
            check_block(block, start, n)
    return result


def _centres_like(centres: Any, block: Tensor) -> Tensor:
    return torch.as_tensor(centres, dtype=block.dtype, device=block.device)


def _centre_distances(rows: Tensor, points: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return 1 - torch.einsum("nd,nd->n", rows, points)
    length: Tensor = torch.linalg.vector_norm(rows - points, dim=1)
    return length
