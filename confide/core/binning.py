"""Which bin a confidence falls into; nobody else knows.

Bins are (low, high] and the first also holds 0; `closed="left"` gives [low, high) and the last also holds 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.core.door import check_choice, check_range

Array = NDArray[np.floating]
Indices = NDArray[np.intp]


def width_edges(bins: int) -> NDArray[np.float64]:
    """Edges of equal-width bins on [0, 1]."""
    check_range(bins, "bins", 1)
    return np.linspace(0.0, 1.0, bins + 1)


def bin_of(values: Array, edges: Array, closed: str = "right") -> Indices:
    """Index of the bin of every value, by comparison with the edges; values outside fall into the end bins."""
    check_choice(closed, ("right", "left"), "closed")
    # searchsorted on the inner edges: side="left" counts edges < value, so a value on an edge stays below it.
    # Edges in the dtype of the values: a float32 confidence of 0.6 lies on the edge 9/15, not above it.
    kind = np.asarray(values).dtype
    inner = edges[1:-1].astype(kind) if kind.kind == "f" else edges[1:-1]
    return np.searchsorted(inner, values, side="left" if closed == "right" else "right")


def mass_bin_of_rank(n: int, bins: int) -> Indices:
    """Bin of the i-th smallest of n values in equal-mass bins by rank: floor(i * bins / n)."""
    check_range(bins, "bins", 1)
    return (np.arange(n, dtype=np.int64) * bins // max(n, 1)).astype(np.intp)


def mass_starts(n: int, bins: int) -> Indices:
    """First rank of every equal-mass bin and n at the end: bin b holds ranks ceil(b n / bins) up to the next."""
    check_range(bins, "bins", 1)
    return (-(-np.arange(bins + 1, dtype=np.int64) * n // bins)).astype(np.intp)
