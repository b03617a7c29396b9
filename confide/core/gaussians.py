"""Class Gaussians with one shared covariance, and the Gaussian of all rows, from streamed moments.

With Sigma = L L' within the classes, rows times L^-T are white. The total covariance differs from Sigma by the
between-class part of rank at most K - 1, so MD - MD_agnostic lives in the span of the whitened class means: one
projection to min(d, K) columns serves both distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from confide.core.dense import cholesky, eigh, solve_lower
from confide.core.door import InputError, check_choice, check_range
from confide.core.moments import Moments, fourth_moment, moments_of
from confide.core.shrinkage import intensity_of, shrunk

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]
FourthMoment = Callable[[Float64, bool], float]
"""(centres, by class?) -> mean of ||x - centre||^4; asked for only when Ledoit-Wolf needs it."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Rows -> (rows - origin) matrix, with the class centres there; `inverse_total` = 1 / variance of all rows there.

    Squared lengths are distances within a class; squares times `inverse_total` are class-agnostic ones.
    """

    origin: Float64
    matrix: Float64
    centres: Float64
    inverse_total: Float64


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Class means, shared covariance and overall Gaussian. `notes` say what was done beyond the formula."""

    moments: Moments
    within: Float64  # lower Cholesky factor of the shared covariance, kept columns
    total: Float64  # covariance of all rows, kept columns
    keep: NDArray[np.bool_]  # columns that vary
    intensity: tuple[float, float]  # shrinkage of (within, total); 0 = none
    notes: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> Labels:
        return self.moments.counts

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def means(self) -> Float64:
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

    def _white(self, columns: Float64) -> Float64:
        return solve_lower(self.within, columns, device=self.moments.device)

    def _projection(self, directions: Float64, variance: Float64) -> Projection:
        matrix = np.zeros((len(self.keep), directions.shape[1]))
        matrix[self.keep] = solve_lower(self.within, directions, transposed=True, device=self.moments.device)
        centres = (self.moments.means - self.moments.mean) @ matrix
        return Projection(self.moments.mean, matrix, centres, 1 / variance)


def fit_gaussians(values: Any, labels: Labels, num_classes: int, *, shrinkage: Any = "auto") -> Gaussians:
    """Gaussians of rows `n d` by class; options as in `gaussians_from`."""

    def fourth(centres: Float64, by_class: bool) -> float:
        return fourth_moment(values, labels if by_class else None, centres)

    return gaussians_from(moments_of(values, labels, num_classes), fourth, shrinkage=shrinkage)


def gaussians_from(moments: Moments, fourth: FourthMoment, *, shrinkage: Any = "auto") -> Gaussians:
    """Gaussians of known moments.

    Args:
        shrinkage: "auto" shrinks by Ledoit-Wolf only where the covariance has not full rank; "none", "ledoit_wolf",
            "oas", or an intensity in [0, 1] for both covariances.
    """
    if isinstance(shrinkage, str):
        check_choice(shrinkage, ("auto", "none", "ledoit_wolf", "oas"), "shrinkage")
    else:
        check_range(float(shrinkage), "shrinkage", 0, 1)
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
    within_factor = cholesky(shrunk(within, intensity[0]), moments.device)
    if within_factor is None:
        raise InputError(
            f"a shrinkage of {intensity[0]:g} leaves the shared covariance without full rank; "
            "use a larger one, or 'auto'"
        )
    return Gaussians(moments, within_factor, shrunk(total, intensity[1]), keep, intensity, tuple(notes))


def _intensities(
    rule: Any, within: Float64, total: Float64, moments: Moments, fourth: FourthMoment
) -> tuple[float, float]:
    wanted = rule == "ledoit_wolf"
    by_class = fourth(moments.means, True) if wanted else 0.0
    overall = fourth(moments.mean[None, :], False) if wanted else 0.0
    return intensity_of(rule, within, moments.n, by_class), intensity_of(rule, total, moments.n, overall)


def _present(moments: Moments) -> int:
    return int((moments.counts > 0).sum())


def _varying(moments: Moments, total: Float64) -> tuple[NDArray[np.bool_], list[str]]:
    keep = np.diag(total) > (4 * moments.precision * moments.mean) ** 2
    if not keep.any():
        raise InputError("features must vary, but every sample has the same ones; check the extractor")
    constant = int((~keep).sum())
    return keep, [f"{constant} of {moments.dim} feature columns are constant and were left out"] if constant else []


def _full_rank_factor(within: Float64, moments: Moments) -> Float64 | None:
    """Lower Cholesky factor, or None where rounding decides the smallest pivots."""
    scale = np.sqrt(np.maximum(np.diag(within), 0))
    if moments.n - _present(moments) < len(within) or not (scale > 0).all():
        return None
    factor = cholesky(within / np.outer(scale, scale), moments.device)
    # A pivot is the share of a column's variance that the columns before it do not explain.
    if factor is None or float(np.diag(factor).min()) ** 2 < 8 * moments.precision:
        return None
    scaled: Float64 = factor * scale[:, None]
    return scaled
