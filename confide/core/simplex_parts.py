"""Names and small functions that the Triton kernels of `simplex` share."""

from __future__ import annotations

import triton
import triton.language as tl

STATISTICS, LINEAR, POWER, TABLE = 0, 1, 2, 3
NO_TERM, ENTROPY, MEAN, POLY, BRIER, NORM, EXCESS = 0, 1, 2, 3, 4, 5, 6
FOCAL, INVERSE, DUAL, RELEASED, STEPS, GIVEN, SAMPLED = 0, 1, 2, 3, 4, 5, 6
WITH_ENTROPY, WITH_SQUARES, WITH_MEAN, WITH_PLACE = (tl.constexpr(1), tl.constexpr(2), tl.constexpr(4), tl.constexpr(8))
WITH_SECOND, WITH_BELOW, WITH_EXCESS = (tl.constexpr(16), tl.constexpr(32), tl.constexpr(64))
LOWEST = tl.constexpr(-1267650600228229401496703205376.0)
"""Stands for a class that is not there: -2^100, finite so that no 0 * infinity appears, exact in float32."""
NOWHERE = tl.constexpr(2147483647)
"""A column that no class has."""


@triton.jit
def log1p(x):  # type: ignore[no-untyped-def]
    # log(1 + x) x / ((1 + x) - 1): the rounding of 1 + x cancels.
    w = 1.0 + x
    return tl.where(w == 1.0, x, tl.log(w) * (x / tl.where(w == 1.0, 1.0, w - 1.0)))


@triton.jit
def quick_exp(x):  # type: ignore[no-untyped-def]
    """exp by one special-function instruction; results below the smallest normal number become 0."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def first_place(values, largest, columns):  # type: ignore[no-untyped-def]
    """The lowest column whose value is the largest; cheaper than a maximum that carries its index."""
    return tl.min(tl.where(values == largest[:, None], columns, NOWHERE), axis=1)
