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
    _weigh(sample, rank, alive, log_p_ptr, weight_ptr, out_ptr, rows_ptr, n)


@triton.jit  # type: ignore[untyped-decorator]
def counted_rank_kernel(  # type: ignore[no-untyped-def]
    log_p_ptr, score_ptr, weight_ptr, out_ptr, rows_ptr, n, BLOCK: tl.constexpr, OTHERS: tl.constexpr
):
    """Every sample counts the samples below it, of equal ones those before it, and takes the weight of that rank."""
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = sample < n
    rank = _counted(tl.load(score_ptr + sample, mask=alive, other=0.0), sample, score_ptr, n, BLOCK, OTHERS)
    _weigh(sample, rank, alive, log_p_ptr, weight_ptr, out_ptr, rows_ptr, n)


@triton.jit  # type: ignore[untyped-decorator]
def _counted(score, sample, score_ptr, n, BLOCK: tl.constexpr, OTHERS: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many of all scores stand below each of these."""
    rank = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, n, OTHERS):
        other = start + tl.arange(0, OTHERS)
        theirs = tl.load(score_ptr + other, mask=other < n, other=float("inf"))[None, :]
        before = (theirs == score[:, None]) & (other[None, :] < sample[:, None])
        rank += tl.sum(((theirs < score[:, None]) | before).to(tl.int32), axis=1)
    return rank


@triton.jit
def _weigh(sample, rank, alive, log_p_ptr, weight_ptr, out_ptr, rows_ptr, n):  # type: ignore[no-untyped-def]
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
    SIZE: tl.constexpr,
):
    """Weigh by -ln(1 - G(min(s, t))): G the smoothed distribution of the scores s, t the value `between` two ranks.

    Both come from `digit_kernel`, or for a batch of at most SIZE samples, SIZE > 0, every block finds them itself.
    """
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = sample < n
    score = tl.load(score_ptr + sample, mask=alive, other=0.0)
    log_p = tl.load(log_p_ptr + sample, mask=alive, other=0.0)
    bins = tl.arange(0, BINS)
    if SIZE > 0:
        everyone = tl.arange(0, SIZE)
        theirs = tl.load(score_ptr + everyone, mask=everyone < n, other=0.0)
        theirs = tl.where(theirs < 1.0, theirs, 1.0)  # NaN counts as the largest
        rank = tl.where(everyone < n, _counted(theirs, everyone, score_ptr, n, SIZE, 16), n)
        first = tl.sum(tl.where(rank == below, theirs, 0.0), axis=0)
        second = tl.sum(tl.where(rank == above, theirs, 0.0), axis=0)
        place = tl.minimum(theirs * BINS, BINS - 1.0).to(tl.int32)
        counts = tl.histogram(place, BINS, mask=everyone < n)
    else:
        below_key, _ = _found(counts_ptr, 0, below, 3)
        above_key, _ = _found(counts_ptr, 1, above, 3)
        first, second = below_key.to(tl.float32) / 16777216.0, above_key.to(tl.float32) / 16777216.0
        counts = tl.load(counts_ptr + 1536 + bins)
    part = tl.full((BLOCK,), between, dtype=tl.float32)
    limit = first + part * (second - first)
    width = tl.full((BLOCK,), smoothing, dtype=tl.float32)
    share = tl.maximum(counts.to(tl.float32), 1e-12) / (n * 1.0)
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
