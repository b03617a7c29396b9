"""Stratified splits by seed: every class keeps its share, and a sample's place depends on seed and id alone."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.records import Ids, Split


def draw_order(ids: Ids, seed: int) -> NDArray[np.intp]:
    """Samples in an order drawn by seed and id: neither the order of files nor other samples change it."""
    keys = np.array(
        [
            int.from_bytes(hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest(), "big")
            for name in ids.tolist()
        ],
        dtype=np.uint64,
    )
    return np.argsort(keys, kind="stable")


def class_shares(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """How many of each class: fraction * count, rounded by largest remainder so that the total is right."""
    wanted: NDArray[np.floating[Any]] = counts * fraction
    # A whole share such as 0.29 * 100 comes out as 28.999999999999996: the nudge keeps it whole.
    shares: NDArray[np.int64] = np.floor(wanted + 1e-9).astype(np.int64)
    missing = max(round(float(wanted.sum())) - int(shares.sum()), 0)
    shares[np.argsort(shares - wanted, kind="stable")[:missing]] += 1
    return shares


def stratified_rows(
    labels: NDArray[np.int64], ids: Ids, num_classes: int, fractions: dict[str, float], seed: int
) -> dict[str, NDArray[np.intp]]:
    """Rows of each named split, and of `train` for the rest; rows stay in their order.

    Unless a split takes everything, one sample of every class stays in `train`.
    """
    counts = np.bincount(labels, minlength=num_classes)
    order = draw_order(ids, seed)
    by_class = order[np.argsort(labels[order], kind="stable")]
    place = np.empty(len(labels), dtype=np.int64)  # rank of a sample within its class
    place[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.zeros(num_classes, dtype=np.int64)
    everything = sum(fractions.values()) > 1 - 1e-9
    rows: dict[str, NDArray[np.intp]] = {}
    for name, fraction in fractions.items():
        limit = counts if everything else np.maximum(counts - 1, 0)
        end = np.minimum(begin + class_shares(counts, fraction), limit)
        rows[name] = np.flatnonzero((place >= begin[labels]) & (place < end[labels]))
        begin = end
    rows["train"] = np.flatnonzero(place >= begin[labels])
    return rows


def cut(split: Split, num_classes: int, fractions: dict[str, float], seed: int) -> dict[str, Split]:
    """The split in pieces by name; a piece of fraction 0, and a `train` of which nothing is left, are not made."""
    wanted = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    rows = stratified_rows(split.labels, split.ids, num_classes, wanted, seed)
    if sum(wanted.values()) > 1 - 1e-9:
        del rows["train"]
    return {name: split.take(chosen) for name, chosen in rows.items()}
