"""Folds that stay with a sample: by a hash of its id, stratified by correctness."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, check_range
from confide.core.predictions import Predictions
from confide.core.records import Ids

Folds = NDArray[np.int64]
COPIES = "copy_of"
"""Column of predictions that tells copies of one sample: augmented inputs."""


def hash_of_ids(ids: Ids, seed: int = 0) -> NDArray[np.uint64]:
    """A 64-bit number per id that depends on nothing but the id and the seed."""
    salt = str(seed).encode()
    texts = (hashlib.blake2b(str(one).encode(), digest_size=8, key=salt).digest() for one in ids.tolist())
    return np.frombuffer(b"".join(texts), dtype="<u8").astype(np.uint64)


def stratified_folds(predictions: Predictions, folds: int, seed: int = 0) -> Folds:
    """Fold 0..folds-1 of every sample; right and wrong predictions are each spread evenly over the folds.

    Copies of one sample, which the column `copy_of` names, go to one fold: no copy is scored by what learned another.
    """
    check_range(folds, "folds", 2)
    correct = predictions.facts.correct.cpu().numpy()
    names, member = predictions.ids, np.arange(len(correct))
    if COPIES in predictions.columns:
        names, member = np.unique(predictions.columns[COPIES], return_inverse=True)
        correct = np.bincount(member, ~correct, len(names)) == 0
    if len(correct) < folds:
        raise InputError(f"folds must be at most the number of samples, {len(correct)}, got {folds}; take fewer")
    keys = hash_of_ids(names, seed)
    fold = np.empty(len(keys), dtype=np.int64)
    start = 0
    for rows in (np.flatnonzero(~correct), np.flatnonzero(correct)):
        order = rows[np.argsort(keys[rows], kind="stable")]
        # The second stratum goes on where the first stopped, so fold sizes differ by at most one.
        fold[order] = (start + np.arange(len(order))) % folds
        start += len(order)
    return fold[member]
