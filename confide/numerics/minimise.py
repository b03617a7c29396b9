"""Minimisers of smooth convex functions, in torch so that one thread means one thread: L-BFGS (Nocedal, 1980) for
unknowns scaled to about unit curvature, truncated Newton where products with the curvature are cheap, and Newton in a
box for a handful of unknowns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from confide.types import Floats

# L-BFGS (Nocedal, 1980) for smooth convex functions, in torch so that one thread means one thread.
#
# The unknowns come scaled to about unit curvature, so the full step is the natural one. A step is taken if the value
# falls enough (Armijo) or, where rounding hides the fall, if the slope along it says so (Hager and Zhang, 2005).

ValueAndSlope = Callable[[Tensor], tuple[float, Tensor]]


@dataclass(frozen=True)
class Minimum:
    """Where a search ended, its steepest slope there, and whether it ended by itself."""

    at: Tensor
    steepest: float
    converged: bool


def lbfgs(
    objective: ValueAndSlope,
    size: int,
    *,
    tolerance: float,
    change: float,
    idle: int,
    iterations: int,
    memory: int,
    memory_dtype: torch.dtype = torch.float64,
) -> Minimum:
    """From zero to the minimum.

    Args:
        tolerance: largest slope of an unknown at which to stop.
        change: change of the value, relative to it where it is above 1, that counts as none.
        idle: so many steps in a row that change next to nothing end the search.
        memory: how many steps are remembered, in `memory_dtype`: float32 takes half the room.
    """
    here = torch.zeros(size, dtype=torch.float64)
    value, slope = objective(here)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    still = 0
    for _ in range(iterations):
        if float(slope.abs().max()) <= tolerance or still >= idle:
            return Minimum(here, float(slope.abs().max()), True)
        direction = _lbfgs_direction(slope, pairs)
        improvement = _lbfgs_line_search(objective, here, value, slope, direction)
        if improvement is None:
            # No step improves: the rounding of the value is reached, or the memory misleads.
            if not pairs:
                return Minimum(here, float(slope.abs().max()), True)
            pairs.clear()
            continue
        step, new_value, new_slope = improvement
        moved, turned = step * direction, new_slope - slope
        curvature = float(torch.dot(moved, turned))
        if curvature > 1e-12 * float(torch.dot(turned, turned)):
            pairs.append((moved.to(memory_dtype), turned.to(memory_dtype), 1.0 / curvature))
        still = still + 1 if abs(value - new_value) <= change * max(abs(value), 1.0) else 0
        here, value, slope = here + moved, new_value, new_slope
    return Minimum(here, float(slope.abs().max()), False)


def _lbfgs_direction(slope: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Minus the inverse curvature times the slope, by the two loops over the remembered steps."""
    if not pairs:
        return -slope
    result, shares = slope.to(pairs[0][0].dtype, copy=True), []
    for moved, turned, inverse in reversed(pairs):
        share = inverse * float(torch.dot(moved, result))
        result.sub_(turned, alpha=share)
        shares.append(share)
    moved, turned, inverse = pairs[-1]
    result.mul_(1.0 / (inverse * float(torch.dot(turned, turned))))
    for (moved, turned, inverse), share in zip(pairs, reversed(shares), strict=True):
        result.add_(moved, alpha=share - inverse * float(torch.dot(turned, result)))
    return result.neg_().to(slope.dtype)


def _lbfgs_line_search(
    objective: ValueAndSlope, here: Tensor, value: float, slope: Tensor, direction: Tensor
) -> tuple[float, float, Tensor] | None:
    """(step, value, slope) of an acceptable step along the direction, or None."""
    fall = float(torch.dot(slope, direction))
    if fall >= 0:
        return None
    step, rounding = 1.0, 1e-7 * max(abs(value), 1e-3)
    for _ in range(20):
        new_value, new_slope = objective(here + step * direction)
        along = float(torch.dot(new_slope, direction))
        if new_value <= value + 1e-4 * step * fall or (new_value <= value + rounding and along <= 0.8 * -fall):
            return step, new_value, new_slope
        # The root of the line between both slopes, kept well inside the step.
        step *= min(max(fall / (fall - along), 0.1), 0.5) if along > fall else 0.5
    return None


# Truncated Newton for smooth convex functions: conjugate gradients on the curvature, turned by a simple one.
#
# Where some unknowns have no best value (a class told apart perfectly grows without bound) every Newton step takes the
# same factor off what is left, while a search that learns the curvature from its own steps creeps.

