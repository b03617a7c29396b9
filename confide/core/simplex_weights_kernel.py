"""Triton kernels of losses that weigh -log p_y by where a sample's confidence stands in the batch.

They go over vectors of length n between the forward and the backward kernel of `simplex`, and leave the loss and the
terms of its gradient as a fused loss does: row 2 of `rows` the scale, 3 the gradient at the label, 4 the pull at the
largest class.
"""

from __future__ import annotations

import triton
import triton.language as tl

from confide.core.simplex_parts import log1p

DIGITS = 3


@triton.jit
def _one_minus(log_p):  # type: ignore[no-untyped-def]
    """1 - exp(log_p) with all digits: (u - 1) x / log(u), in which the rounding of u = exp(x) cancels."""
    u = tl.exp(log_p)
    near = u == 1.0
    far = (u - 1.0) * (log_p / tl.where(near | (u == 0.0), 1.0, tl.log(u)))
    return tl.where(near, -log_p, tl.where(u == 0.0, 1.0, -far))


@triton.jit  # type: ignore[untyped-decorator]
def rank_kernel(  # type: ignore[no-untyped-def]
    log_p_ptr, order_ptr, weight_ptr, out_ptr, rows_ptr, n, BLOCK: tl.constexpr
):
    """Sample order[r] takes the weight of rank r."""
    rank = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = rank < n
    sample = tl.load(order_ptr + rank, mask=alive, other=0)
    log_p = tl.load(log_p_ptr + sample, mask=alive, other=0.0)
    weight = tl.load(weight_ptr + rank, mask=alive, other=0.0).to(log_p.dtype)
    tl.store(out_ptr + sample, -weight * log_p, mask=alive)
    tl.store(rows_ptr + 2 * n + sample, tl.where(log_p == log_p, weight, log_p), mask=alive)
    tl.store(rows_ptr + 3 * n + sample, -weight * _one_minus(log_p), mask=alive)


@triton.jit
def _digit(counts_ptr, level, which, rank):  # type: ignore[no-untyped-def]
    """The digit that holds the sample of that rank, and its rank among the samples of that digit."""
    digit = tl.arange(0, 256)
    counts = tl.load(counts_ptr + (2 * level + which) * 256 + digit)
    at = tl.sum((tl.cumsum(counts, axis=0) <= rank).to(tl.int32), axis=0)
    return at, rank - tl.sum(tl.where(digit < at, counts, 0), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _found(counts_ptr, which, rank, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The leading digits, of LEVELS many, of the value of that rank, and its rank among the values that share them."""
    prefix = 0
    for level in tl.static_range(LEVELS):
        digit, rank = _digit(counts_ptr, level, which, rank)
        prefix = prefix * 256 + digit
    return prefix, rank


@triton.jit(do_not_specialize=["below", "above"])  # type: ignore[untyped-decorator]
def digit_kernel(  # type: ignore[no-untyped-def]
    score_ptr, counts_ptr, n, below, above, LEVEL: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """Count the LEVEL-th digit of the scores that share the digits before it with the value of a rank, for two ranks.

    Scores are taken to 2^-24, the distance of floats below 1. The first level also counts them by bins on [0, 1].
    """
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = sample < n
    score = tl.load(score_ptr + sample, mask=alive, other=0.0)
    # NaN counts as the largest.
    key = tl.where(score < 1.0, score * 16777216.0, 16777215.0).to(tl.int32)
    digit = (key >> (16 - 8 * LEVEL)) & 255
    slot = tl.arange(0, 256)
    for which in tl.static_range(2):
        chosen = alive
        if LEVEL > 0:
            prefix, _ = _found(counts_ptr, which, below if which == 0 else above, LEVEL)
            chosen = alive & (key >> (24 - 8 * LEVEL) == prefix)
        counts = tl.histogram(digit, 256, mask=chosen)
        tl.atomic_add(counts_ptr + (2 * LEVEL + which) * 256 + slot, counts, mask=counts > 0)
    if LEVEL == 0:
        place = tl.where(score < 1.0, score * BINS, BINS - 1.0).to(tl.int32)
        by_bin = tl.histogram(tl.maximum(place, 0), BINS, mask=alive)
        tl.atomic_add(counts_ptr + 1536 + tl.arange(0, BINS), by_bin, mask=by_bin > 0)


@triton.jit(do_not_specialize=["below", "above"])  # type: ignore[untyped-decorator]
def distribution_kernel(  # type: ignore[no-untyped-def]
    score_ptr,
    log_p_ptr,
    counts_ptr,
    out_ptr,
    rows_ptr,
    n,
    below,
    above,
    between: tl.float64,
    smoothing: tl.float64,
    low: tl.float64,
    high: tl.float64,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Weigh by -ln(1 - G(min(s, t))): G the smoothed distribution of the scores s, t the value `between` two ranks."""
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = sample < n
    score = tl.load(score_ptr + sample, mask=alive, other=0.0)
    log_p = tl.load(log_p_ptr + sample, mask=alive, other=0.0)
    first, _ = _found(counts_ptr, 0, below, 3)
    second, _ = _found(counts_ptr, 1, above, 3)
    part = tl.full((BLOCK,), between, dtype=tl.float32)
    first, second = first.to(tl.float32) / 16777216.0, second.to(tl.float32) / 16777216.0
    limit = first + part * (second - first)
    width = tl.full((BLOCK,), smoothing, dtype=tl.float32)
    bins = tl.arange(0, BINS)
    count = tl.maximum(tl.load(counts_ptr + 1536 + bins).to(tl.float32), 1e-12)
    share = count / (n * 1.0)
    inside = score < limit
    capped = tl.where(inside, score, limit)
    lean = (capped[:, None] - ((bins.to(tl.float32) + 0.5) / BINS)[None, :]) / width[:, None]
    step = 1.0 / (1.0 + tl.exp(-lean))
    reached = tl.sum(step * share[None, :], axis=1)
    rise = tl.sum(step * (1.0 - step) * share[None, :], axis=1) / width
    bottom, ceiling = tl.full((BLOCK,), low, dtype=tl.float32), tl.full((BLOCK,), high, dtype=tl.float32)
    moves = inside & (reached >= bottom) & (reached <= ceiling)
    reached = tl.minimum(tl.maximum(reached, bottom), ceiling)
    weight = -log1p(-reached)
    slope = tl.where(moves, rise / (1.0 - reached), 0.0)
    p_true = tl.exp(log_p)
    push = -slope * log_p * score
    tl.store(out_ptr + sample, -weight * log_p, mask=alive)
    tl.store(rows_ptr + 2 * n + sample, tl.where(log_p == log_p, weight - push, log_p), mask=alive)
    tl.store(rows_ptr + 3 * n + sample, -weight * _one_minus(log_p) - push * p_true, mask=alive)
    tl.store(rows_ptr + 4 * n + sample, push, mask=alive)
