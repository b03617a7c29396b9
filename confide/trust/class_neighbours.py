"""The k-th nearest point of every class: block products choose it, differences measure it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.core.neighbours import Indices, Rows, smallest_of_rows


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
