"""Class Gaussians with one shared covariance: streamed moments, shrinkage, the fit, and Mahalanobis distances.

Moments are mergeable; products are taken in the dtype of the rows after centring by pilot class means and added up in
float64: neither an offset nor well separated classes cost digits. With Sigma = L L' within the classes, rows times
L^-T are white. The total covariance differs from Sigma by the between-class part of rank at most K - 1, so MD -
MD_agnostic lives in the span of the whitened class means: one projection to min(d, K) columns serves both distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from torch import Tensor

from confide.block_sizes import PRODUCT_ROWS
from confide.checks import InputError, check_choice, check_number
from confide.numerics.blocks import (
    HOST,
    block_rows,
    blocks,
    check_block,
    cholesky,
    eigh,
    matrix_product,
    solve_lower,
    working_block,
)
from confide.types import ClassIndices, Floats


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts n_k, sums of (x - pilot_k) and the scatter of all rows about their class's pilot."""

    pilots: Floats
    counts: ClassIndices
    sums: Floats
    scatter: Floats
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
    def mean(self) -> Floats:
        """Mean of all rows."""
        mean: Floats = (self.sums + self.counts[:, None] * self.pilots).sum(axis=0) / max(self.n, 1)
        return mean

    @property
    def means(self) -> Floats:
        """Class means; a class without samples has the overall mean."""
        means = self.pilots + self.sums / np.maximum(self.counts, 1)[:, None]
        return np.where((self.counts > 0)[:, None], means, self.mean)

    def between_factor(self) -> Floats:
        """K x d factor F of the between-class covariance F'F: rows sqrt(n_k / n) (mu_k - mu)."""
        return np.sqrt(self.counts / self.n)[:, None] * (self.means - self.mean)

    def within(self) -> Floats:
        """Biased covariance of the rows about their class means."""
        residue = self.sums / np.sqrt(np.maximum(self.counts, 1))[:, None]
        return (self.scatter - residue.T @ residue) / self.n

    def total(self, within: Floats | None = None) -> Floats:
        """Biased covariance of all rows about their mean: within plus between."""
        factor = self.between_factor()
        return (self.within() if within is None else within) + factor.T @ factor

    def about(self, pilots: Floats) -> Moments:
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


def pilot_means(values: Any, labels: ClassIndices, num_classes: int) -> Floats:
    """Class means of about eight evenly spaced rows per class; a class not met there has the sample's mean."""
    n = int(values.shape[0])
    chosen = np.unique(np.linspace(0, max(n - 1, 0), min(n, max(1024, 8 * num_classes))).astype(np.int64))
    if not n:
        raise InputError("features must have at least one row, got none; give samples to fit on")
    rows = working_block(values[torch.as_tensor(chosen) if isinstance(values, Tensor) else chosen])
    rows = torch.nan_to_num(rows, posinf=0.0, neginf=0.0)
    classes = torch.as_tensor(labels[chosen], device=rows.device)
    sums = rows.new_zeros(num_classes, rows.shape[1]).index_add_(0, classes, rows)
    counts = torch.bincount(classes, minlength=num_classes)[:, None]
    means = torch.where(counts > 0, sums / counts.clamp_min(1), rows.mean(dim=0))
    # Kept in the dtype of the rows: what is subtracted from them is then exactly the pilot.
    return means.to(torch.float64).cpu().numpy().astype(np.float64)


def moments_of(values: Any, labels: ClassIndices, num_classes: int, pilots: Floats | None = None) -> Moments:
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
    pilots, host_sums, host_scatter = (tensor.cpu().numpy() for tensor in (table.to(torch.float64), sums, scatter))
    return Moments(pilots, counts, host_sums, host_scatter, precision, str(scatter.device))


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


def fourth_moment(values: Any, labels: ClassIndices | None, centres: Floats) -> float:
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


