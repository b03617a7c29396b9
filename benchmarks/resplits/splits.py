"""One partition of all 60,000 images into six folds; five of them are the disjoint test sets of five seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.findings.folds import joined
from confide import Dataset, Split, data, random

FOLDS = 6
SEEDS = (0, 1, 2, 3, 4)
VAL_SHARE = 0.1
"""Of what is not test: 5,000 of 50,000 images."""
Rows = NDArray[np.intp]


def open_pool(path: str, limit: int = 0) -> tuple[Dataset, Split]:
    """The dataset as published, and all its images as one split, in an order that depends on nothing."""
    dataset = data.load_dataset(path, seed=0)
    pool = dataset.train
    for part in (dataset.val, dataset.test):
        pool = joined(pool, part)
    order = np.argsort(pool.ids, kind="stable")
    return dataset, pool.take(order[:limit] if limit else order)


def rows_by_split(pool: Split, seed: int) -> dict[str, Rows]:
    """Rows of the pool that are train, val and test of a seed; every class has its share in each."""
    fold = random.folds(pool.ids, pool.labels, FOLDS, seed=0, purpose="re-splits")
    test, rest = np.flatnonzero(fold == seed), np.flatnonzero(fold != seed)
    parts = random.split(pool.ids[rest], pool.labels[rest], {"val": VAL_SHARE}, seed=seed, purpose="re-splits")
    return {"train": rest[parts["train"]], "val": rest[parts["val"]], "test": test}


def resplit(dataset: Dataset, pool: Split, seed: int) -> Dataset:
    """The dataset of a seed."""
    return replace(dataset, splits={name: pool.take(rows) for name, rows in rows_by_split(pool, seed).items()})
