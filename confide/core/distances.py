"""Mahalanobis distances of rows to fitted class Gaussians, by blocks of bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.gaussians import Gaussians, Projection
from confide.core.rows import block_rows, blocks, check_block, matrix_product

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]


def own_distances(
    gaussians: Gaussians, values: Any, labels: Labels, *, relative: bool, projection: Projection | None = None
) -> Float64:
    """MD (or MD - MD_agnostic) of every row to the Gaussian of its label."""
    projection = projection or (gaussians.relative() if relative else gaussians.whitening())
    means = gaussians.moments.means
    result = np.empty(len(labels))
    put: _Put | None = None
    for start, block in blocks(values, block_rows(values, int(values.shape[1]))):
        if put is None:
            put = _Put(block)
            table, matrix, inverse = put(means), put(projection.matrix), put(projection.inverse_total)
            # Rows are centred by the class means as their dtype rounds them; the centres take the rest.
            lost = (table.to(torch.float64).cpu().numpy() - means) @ projection.matrix
            rest, centres = put(lost), put(projection.centres + lost)
        part = slice(start, start + len(block))
        wanted = torch.as_tensor(labels[part], device=block.device)
        rows = matrix_product(block - table[wanted], matrix)
        distance = _squares(rows + rest[wanted])
        if relative:
            rows += centres[wanted]
            distance = distance - _weighted_squares(rows, inverse)
        if not bool(torch.isfinite(distance.sum())):
            check_block(block, start, len(labels))
        result[part] = distance.cpu().numpy()
    return result


class _Put:
    """Puts float64 arrays where and as a block of rows is."""

    def __init__(self, block: Tensor) -> None:
        self.dtype, self.device = block.dtype, block.device

    def __call__(self, values: Any) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values), dtype=self.dtype, device=self.device)


def _squares(rows: Tensor) -> Tensor:
    # vecdot sums in pairs: in float32 a plain dot product of 768 squares loses a digit.
    squares: Tensor = torch.linalg.vecdot(rows, rows)
    return squares


def _weighted_squares(rows: Tensor, weights: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(rows, rows * weights)
    return squares


@dataclass(frozen=True, eq=False)
class ClassFit:
    """How every row fits the classes: nearest and runner-up class with their distances, and the agnostic distance."""

    nearest: Labels
    nearest_distance: Float64
    second: Labels
    second_distance: Float64
    likeliest: Labels
    """Class of largest posterior: nearest after adding -2 log of the class's share."""
    likeliest_distance: Float64
    agnostic: Float64


def class_fit(gaussians: Gaussians, values: Any) -> ClassFit:
    """Distances of every row to all classes with samples, reduced block by block to what is kept."""
    projection = gaussians.whitening()
    present = np.flatnonzero(gaussians.counts > 0)
    shares = -2 * np.log(gaussians.counts[present] / gaussians.counts.sum())
    parts: list[tuple[Tensor, ...]] = []
    for start, block in blocks(values, block_rows(values, max(int(values.shape[1]), len(present)))):
        put = _Put(block)
        origin, classes = put(projection.origin), torch.as_tensor(present, device=block.device)
        lost = (origin.to(torch.float64).cpu().numpy() - projection.origin) @ projection.matrix
        rows = matrix_product(block - origin, put(projection.matrix)) + put(lost)
        if not bool(torch.isfinite(rows.sum())):
            check_block(block, start, int(values.shape[0]))
        parts.append(_fit_of_block(rows, put(projection.centres[present]), classes, put(shares)))
        agnostic = _weighted_squares(rows, put(projection.inverse_total))
        parts[-1] = (*parts[-1], agnostic)
    columns = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
    near, far, likely, agnostic_all = (columns[i].astype(np.float64) for i in (1, 3, 5, 6))
    return ClassFit(columns[0], near, columns[2], far, columns[4], likely, agnostic_all)


def _fit_of_block(rows: Tensor, centres: Tensor, classes: Tensor, shares: Tensor) -> tuple[Tensor, ...]:
    table = _squares(rows)[:, None] + _squares(centres) - 2 * matrix_product(rows, centres.T)
    table.clamp_min_(0)
    low, place = table.topk(min(2, len(classes)), dim=1, largest=False)
    likeliest = (table + shares).argmin(dim=1)
    return (
        classes[place[:, 0]],
        low[:, 0],
        classes[place[:, -1]],
        low[:, -1],
        classes[likeliest],
        table.gather(1, likeliest[:, None]).squeeze(1),
    )
