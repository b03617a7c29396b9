"""Streamed, mergeable first and second moments by class: what every Gaussian fit needs, at any size.

Products are taken in the dtype of the rows after centring by pilot class means (those of a small sample), and added
up in float64: neither an offset nor well separated classes cost digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.dense import HOST
from confide.core.door import InputError
from confide.core.rows import block_rows, blocks, check_block, matrix_product, working_block

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]
PRODUCT_ROWS = 2048
"""Rows of one product on a CPU (16 times that on a GPU): few enough for float32 sums, enough for full speed."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts n_k, sums of (x - pilot_k) and the scatter of all rows about their class's pilot."""

    pilots: Float64
    counts: Labels
    sums: Float64
    scatter: Float64
    precision: float  # machine epsilon of the products
    device: str = HOST  # where the rows were, and d x d matrices are factored

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def dim(self) -> int:
        return int(self.pilots.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def mean(self) -> Float64:
        """Mean of all rows."""
        mean: Float64 = (self.sums + self.counts[:, None] * self.pilots).sum(axis=0) / max(self.n, 1)
        return mean

    @property
    def means(self) -> Float64:
        """Class means; a class without samples has the overall mean."""
        means = self.pilots + self.sums / np.maximum(self.counts, 1)[:, None]
        return np.where((self.counts > 0)[:, None], means, self.mean)

    def between_factor(self) -> Float64:
        """K x d factor F of the between-class covariance F'F: rows sqrt(n_k / n) (mu_k - mu)."""
        factor: Float64 = np.sqrt(self.counts / self.n)[:, None] * (self.means - self.mean)
        return factor

    def within(self) -> Float64:
        """Biased covariance of the rows about their class means."""
        residue = self.sums / np.sqrt(np.maximum(self.counts, 1))[:, None]
        covariance: Float64 = (self.scatter - residue.T @ residue) / self.n
        return covariance

    def total(self, within: Float64 | None = None) -> Float64:
        """Biased covariance of all rows about their mean: within plus between."""
        factor = self.between_factor()
        covariance: Float64 = (self.within() if within is None else within) + factor.T @ factor
        return covariance

    def about(self, pilots: Float64) -> Moments:
        """The same moments about other pilots."""
        move = self.pilots - pilots
        cross = self.sums.T @ move
        scatter = self.scatter + cross + cross.T + (self.counts[:, None] * move).T @ move
        return replace(self, pilots=pilots, sums=self.sums + self.counts[:, None] * move, scatter=scatter)

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of rows together; the order of merging does not matter beyond rounding."""
        if self.dim != other.dim:
            raise InputError(f"moments must have one width to be merged, got {self.dim} and {other.dim} columns")
        classes = max(self.num_classes, other.num_classes)
        left, right = _grown(self, classes), _grown(other, classes)
        right = right if np.array_equal(left.pilots, right.pilots) else right.about(left.pilots)
        return replace(
            left,
            counts=left.counts + right.counts,
            sums=left.sums + right.sums,
            scatter=left.scatter + right.scatter,
            precision=max(left.precision, right.precision),
        )


def _grown(moments: Moments, classes: int) -> Moments:
    extra = classes - moments.num_classes
    if not extra:
        return moments
    empty = np.zeros((extra, moments.dim))
    return replace(
        moments,
        pilots=np.concatenate([moments.pilots, empty]),
        counts=np.concatenate([moments.counts, np.zeros(extra, dtype=np.int64)]),
        sums=np.concatenate([moments.sums, empty]),
    )


def pilot_means(values: Any, labels: Labels, num_classes: int) -> Float64:
    """Class means of about eight evenly spaced rows per class; a class not met there has the sample's mean."""
    n = int(values.shape[0])
    chosen = np.unique(np.linspace(0, max(n - 1, 0), min(n, max(1024, 8 * num_classes))).astype(np.int64))
    if not n:
        raise InputError("features must have at least one row, got none; give samples to fit on")
    rows = working_block(values[torch.as_tensor(chosen) if isinstance(values, Tensor) else chosen])
    rows = torch.nan_to_num(rows, posinf=0.0, neginf=0.0)
    found = torch.as_tensor(labels[chosen], device=rows.device)
    sums = rows.new_zeros(num_classes, rows.shape[1]).index_add_(0, found, rows)
    counts = torch.bincount(found, minlength=num_classes)[:, None]
    means = torch.where(counts > 0, sums / counts.clamp_min(1), rows.mean(dim=0))
    # Kept in the dtype of the rows: what is subtracted from them is then exactly the pilot.
    return means.to(torch.float64).cpu().numpy().astype(np.float64)


def moments_of(values: Any, labels: Labels, num_classes: int, pilots: Float64 | None = None) -> Moments:
    """Moments of rows `n d` with class indices, one pass by blocks; extra memory does not grow with n.

    Args:
        pilots: class centres of the products, from `pilot_means`; sets of moments that share them merge exactly.
    """
    n, dim = int(values.shape[0]), int(values.shape[1])
    pilots = pilot_means(values, labels, num_classes) if pilots is None else pilots
    sums, scatter, table = torch.empty(0), torch.empty(0), torch.empty(0)
    precision = 0.0
    for start, block in blocks(values, product_rows(values, dim)):
        if not precision:
            precision = float(torch.finfo(block.dtype).eps)
            table = torch.as_tensor(pilots, dtype=block.dtype, device=block.device)
            sums = torch.zeros(num_classes, dim, dtype=torch.float64, device=block.device)
            scatter = torch.zeros(dim, dim, dtype=torch.float64, device=block.device)
        here = torch.as_tensor(labels[start : start + len(block)], device=block.device)
        centred = block - table[here]
        part, block_sums = _sums_by_class(centred, here, num_classes)
        if not bool(torch.isfinite(block_sums.sum())):
            check_block(block, start, n)
        sums[part] += block_sums
        scatter += matrix_product(centred.T, centred)
    if not bool(torch.isfinite(scatter).all()):
        raise InputError("features must be small enough to be squared in their dtype, got overflow; rescale them")
    counts = np.bincount(labels, minlength=num_classes).astype(np.int64)
    found = (one.cpu().numpy() for one in (table.to(torch.float64), sums, scatter))
    pilots, sums_found, scatter_found = found
    return Moments(pilots, counts, sums_found, scatter_found, precision, str(scatter.device))


def _sums_by_class(rows: Tensor, labels: Tensor, num_classes: int) -> tuple[Any, Tensor]:
    """(which classes, sums of their rows): those met on a CPU, where a block is small; all on a GPU, without a wait."""
    if rows.device.type != "cpu":
        return slice(None), rows.new_zeros(num_classes, rows.shape[1]).index_add_(0, labels, rows)
    part, place = torch.unique(labels, return_inverse=True)
    return part, rows.new_zeros(len(part), rows.shape[1]).index_add_(0, place, rows)


def product_rows(values: Any, dim: int) -> int:
    """Rows of one block of products, where the values live."""
    on_device = isinstance(values, Tensor) and values.device.type != "cpu"
    return min(block_rows(values, dim), 16 * PRODUCT_ROWS if on_device else PRODUCT_ROWS)


def fourth_moment(values: Any, labels: Labels | None, centres: Float64) -> float:
    """Mean of ||x - centre||^4 over the rows; the centre is that of the row's class, or the only one there is."""
    n, total = int(values.shape[0]), 0.0
    for start, block in blocks(values, block_rows(values, int(values.shape[1]))):
        wide = block.to(torch.float64)
        table = torch.as_tensor(centres, device=wide.device)
        centre = table[0]
        if labels is not None:
            centre = table[torch.as_tensor(labels[start : start + len(block)], device=wide.device)]
        total += float((wide - centre).square().sum(dim=1).square().sum())
    return total / max(n, 1)


def class_means(values: Any, labels: Labels, num_classes: int) -> tuple[Float64, Labels]:
    """Class means `c d` and counts, one pass; a class without samples has mean 0."""
    counts = np.bincount(labels, minlength=num_classes).astype(np.int64)
    sums = np.zeros((num_classes, int(values.shape[1])))
    for start, block in blocks(values, product_rows(values, int(values.shape[1]))):
        check_block(block, start, int(values.shape[0]))
        here = torch.as_tensor(labels[start : start + len(block)], device=block.device)
        part, block_sums = _sums_by_class(block, here, num_classes)
        sums[part if isinstance(part, slice) else part.numpy()] += block_sums.to(torch.float64).cpu().numpy()
    return sums / np.maximum(counts, 1)[:, None], counts
