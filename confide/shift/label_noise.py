"""Labels of which some are wrong: any other class, or the class one takes it for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core import random
from confide.core.door import InputError, check_range
from confide.core.records import check_ids


def noisy_labels(
    labels: Any, rate: float, *, num_classes: int, ids: Any, seed: int = 0, confusion: Any = None
) -> NDArray[np.int64]:
    """Labels of which a share is replaced, drawn by seed and sample id; a higher rate keeps what a lower one changed.

    Args:
        rate: share of the labels to replace.
        confusion: `c c` counts or shares (row: true class, column: taken for); a wrong label is then drawn in
            proportion to its row. Without it every other class is as likely.
    """
    check_range(rate, "rate", 0, 1)
    true = np.asarray(labels)
    if true.ndim != 1 or true.dtype.kind not in "iu":
        raise InputError(f"labels must be n whole class indices, got shape {true.shape} of {true.dtype}")
    if len(true) and not (true.min() >= 0 and true.max() < num_classes):
        raise InputError(f"labels must lie in [0, {num_classes}), got {true.min()} to {true.max()}")
    draws = random.uniform(seed, random.sample_keys(check_ids(ids, len(true))), "label_noise", draws=2)
    shares = _shares(confusion, num_classes)
    wrong = (shares.cumsum(axis=1)[true] <= draws[:, 1:]).sum(axis=1).clip(0, num_classes - 1)
    return np.where(draws[:, 0] < rate, wrong, true).astype(np.int64)


def _shares(confusion: Any, num_classes: int) -> NDArray[np.float64]:
    """Chance of every wrong label, rows sum to 1; a class that nobody takes for another takes any."""
    if num_classes < 2:
        raise InputError(f"label noise needs at least two classes, got {num_classes}")
    table = np.ones((num_classes, num_classes)) if confusion is None else np.array(confusion, dtype=np.float64)
    if table.shape != (num_classes, num_classes) or not np.isfinite(table).all() or (table < 0).any():
        raise InputError(
            f"confusion must be {num_classes} x {num_classes} finite counts of 0 or more, got shape {table.shape}"
        )
    np.fill_diagonal(table, 0.0)
    empty = table.sum(axis=1) == 0
    table[empty] = 1.0
    np.fill_diagonal(table, 0.0)
    shares: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return shares
