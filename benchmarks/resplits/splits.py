"""Which images are train, val and test of a seed: re-splits whose test sets are disjoint, or the split as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.findings.folds import joined
from confide import Dataset, Split, data, random

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Plan:
    """How a dataset is cut.

    Args:
        title: what tables call it.
        seeds: one training a seed.
        folds: of one partition of the pool, of which fold s is the test of seed s; 0: test is the published one.
        pools_test: the published test images are part of the pool.
        val_share: of what is not test.
        rename: of the dataset's published splits.
        thinning: one in so many training images is kept for judging, so that a file can be carried.
    """

    title: str
    seeds: tuple[int, ...]
    folds: int = 0
    pools_test: bool = True
    val_share: float = 0.1
    rename: Mapping[str, str] | None = None
    thinning: int = 1


RESPLITS = "resplits"
PLANS = {
    RESPLITS: Plan("re-splits", (0, 1, 2, 3, 4), folds=6),
    "official": Plan("official split", (0, 1, 2)),
    # Its published validation images were shrunk by another filter than the training images: they stay out.
    "tiny32": Plan(*("Tiny-ImageNet-32", (0, 1, 2), 10, False, 1 / 18), rename={"val": "test"}, thinning=5),
}
"""Of CIFAR-10: 10,000 images are test, 5,000 of the others val; of Tiny-ImageNet-32's 100,000 training images too."""
SEEDS = PLANS[RESPLITS].seeds


def open_pool(path: str, plan: Plan = PLANS[RESPLITS], limit: int = 0) -> tuple[Dataset, Split]:
    """The dataset as published, and the images that are cut as one split, in an order that depends on nothing."""
    dataset = data.load_dataset(path, seed=0, rename=plan.rename)
    pool = joined(dataset.train, dataset.val)
    if plan.pools_test:
        pool = joined(pool, dataset.test)
    order = np.argsort(pool.ids, kind="stable")
    if limit:
        order = order[np.linspace(0, len(order) - 1, min(limit, len(order))).astype(np.int64)]
    return dataset, pool.take(order)


def rows_by_split(opened: tuple[Dataset, Split], seed: int, plan: Plan = PLANS[RESPLITS]) -> dict[str, Rows]:
    """Rows of the pool that are train, val and test of a seed; every class has its share in each."""
    dataset, pool = opened
    if plan.folds:
        is_test = random.folds(pool.ids, pool.labels, plan.folds, seed=0, purpose="re-splits") == seed
    else:
        is_test = np.isin(pool.ids, dataset.test.ids)
    test, rest = np.flatnonzero(is_test), np.flatnonzero(~is_test)
    parts = random.split(pool.ids[rest], pool.labels[rest], {"val": plan.val_share}, seed=seed, purpose="re-splits")
    return {"train": rest[parts["train"]], "val": rest[parts["val"]], "test": test}


def resplit(opened: tuple[Dataset, Split], seed: int, plan: Plan = PLANS[RESPLITS]) -> Dataset:
    """The dataset of a seed."""
    dataset, pool = opened
    return replace(dataset, splits={name: pool.take(rows) for name, rows in rows_by_split(opened, seed, plan).items()})
