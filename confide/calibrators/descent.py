"""L-BFGS (Nocedal, 1980) for smooth convex functions, in torch so that one thread means one thread.

The unknowns come scaled to about unit curvature, so the full step is the natural one. A step is taken if the value
falls enough (Armijo) or, where rounding hides the fall, if the slope along it says so (Hager and Zhang, 2005).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Objective = Callable[[Tensor], tuple[float, Tensor]]


@dataclass(frozen=True)
class Descent:
    """Where a descent ended, its steepest slope there, and whether it ended by itself."""

    unknowns: Tensor
    steepest: float
    converged: bool


def descend(
    objective: Objective,
    size: int,
    *,
    tolerance: float,
    change: float,
    idle: int,
    iterations: int,
    memory: int,
    kept: torch.dtype = torch.float64,
) -> Descent:
    """From zero to the minimum.

    Args:
        tolerance: largest slope of an unknown at which to stop.
        change: change of the value, relative to it where it is above 1, that counts as none.
        idle: so many steps in a row that change next to nothing end the search.
        memory: how many steps are remembered, in the dtype `kept`: float32 takes half the room.
    """
    here = torch.zeros(size, dtype=torch.float64)
    value, slope = objective(here)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
    still = 0
    for _ in range(iterations):
        if float(slope.abs().max()) <= tolerance or still >= idle:
            return Descent(here, float(slope.abs().max()), True)
        direction = _direction(slope, pairs)
        found = _line_search(objective, here, value, slope, direction)
        if found is None:
            # No step improves: the rounding of the value is reached, or the memory misleads.
            if not pairs:
                return Descent(here, float(slope.abs().max()), True)
            pairs.clear()
            continue
        step, new_value, new_slope = found
        moved, turned = step * direction, new_slope - slope
        curvature = float(torch.dot(moved, turned))
        if curvature > 1e-12 * float(torch.dot(turned, turned)):
            pairs.append((moved.to(kept), turned.to(kept), 1.0 / curvature))
        still = still + 1 if abs(value - new_value) <= change * max(abs(value), 1.0) else 0
        here, value, slope = here + moved, new_value, new_slope
    return Descent(here, float(slope.abs().max()), False)


def _direction(slope: Tensor, pairs: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
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


def _line_search(
    objective: Objective, here: Tensor, value: float, slope: Tensor, direction: Tensor
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