def class_means(values: Any, labels: ClassIndices, num_classes: int) -> tuple[Floats, ClassIndices]:
    """Class means `c d` and counts, one pass; a class without samples has mean 0."""
    counts = np.bincount(labels, minlength=num_classes).astype(np.int64)
    sums = np.zeros((num_classes, int(values.shape[1])))
    for start, block in blocks(values, product_rows(values, int(values.shape[1]))):
        check_block(block, start, int(values.shape[0]))
        here = torch.as_tensor(labels[start : start + len(block)], device=block.device)
        part, block_sums = _sums_by_class(block, here, num_classes)
        sums[part if isinstance(part, slice) else part.numpy()] += block_sums.to(torch.float64).cpu().numpy()
    return sums / np.maximum(counts, 1)[:, None], counts


# Covariance shrinkage towards a multiple of the identity, for rank-deficient or ill-conditioned fits.


def ledoit_wolf_intensity(covariance: Floats, n: int, fourth: float) -> float:
    """Ledoit-Wolf: rho = min(beta^2, delta^2) / delta^2, delta^2 = ||S - mu I||^2, beta^2 = (E||r||^4 - ||S||^2) / n.

    Args:
        fourth: mean of ||r||^4 over the centred rows.
    """
    dim = len(covariance)
    mu = np.trace(covariance) / dim
    square = float((covariance**2).sum())
    delta = square - dim * mu**2
    if delta <= 0:
        return 0.0
    beta = (fourth - square) / n
    return float(min(max(beta, 0.0), delta) / delta)


def oas_intensity(covariance: Floats, n: int) -> float:
    """OAS: rho = min(1, [(1 - 2/d) tr S^2 + tr^2 S] / [(n + 1 - 2/d)(tr S^2 - tr^2 S / d)])."""
    dim = len(covariance)
    trace = float(np.trace(covariance))
    square = float((covariance**2).sum())
    spread = square - trace**2 / dim
    if spread <= 0:
        return 0.0
    return float(min(1.0, ((1 - 2 / dim) * square + trace**2) / ((n + 1 - 2 / dim) * spread)))


def shrunk(covariance: Floats, intensity: float) -> Floats:
    """(1 - rho) S + rho mu I, mu = tr S / d."""
    dim = len(covariance)
    mu = float(np.trace(covariance)) / dim
    return (1 - intensity) * covariance + intensity * mu * np.eye(dim)


def intensity_of(rule: Any, covariance: Floats, n: int, fourth: float) -> float:
    """The shrinkage intensity by a rule's word, or a number taken as it is."""
    if isinstance(rule, (int, float)):
        return float(rule)
    return ledoit_wolf_intensity(covariance, n, fourth) if rule == "ledoit_wolf" else oas_intensity(covariance, n)


