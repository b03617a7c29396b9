"""Smooth calibration error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.optimize import brentq

from confide.metrics.family import metric
from confide.metrics.view import View

Floats = NDArray[np.float64]
SMALLEST_GRID, LARGEST_GRID = 1 << 12, 1 << 18
POINTS_PER_WIDTH = 24


def spread_on_grid(sure: Floats, residual: Floats, cells: int) -> Floats:
    """Residuals shared out linearly between the two grid points beside each confidence."""
    place = sure * cells
    left = np.minimum(place.astype(np.intp), cells - 1)
    part = place - left
    lower = np.bincount(left, residual * (1 - part), minlength=cells + 1)
    return np.asarray(lower + np.bincount(left + 1, residual * part, minlength=cells + 1))


class Smoother:
    """The integral of |smoothed residual| for any width; reflection at 0 and 1 is exact in cosine space."""

    def __init__(self, sure: Floats, residual: Floats, cells: int) -> None:
        masses = spread_on_grid(sure, residual, cells)
        masses[[0, -1]] *= 2
        self.spectrum = dct(masses, type=1) / 2
        self.frequencies = (np.pi * np.arange(cells + 1)) ** 2 / 2
        self.cells = cells

    def error(self, width: float) -> float:
        """smECE at that kernel width."""
        curve = np.abs(dct(self.spectrum * np.exp(-self.frequencies * width**2), type=1))
        return float((curve.sum() - (curve[0] + curve[-1]) / 2) / self.cells)

    def excess(self, width: float) -> float:
        """How far the error lies above the width; falls, and is 0 at the answer."""
        return self.error(width) - width


def smooth_error(sure: Floats, residual: Floats) -> float:
    """The width at which the smoothed error equals the width itself; residuals sum to the weights' scale."""
    cells = SMALLEST_GRID
    while True:
        smoother = Smoother(sure, residual, cells)
        smallest = POINTS_PER_WIDTH / cells
        if smoother.error(smallest) > smallest:
            return float(brentq(smoother.excess, smallest, 1.0 + 1e-9, xtol=1e-10))
        if cells >= LARGEST_GRID:
            return min(smoother.error(smallest), smallest)
        cells *= 4


@metric(
    "smooth_ece",
    paper="Blasiok & Nakkiran, 2023, arXiv:2309.12236",
    better="lower",
    range=(0.0, 1.0),
    meaning="The calibration error without bins, smoothed at the scale of the error itself.",
    kind="calibration",
    costly=True,
)
def smooth_ece(view: View) -> float:
    """Smooth ECE, the width s at which the integral of |mean of (c_i - o_i) K_s(t, c_i)| over t equals s.

    K_s is a Gaussian of width s reflected at 0 and 1. Errors below 1e-4 are bounded, not resolved.
    """
    sure, wrong, weights = view.weighted_top()
    residual = (sure - ~wrong) * weights / view.n
    return smooth_error(sure, residual)
