"""Truncated Newton for smooth convex functions: conjugate gradients on the curvature, turned by a simple one.

Where some unknowns have no best value (a class told apart perfectly grows without bound) every Newton step takes the
same factor off what is left, while a search that learns the curvature from its own steps creeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Turn = Callable[[Tensor], Tensor]
PRECISION, SHARP = 0.3, 0.01
"""Conjugate gradients stop when the slope's norm is down to this share: the next step corrects the rest. A rough step
may miss a soft direction, so only a sharp one that promises next to nothing ends the search."""
NEAR = 100.0
"""So many times the change that counts as none, steps turn sharp."""
INNER = 20


class Convex(Protocol):
    """A function with its slope, the product of its curvature with a direction, and a simple inverse of that."""

    def measure(self, at: Tensor) -> tuple[float, Tensor]:
        """Value and slope; the curvature is that of the last point measured."""

    def product(self, direction: Tensor) -> Tensor:
        """Curvature times direction."""

    def inverse(self) -> Turn:
        """About the inverse of the curvature at the last point measured."""


@dataclass(frozen=True)
class Ended:
    """Where a search ended, its steepest slope there, and whether it ended by itself."""

    at: Tensor
    steepest: float
    converged: bool


def newton(function: Convex, start: Tensor, *, tolerance: float, change: float, iterations: int) -> Ended:
    """From the start to the minimum.

    Args:
        tolerance: largest slope of an unknown at which to stop.
        change: promised fall of the value, relative to it where it is above 1, that counts as none.
    """
    here = start
    value, slope = function.measure(here)
    precision = PRECISION
    for _ in range(iterations):
        if float(slope.abs().max()) <= tolerance:
            return Ended(here, float(slope.abs().max()), True)
        direction = _towards_minimum(function, slope, precision)
        fall, unit = _dot(slope, direction), change * max(abs(value), 1.0)
        if -fall <= unit and precision == SHARP:
            # Near the minimum the step leaves an error of the square of its fall: no need to look.
            return Ended(here + direction, float(slope.abs().max()), True)
        step, new_value, new_slope = 1.0, *function.measure(here + direction)
        while new_value > value + 1e-4 * step * fall + unit and step > 1e-6:
            step /= 2
            new_value, new_slope = function.measure(here + step * direction)
        if new_value > value + unit:
            return Ended(here, float(slope.abs().max()), True)
        here, value, slope = here + step * direction, new_value, new_slope
        precision = SHARP if -fall <= NEAR * unit else PRECISION
    return Ended(here, float(slope.abs().max()), False)


def _towards_minimum(function: Convex, slope: Tensor, precision: float) -> Tensor:
    """Minus the inverse curvature times the slope, roughly, by preconditioned conjugate gradients."""
    inverse = function.inverse()
    result, rest = torch.zeros_like(slope), -slope
    turned = inverse(rest)
    direction, size = turned, _dot(rest, turned)
    enough = precision**2 * size
    for _ in range(INNER):
        product = function.product(direction)
        bend = _dot(direction, product)
        if bend <= 0.0:
            break
        result = result + (size / bend) * direction
        rest = rest - (size / bend) * product
        turned = inverse(rest)
        previous, size = size, _dot(rest, turned)
        if size <= enough:
            break
        direction = turned + (size / previous) * direction
    # Rounding left no curvature to follow: the simple inverse is still downhill.
    return result if _dot(slope, result) < 0 else inverse(-slope)


def _dot(left: Tensor, right: Tensor) -> float:
    return float((left * right).sum())