FourthMoment = Callable[[Floats, bool], float]
"""(centres, by class?) -> mean of ||x - centre||^4; asked for only when Ledoit-Wolf needs it."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Rows -> (rows - origin) matrix, with the class centres there; `inverse_total` = 1 / variance of all rows there.

    Squared lengths are distances within a class; squares times `inverse_total` are class-agnostic ones.
    """

    origin: Floats
    matrix: Floats
    centres: Floats
    inverse_total: Floats


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Class means, shared covariance and overall Gaussian. `notes` say what was done beyond the formula."""

    moments: Moments
    within: Floats  # lower Cholesky factor of the shared covariance, kept columns
    total: Floats  # covariance of all rows, kept columns
    keep: NDArray[np.bool_]  # columns that vary
    intensity: tuple[float, float]  # shrinkage of (within, total); 0 = none
    notes: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> ClassIndices:
        return self.moments.counts

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def means(self) -> Floats:
        return self.moments.means

    def relative(self) -> Projection:
        """The projection in which MD - MD_agnostic is exact: joint diagonalisation of both covariances."""
        return self._relative

    def whitening(self) -> Projection:
        """The full joint diagonalisation: every direction, for MD and MD_agnostic by themselves."""
        return self._whitening

    @cached_property
    def _relative(self) -> Projection:
        if self.intensity == (0.0, 0.0):
            factor = self._white(self.moments.between_factor()[:, self.keep].T)
            if factor.shape[1] >= len(factor):
                excess, turn = eigh(factor @ factor.T, self.moments.device)
                return self._projection(turn, 1 + np.maximum(excess, 0))
            # An orthonormal basis of the whitened class means; outside it both distances are the same.
            basis = linalg.qr(factor, mode="economic")[0]
            inner = basis.T @ factor
            excess, turn = eigh(inner @ inner.T, self.moments.device)
            return self._projection(basis @ turn, 1 + np.maximum(excess, 0))
        return self._whitening

    @cached_property
    def _whitening(self) -> Projection:
        variance, turn = eigh(self._white(self._white(self.total).T), self.moments.device)
        return self._projection(turn, variance)

    def _white(self, columns: Floats) -> Floats:
        return solve_lower(self.within, columns, device=self.moments.device)

    def _projection(self, directions: Floats, variance: Floats) -> Projection:
        matrix = np.zeros((len(self.keep), directions.shape[1]))
        matrix[self.keep] = solve_lower(self.within, directions, transposed=True, device=self.moments.device)
        centres = (self.moments.means - self.moments.mean) @ matrix
        return Projection(self.moments.mean, matrix, centres, 1 / variance)


@dataclass(frozen=True, eq=False)
class ThinGaussians(Gaussians):
    """Shrunk Gaussians of fewer rows than columns: nothing takes time that grows with the cube of the columns.

    Both covariances are a multiple of the identity outside the span of the centred rows; `within` and `total` are the
    factor and the covariance inside it.
    """

    basis: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # of the span, orthonormal
    outside: tuple[float, float] = (0.0, 0.0)  # variances of (within, total) there

    @cached_property
    def _whitening(self) -> Projection:
        variance, turn = eigh(self._white(self._white(self.total).T), self.moments.device)
        dim, size = self.basis.shape
        matrix = np.zeros((len(self.keep), size + dim))
        inside = self.basis @ solve_lower(self.within, turn, transposed=True, device=self.moments.device)
        # What is left of a row without its part in the span: as long as its coordinates in any basis of the rest.
        beside = (np.eye(dim) - self.basis @ self.basis.T) / np.sqrt(self.outside[0])
        matrix[self.keep] = np.concatenate([inside, beside], axis=1)
        rest = np.full(dim, self.outside[1] / self.outside[0])
        centres = (self.moments.means - self.moments.mean) @ matrix
        return Projection(self.moments.mean, matrix, centres, 1 / np.concatenate([variance, rest]))


def _thin(
    moments: Moments,
    within: Floats,
    total: Floats,
    keep: NDArray[np.bool_],
    intensity: tuple[float, float],
    notes: tuple[str, ...],
) -> Gaussians:
    """The same Gaussians by the span of the rows, from a pivoted Cholesky factor of the total covariance."""
    tolerance = 4 * np.finfo(np.float64).eps * len(total) * float(np.diag(total).max())
    packed, pivots, rank, _ = linalg.lapack.dpstrf(total, tol=tolerance, lower=1)
    factor = np.zeros((len(total), min(rank, moments.n)))
    factor[pivots - 1] = np.tril(packed[:, : factor.shape[1]])
    span = linalg.qr(factor, mode="economic")[0]
    parts, outside = [], []
    for covariance, share in zip((within, total), intensity, strict=True):
        mean = share * float(np.trace(covariance)) / len(covariance)
        parts.append((1 - share) * (span.T @ covariance @ span) + mean * np.eye(span.shape[1]))
        outside.append(mean)
    root = cholesky(parts[0], moments.device)
    assert root is not None, "a multiple of the identity was added"
    return ThinGaussians(moments, root, parts[1], keep, intensity, notes, span, (outside[0], outside[1]))


def fit_gaussians(values: Any, labels: ClassIndices, num_classes: int, *, shrinkage: Any = "auto") -> Gaussians:
    """Gaussians of rows `n d` by class; options as in `gaussians_from`."""

    def fourth(centres: Floats, by_class: bool) -> float:
        return fourth_moment(values, labels if by_class else None, centres)

    return gaussians_from(moments_of(values, labels, num_classes), fourth, shrinkage=shrinkage)


SHRINKAGES = ("auto", "none", "ledoit_wolf", "oas")


def check_shrinkage(shrinkage: Any) -> None:
    """A rule's word, or an intensity."""
    if isinstance(shrinkage, str):
        check_choice(shrinkage, SHRINKAGES, "shrinkage")
    else:
        check_number(shrinkage, "shrinkage", 0.0, 0, 1)


