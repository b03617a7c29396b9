"""Mahalanobis distances of rows to fitted class Gaussians, by blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.gaussians import Projection
from confide.core.rows import block_rows, blocks, check_block, matrix_product

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]


class ClassGaussians(Protocol):
    """What distances need of class Gaussians, just fitted or from a file."""

    @property
    def counts(self) -> Labels:
        """Samples of every class in the fit."""

    @property
    def num_classes(self) -> int:
        """Classes, also those without samples."""

    @property
    def means(self) -> Float64:
        """Class means `c d`."""

    @property
    def intensity(self) -> tuple[float, float]:
        """Shrinkage of the covariances within the classes and in total; 0 = none."""

    def relative(self) -> Projection:
        """The projection in which MD - MD_agnostic is exact."""

    def whitening(self) -> Projection:
        """Every direction, for MD and MD_agnostic by themselves."""


def own_distances(
    gaussians: ClassGaussians, values: Any, labels: Labels, *, relative: bool, projection: Projection | None = None
) -> Float64:
    """MD (or MD - MD_agnostic) of every row to the Gaussian of its label."""
    projection = projection or (gaussians.relative() if relative else gaussians.whitening())
    means = gaussians.means
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
    """How every row fits the classes: nearest and likeliest class with their distances, and the agnostic distance."""

    nearest: Labels
    nearest_distance: Float64
    likeliest: Labels
    """Class of largest posterior: nearest after adding -2 log of the class's share."""
    likeliest_distance: Float64
    agnostic: Float64


def class_fit(gaussians: ClassGaussians, values: Any) -> ClassFit:
    """Distances of every row to all classes with samples, reduced block by block to what is kept."""
    shares = class_shares(gaussians)
    parts: list[tuple[Tensor, ...]] = []
    for _, table, agnostic in distance_tables(gaussians, values):
        low, nearest = table.min(dim=1)
        likeliest = (table - 2 * torch.log(torch.as_tensor(shares)).to(table)).argmin(dim=1)
        parts.append((nearest, low, likeliest, table.gather(1, likeliest[:, None]).squeeze(1), agnostic))
    columns = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
    near, likely, agnostic_all = (columns[i].astype(np.float64) for i in (1, 3, 4))
    return ClassFit(columns[0], near, columns[2], likely, agnostic_all)


def class_shares(gaussians: ClassGaussians) -> Float64:
    """Share of every class in the fit; a class without samples has 0."""
    shares: Float64 = gaussians.counts / gaussians.counts.sum()
    with np.errstate(divide="ignore"):
        return np.where(shares > 0, shares, np.finfo(np.float64).tiny)


def distance_tables(
    gaussians: ClassGaussians, values: Any, *, fitted_labels: Labels | None = None
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first row, MD to every class `n c`, MD_agnostic) by blocks; a class without samples is infinitely far.

    Args:
        fitted_labels: labels of rows that were themselves in the fit. Each row is then judged by the Gaussians of all
            the others: leaving it out changes mean and covariance by a rank-one term, so no refit is needed.
    """
    projection = gaussians.whitening()
    absent = torch.as_tensor(gaussians.counts == 0)
    for start, block in blocks(values, block_rows(values, max(int(values.shape[1]), gaussians.num_classes))):
        put = _Put(block)
        origin = put(projection.origin)
        lost = (origin.to(torch.float64).cpu().numpy() - projection.origin) @ projection.matrix
        rows = matrix_product(block - origin, put(projection.matrix)) + put(lost)
        if not bool(torch.isfinite(rows.sum())):
            check_block(block, start, int(values.shape[0]))
        centres = put(projection.centres)
        table = _squares(rows)[:, None] + _squares(centres) - 2 * matrix_product(rows, centres.T)
        table.clamp_min_(0)
        if fitted_labels is not None:
            own = torch.as_tensor(fitted_labels[start : start + len(rows)], device=rows.device)
            table = _left_out(table, centres, own, gaussians)
        table[:, absent.to(table.device)] = torch.inf
        yield start, table, _weighted_squares(rows, put(projection.inverse_total))


def _left_out(table: Tensor, centres: Tensor, own: Tensor, gaussians: ClassGaussians) -> Tensor:
    """Distances by the Gaussians without the row itself (Sherman-Morrison on n Sigma, and the moved class mean).

    With r = x - mu_y, c = n_y / (n_y - 1) and q = r' (n Sigma)^-1 r, the scatter without x is n Sigma - c r r'.
    """
    n = float(gaussians.counts.sum())
    counts = torch.as_tensor(gaussians.counts, device=table.device).to(table)[own]
    growth = (counts / (counts - 1).clamp_min(1)) * (1 - gaussians.intensity[0])
    to_own = table.gather(1, own[:, None]).squeeze(1)
    shrink = (1 - growth * to_own / n).clamp_min(1e-3)
    # r' Sigma^-1 (x - mu_k) from the three squared sides of the triangle x, mu_y, mu_k.
    between = _squares(centres)[own][:, None] + _squares(centres) - 2 * matrix_product(centres, centres.T)[own]
    cross = (to_own[:, None] + table - between) / 2
    scale = (n - 1) / n
    result = scale * (table + growth[:, None] * cross.square() / n / shrink[:, None])
    moved = (counts / (counts - 1).clamp_min(1)).square()
    left = scale * moved * to_own / shrink
    # The only sample of a class says nothing about that class once it is left out.
    left = torch.where(counts > 1, left, torch.full_like(left, torch.inf))
    return result.scatter(1, own[:, None], left[:, None])