InverseCurvature = Callable[[Tensor], Tensor]
ROUGH_SHARE, SHARP_SHARE = 0.3, 0.01
"""Conjugate gradients stop when the slope's norm is down to this share: the next step corrects the rest. A rough step
may miss a soft direction, so only a sharp one that promises next to nothing ends the search."""
SHARP_WITHIN = 100.0
"""So many times the change that counts as none, steps turn sharp."""
CONJUGATE_STEPS = 20


class Convex(Protocol):
    """A function with its slope, the product of its curvature with a direction, and a simple inverse of that."""

    def measure(self, at: Tensor) -> tuple[float, Tensor]:
        """Value and slope; the curvature is that of the last point measured."""

    def product(self, direction: Tensor) -> Tensor:
        """Curvature times direction."""

    def inverse(self) -> InverseCurvature:
        """About the inverse of the curvature at the last point measured."""


def truncated_newton(function: Convex, start: Tensor, *, tolerance: float, change: float, iterations: int) -> Minimum:
    """From the start to the minimum.

    Args:
        tolerance: largest slope of an unknown at which to stop.
        change: promised fall of the value, relative to it where it is above 1, that counts as none.
    """
    here = start
    value, slope = function.measure(here)
    precision = ROUGH_SHARE
    for _ in range(iterations):
        if float(slope.abs().max()) <= tolerance:
            return Minimum(here, float(slope.abs().max()), True)
        direction = _newton_direction(function, slope, precision)
        fall, unit = _dot(slope, direction), change * max(abs(value), 1.0)
        if -fall <= unit and precision == SHARP_SHARE:
            # Near the minimum the step leaves an error of the square of its fall: no need to look.
            return Minimum(here + direction, float(slope.abs().max()), True)
        step, new_value, new_slope = 1.0, *function.measure(here + direction)
        while new_value > value + 1e-4 * step * fall + unit and step > 1e-6:
            step /= 2
            new_value, new_slope = function.measure(here + step * direction)
        if new_value > value + unit:
            return Minimum(here, float(slope.abs().max()), True)
        here, value, slope = here + step * direction, new_value, new_slope
        precision = SHARP_SHARE if -fall <= SHARP_WITHIN * unit else ROUGH_SHARE
    return Minimum(here, float(slope.abs().max()), False)


def _newton_direction(function: Convex, slope: Tensor, precision: float) -> Tensor:
    """Minus the inverse curvature times the slope, roughly, by preconditioned conjugate gradients."""
    inverse = function.inverse()
    result, rest = torch.zeros_like(slope), -slope
    turned = inverse(rest)
    direction, size = turned, _dot(rest, turned)
    enough = precision**2 * size
    for _ in range(CONJUGATE_STEPS):
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


# Newton for a handful of unknowns in a box: convex functions with their whole curvature at hand.

Curvature = Callable[[Floats], tuple[float, Floats, Floats]]
"""Value, slope and curvature at a point."""


def box_newton(moments: Curvature, start: Floats, low: Floats, high: Floats, *, iterations: int = 100) -> Floats:
    """The minimum of a convex function with low <= x <= high, to the rounding of its value.

    Unknowns at a bound that the slope pushes outward rest; the others take the Newton step, cut to the box and halved
    until the value falls.
    """
    here = np.clip(start, low, high)
    value, slope, curvature = moments(here)
    for _ in range(iterations):
        free = ~(((here <= low) & (slope >= 0)) | ((here >= high) & (slope <= 0)))
        if not free.any():
            return here
        part = curvature[np.ix_(free, free)]
        # Two signals that say the same leave a flat direction: a touch of the mean curvature settles it.
        part = part + np.eye(len(part)) * (1e-10 * np.trace(part) / len(part) + 1e-300)
        direction = np.zeros_like(here)
        direction[free] = -np.linalg.solve(part, slope[free])
        if not np.isfinite(direction).all() or float(slope @ direction) >= 0:
            direction = np.where(free, -slope, 0.0)
        size, tiny = 1.0, 1e-13 * max(abs(value), 1e-3)
        while True:
            there = np.clip(here + size * direction, low, high)
            new_value, new_slope, new_curvature = moments(there)
            fall = value - new_value
            if np.isfinite(new_value) and fall >= 1e-4 * float(slope @ (here - there)):
                break
            size /= 2
            if size < 1e-6:
                return here
        here, value, slope, curvature = there, new_value, new_slope, new_curvature
        if fall <= tiny:
            return here
    return here