def gaussians_from(moments: Moments, fourth: FourthMoment, *, shrinkage: Any = "auto") -> Gaussians:
    """Gaussians of known moments.

    Args:
        shrinkage: "auto" shrinks by Ledoit-Wolf only where the covariance has not full rank; "none", "ledoit_wolf",
            "oas", or an intensity in [0, 1] for both covariances.
    """
    check_shrinkage(shrinkage)
    within = moments.within()
    total = moments.total(within)
    keep, notes = _varying(moments, total)
    if not keep.all():
        within, total = (covariance[np.ix_(keep, keep)] for covariance in (within, total))
    if np.trace(within) <= 8 * moments.precision * np.trace(total):
        raise InputError(
            "features must vary within the classes, but every sample equals its class mean; "
            "give more than one sample per class or other features"
        )
    factor = _full_rank_factor(within, moments)
    if factor is None and shrinkage == "none":
        raise InputError(
            f"the shared covariance must have full rank, but {moments.n} samples of {_present(moments)} classes in "
            f"{moments.dim} dimensions do not give it; use shrinkage='auto'"
        )
    singles = int((moments.counts == 1).sum())
    if singles:
        notes.append(f"{singles} classes have one sample; its distance to its own class is that to itself")
    if shrinkage == "none" or (shrinkage == "auto" and factor is not None):
        assert factor is not None
        return Gaussians(moments, factor, total, keep, (0.0, 0.0), tuple(notes))
    rule = "ledoit_wolf" if shrinkage == "auto" else shrinkage
    intensity = _intensities(rule, within, total, moments, fourth)
    if shrinkage == "auto":
        notes.append(
            f"the shared covariance ({moments.n} samples, {_present(moments)} classes, {moments.dim} dimensions) has "
            f"not full rank: shrunk by Ledoit-Wolf, {intensity[0]:.4f} within classes and {intensity[1]:.4f} in total"
        )
    if moments.n <= len(within) and min(intensity) > 0:
        return _thin(moments, within, total, keep, intensity, tuple(notes))
    within_factor = cholesky(shrunk(within, intensity[0]), moments.device)
    if within_factor is None:
        raise InputError(
            f"a shrinkage of {intensity[0]:g} leaves the shared covariance without full rank; "
            "use a larger one, or 'auto'"
        )
    return Gaussians(moments, within_factor, shrunk(total, intensity[1]), keep, intensity, tuple(notes))


def _intensities(
    rule: Any, within: Floats, total: Floats, moments: Moments, fourth: FourthMoment
) -> tuple[float, float]:
    needs_fourth = rule == "ledoit_wolf"
    by_class = fourth(moments.means, True) if needs_fourth else 0.0
    overall = fourth(moments.mean[None, :], False) if needs_fourth else 0.0
    return intensity_of(rule, within, moments.n, by_class), intensity_of(rule, total, moments.n, overall)


def _present(moments: Moments) -> int:
    return int((moments.counts > 0).sum())


def _varying(moments: Moments, total: Floats) -> tuple[NDArray[np.bool_], list[str]]:
    keep = np.diag(total) > (4 * moments.precision * moments.mean) ** 2
    if not keep.any():
        raise InputError("features must vary, but every sample has the same ones; check the extractor")
    constant = int((~keep).sum())
    return keep, [f"{constant} of {moments.dim} feature columns are constant and were left out"] if constant else []


