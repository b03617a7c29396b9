"""Near-duplicates: samples whose features point the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.centres import unit
from confide.core.rows import matrix_product, working_block

CHUNK = 1024


def distinct_rows(values: Any, order: NDArray[np.integer], wanted: int, similarity: float) -> NDArray[np.int64]:
    """The first `wanted` rows of `order` of which no two have a cosine of `similarity` or more; earlier ones win."""
    kept: list[int] = []
    chosen = torch.empty(0, int(values.shape[1]))
    for start in range(0, len(order), CHUNK):
        here = np.asarray(order[start : start + CHUNK], dtype=np.int64)
        rows = unit(working_block(values[torch.as_tensor(here) if isinstance(values, torch.Tensor) else here]).cpu())
        free = np.ones(len(here), dtype=bool)
        if len(chosen):
            free = matrix_product(rows, chosen.to(rows).T).max(dim=1).values.numpy() < similarity
        among = matrix_product(rows, rows.T).numpy() >= similarity
        for i in range(len(here)):
            if free[i] and len(kept) < wanted:
                kept.append(int(here[i]))
                free[i + 1 :] &= ~among[i, i + 1 :]
            else:
                free[i] = False
        chosen = torch.cat([chosen.to(rows), rows[torch.from_numpy(free)]])
        if len(kept) >= wanted:
            break
    return np.asarray(kept, dtype=np.int64)
