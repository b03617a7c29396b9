"""The k-th nearest point of every class: block products choose it, differences measure it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
"""n d, float32 or float64."""
Indices = NDArray[np.int64]

GROUP = 32


def smallest_of_rows(table: Rows, k: int) -> Indices:
    """Column numbers of the k smallest values of every row, in no order.

    The k smallest lie in the k groups of columns with the smallest minima, and minima cost one pass of memory.
    """
    n, width = table.shape
    if k >= width:
        return np.broadcast_to(np.arange(width), (n, width)).astype(np.int64)
    if k == 1:
        return np.asarray(table.argmin(axis=1)[:, None], dtype=np.int64)
    groups = width // GROUP
    if groups <= 2 * k:
        return np.argpartition(table, k - 1, axis=1)[:, :k]
    body = groups * GROUP
    # Group g holds the columns g, g + groups, g + 2 groups, ...: the reduction runs over contiguous memory.
    minima = table[:, :body].reshape(n, GROUP, groups).min(axis=1)
    chosen = np.argpartition(minima, k - 1, axis=1)[:, :k]
    columns = (chosen[:, :, None] + groups * np.arange(GROUP)).reshape(n, -1)
    columns = np.concatenate([columns, np.broadcast_to(np.arange(body, width), (n, width - body))], axis=1)
    values = np.take_along_axis(table, columns, axis=1)
    return np.take_along_axis(columns, np.argpartition(values, k - 1, axis=1)[:, :k], axis=1)


def pair_distances(rows: Rows, points: Rows, indices: Indices) -> Rows:
    """Euclidean distance of every row to the point named for it, from differences: near-duplicates too."""
    difference = rows - points[indices]
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", difference, difference)), dtype=points.dtype)


def kth_of_classes(
    block: Rows, points: Rows, squares: Rows, centres: Rows, bounds: NDArray[np.int64], k: int
) -> tuple[Rows, Indices]:
    """Squared distance and row number of every class's k-th nearest point; points are less the centre of their class.

    Both are `n classes`; a class with fewer points gives its farthest, one without any is infinitely far. From the
    centre of its own class a row is not far, so that the products keep the digits that tell its neighbours apart.
    """
    classes, n = len(bounds) - 1, np.arange(len(block))
    far = np.full((len(block), classes), np.inf, dtype=block.dtype)
    place = np.zeros((len(block), classes), dtype=np.int64)
    for c in np.flatnonzero(np.diff(bounds)):
        low, high = bounds[c], bounds[c + 1]
        rows = block - centres[c]
        table = rows @ points[low:high].T
        table *= -2
        table += squares[low:high]
        columns = smallest_of_rows(table, min(k, high - low))
        values = np.take_along_axis(table, columns, axis=1)
        last = values.argmax(axis=1)
        far[:, c] = values[n, last] + np.einsum("nd,nd->n", rows, rows)
        place[:, c] = low + columns[n, last]
    return far, place