def _full_rank_factor(within: Floats, moments: Moments) -> Floats | None:
    """Lower Cholesky factor, or None where rounding decides the smallest pivots."""
    scale = np.sqrt(np.maximum(np.diag(within), 0))
    if moments.n - _present(moments) < len(within) or not (scale > 0).all():
        return None
    factor = cholesky(within / np.outer(scale, scale), moments.device)
    # A pivot is the share of a column's variance that the columns before it do not explain.
    if factor is None or float(np.diag(factor).min()) ** 2 < 8 * moments.precision:
        return None
    return factor * scale[:, None]


# Mahalanobis distances of rows to fitted class Gaussians, by blocks of bounded memory.


class ClassGaussians(Protocol):
    """What distances need of class Gaussians, just fitted or from a file."""

    @property
    def counts(self) -> ClassIndices:
        """Samples of every class in the fit."""

    @property
    def num_classes(self) -> int:
        """Classes, also those without samples."""

    @property
    def means(self) -> Floats:
        """Class means `c d`."""

    @property
    def intensity(self) -> tuple[float, float]:
        """Shrinkage of the covariances within the classes and in total; 0 = none."""

    def relative(self) -> Projection:
        """The projection in which MD - MD_agnostic is exact."""

    def whitening(self) -> Projection:
        """Every direction, for MD and MD_agnostic by themselves."""


def own_distances(
    gaussians: ClassGaussians,
    values: Any,
    labels: ClassIndices,
    *,
    relative: bool,
    projection: Projection | None = None,
) -> Floats:
    """MD (or MD - MD_agnostic) of every row to the Gaussian of its label."""
    projection = projection or (gaussians.relative() if relative else gaussians.whitening())
    means = gaussians.means
    result = np.empty(len(labels))
    put: _LikeBlock | None = None
    for start, block in blocks(values, block_rows(values, int(values.shape[1]))):
        if put is None:
            put = _LikeBlock(block)
            table, matrix, inverse = put(means), put(projection.matrix), put(projection.inverse_total)
            # Rows are centred by the class means as their dtype rounds them; the centres take the rest.
            lost = (table.to(torch.float64).cpu().numpy() - means) @ projection.matrix
            rest, centres = put(lost), put(projection.centres + lost)
        part = slice(start, start + len(block))
        classes = torch.as_tensor(labels[part], device=block.device)
        rows = matrix_product(block - table[classes], matrix)
        distance = _squares(rows + rest[classes])
        if relative:
            rows += centres[classes]
            distance = distance - _weighted_squares(rows, inverse)
        if not bool(torch.isfinite(distance.sum())):
            check_block(block, start, len(labels))
        result[part] = distance.cpu().numpy()
    return result


class _LikeBlock:
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

    nearest: ClassIndices
    nearest_distance: Floats
    likeliest: ClassIndices
    """Class of largest posterior: nearest after adding -2 log of the class's share."""
    likeliest_distance: Floats
    agnostic: Floats


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


def class_shares(gaussians: ClassGaussians) -> Floats:
    """Share of every class in the fit; a class without samples has 0."""
    shares: Floats = gaussians.counts / gaussians.counts.sum()
    with np.errstate(divide="ignore"):
        return np.where(shares > 0, shares, np.finfo(np.float64).tiny)


def distance_tables(
    gaussians: ClassGaussians, values: Any, *, fitted_labels: ClassIndices | None = None
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first row, MD to every class `n c`, MD_agnostic) by blocks; a class without samples is infinitely far.

    Args:
        fitted_labels: labels of rows that were themselves in the fit. Each row is then judged by the Gaussians of all
            the others: leaving it out changes mean and covariance by a rank-one term, so no refit is needed.
    """
    projection = gaussians.whitening()
    absent = torch.as_tensor(gaussians.counts == 0)
    for start, block in blocks(values, block_rows(values, max(int(values.shape[1]), gaussians.num_classes))):
        put = _LikeBlock(block)
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
