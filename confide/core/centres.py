"""Distances to a few centres by blocks: one matrix product per block, bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.door import check_choice
from confide.core.rows import blocks, cache_rows, check_block, matrix_product

Float64 = NDArray[np.float64]
Indices = NDArray[np.int64]


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


def nearest_centre(values: Any, centres: Any, *, distance: str = "l2") -> tuple[Float64, Indices]:
    """Distance to the nearest centre and its index, for every row; "cosine" is 1 - cos."""
    check_choice(distance, ("l2", "cosine"), "distance")
    n = int(values.shape[0])
    index = np.empty(n, dtype=np.int64)
    result = np.empty(n)
    for start, block in blocks(values, cache_rows(values, max(int(values.shape[1]), len(centres)))):
        table = _on(centres, block)
        rows, points = (unit(block), unit(table)) if distance == "cosine" else (block, table)
        found = _closest(rows, points)
        part = slice(start, start + len(block))
        index[part] = found.cpu().numpy()
        result[part] = _between(rows, points[found], distance).cpu().numpy()
        if not np.isfinite(result[part]).all():
            check_block(block, start, n)
    return result, index


def distances_to(values: Any, centres: Any, which: Indices, *, distance: str = "l2") -> Float64:
    """Distance of every row to the centre that `which` names for it."""
    check_choice(distance, ("l2", "cosine"), "distance")
    n = int(values.shape[0])
    result = np.empty(n)
    # Three passes over a block and its centres: few rows stay near the processor.
    size = max(64, cache_rows(values, int(values.shape[1])) // 4)
    points: Tensor | None = None
    for start, block in blocks(values, size):
        if points is None:
            points = _on(centres, block)
            points = unit(points) if distance == "cosine" else points
        part = slice(start, start + len(block))
        chosen = points[torch.as_tensor(which[part], device=block.device)]
        result[part] = _between(unit(block) if distance == "cosine" else block, chosen, distance).cpu().numpy()
        if not np.isfinite(result[part]).all():
            check_block(block, start, n)
    return result


def _on(centres: Any, block: Tensor) -> Tensor:
    return torch.as_tensor(centres, dtype=block.dtype, device=block.device)


def _closest(rows: Tensor, points: Tensor) -> Tensor:
    """Index of the nearest point: argmax of x.c - ||c||^2 / 2, which has the order of -||x - c||^2."""
    table = matrix_product(rows, points.T)
    table -= points.square().sum(dim=1) / 2
    # numpy's argmax is the faster one on a CPU.
    return torch.from_numpy(table.numpy().argmax(axis=1)) if table.device.type == "cpu" else table.argmax(dim=1)


def _between(rows: Tensor, points: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return 1 - torch.einsum("nd,nd->n", rows, points)
    length: Tensor = torch.linalg.vector_norm(rows - points, dim=1)
    return length
