"""What the forward Triton kernel adds up along a row: logits in, a few raw sums per row out.

A row is read in tiles of `LANES` chunks of `CHUNK` logits, 16 bytes where the memory allows it, so that a thread reads
a chunk by one instruction and adds it up by itself. Where rows do not begin at a multiple of 16 bytes (ALIGN > 1)
reading begins at the multiple before the row, `shift` logits early, and what is not of the row counts as absent.

The chunk that holds the label is left out of the sums and joins last without the label, so that 1 - p_y is a sum of
the others and keeps all its digits. All give the tuple (top, others, leaning, squares, drift, size, other, other_at,
gaps, times) of vectors over ROWS, relative to the row's largest logit `top` and without the label's chunk: the sums of
e^(z - top), e^(z - top) (z - top), e^(2 (z - top)) and z - top, and the largest logit with its chunk; and with it: the
sum of |z| or z^2, how far the logits lie below top - margin together, and how many do.
"""

from __future__ import annotations

import triton
import triton.language as tl

STATISTICS, LINEAR, POWER, TABLE = 0, 1, 2, 3
NO_TERM, ENTROPY, MEAN, POLY, BRIER, NORM, EXCESS = 0, 1, 2, 3, 4, 5, 6
FOCAL, INVERSE, DUAL, RELEASED, STEPS, GAMMAS, SAMPLED = 0, 1, 2, 3, 4, 5, 6
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


@triton.jit  # type: ignore[untyped-decorator]
def load_tile(  # type: ignore[no-untyped-def]
    z_ptr,
    start,
    shift,
    first,
    alive,
    PARTIAL: tl.constexpr,
    RAGGED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    num_classes: tl.constexpr,
):
    """(ROWS, BLOCK) logits from `first` on, as they are stored; anything where there is none of the row."""
    position = first + tl.arange(0, BLOCK)[None, :]
    inside = alive[:, None]
    if PARTIAL:
        end = shift[:, None] + num_classes
        if (ALIGN > 1) & (not RAGGED):
            # Whole chunks, so that they are read at once; the last may reach into the next row, never past the last.
            inside = inside & (position // CHUNK < (end + CHUNK - 1) // CHUNK)
        elif ALIGN > 1:
            inside = inside & (position < end)
        else:
            inside = inside & (position < num_classes)
    if (ROWS > 1) | PARTIAL:
        z = tl.load(z_ptr + (start[:, None] + position), mask=inside, other=0.0)
    else:
        z = tl.load(z_ptr + (start[:, None] + position))
    return z


@triton.jit  # type: ignore[untyped-decorator]
def in_chunks(  # type: ignore[no-untyped-def]
    z,
    shift,
    first,
    PARTIAL: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
    ACC: tl.constexpr,
    num_classes: tl.constexpr,
):
    """A loaded tile as (ROWS, LANES, CHUNK) in ACC, LOWEST where a chunk is partly absent."""
    z = z.to(ACC)
    if PARTIAL & ((ALIGN > 1) | (num_classes % CHUNK != 0)):
        column = first + tl.arange(0, BLOCK)[None, :] - shift[:, None]
        z = tl.where((column >= 0) & (column < num_classes), z, LOWEST)
    return tl.reshape(z, (ROWS, BLOCK // CHUNK, CHUNK))


@triton.jit  # type: ignore[untyped-decorator]
def load_chunk(  # type: ignore[no-untyped-def]
    z_ptr, start, shift, chunk, present, CHUNK: tl.constexpr, ALIGN: tl.constexpr, num_classes: tl.constexpr
):
    """(ROWS, CHUNK) logits of one chunk per row, as they are stored, and their columns; NOWHERE if not of the row."""
    position = (chunk * CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :]
    column = position - shift[:, None]
    valid = present[:, None]
    if (ALIGN > 1) | (num_classes % CHUNK != 0):
        valid = valid & (column >= 0) & (column < num_classes)
    z = tl.load(z_ptr + (start[:, None] + position), mask=valid, other=0.0)
    return z, tl.where(valid, column, NOWHERE)


@triton.jit  # type: ignore[untyped-decorator]
def add_tile(  # type: ignore[no-untyped-def]
    z,
    chunk,
    label_chunk,
    state,
    MASKED: tl.constexpr,
    CUT: tl.constexpr,
    WANT: tl.constexpr,
    ORDER: tl.constexpr,
    CHUNK: tl.constexpr,
    num_classes: tl.constexpr,
):
    """Join a tile (ROWS, LANES, CHUNK) to the running sums of every lane, each relative to the lane's largest.

    MASKED: single logits may be absent and are LOWEST; CUT: whole chunks may be. A lane that has seen no class keeps
    LOWEST and weighs exp(LOWEST - top) = 0 in the end, whatever its sums hold.
    """
    lane, mass, tilt, square, drift, count, size, at = state
    skip = chunk == label_chunk[:, None]
    if CUT:
        skip = skip | (chunk >= num_classes // CHUNK)
    peak = tl.where(skip, LOWEST, tl.max(z, axis=2))
    new = tl.maximum(lane, peak)
    if WITH_PLACE & WANT:
        at = tl.where(peak > lane, chunk, at)
    drop, here = lane - new, z - new[:, :, None]
    shrink, weight = quick_exp(drop), quick_exp(here)
    if WITH_ENTROPY & WANT:
        tilt = shrink * (tilt + drop * mass) + tl.where(skip, 0.0, tl.sum(weight * here, axis=2))
    if WITH_SQUARES & WANT:
        square = shrink * shrink * square + tl.where(skip, 0.0, tl.sum(weight * weight, axis=2))
    if WITH_MEAN & WANT:
        there = tl.where(z > LOWEST, 1.0, 0.0) if MASKED else here * 0.0 + 1.0
        drift += drop * count + tl.where(skip, 0.0, tl.sum(tl.where(z > LOWEST, here, 0.0) if MASKED else here, axis=2))
        count += tl.where(skip, 0.0, tl.sum(there, axis=2))
    if ORDER > 0:
        size += size_of(z, ORDER, MASKED)
    mass = shrink * mass + tl.where(skip, 0.0, tl.sum(weight, axis=2))
    return new, mass, tilt, square, drift, count, size, at


@triton.jit  # type: ignore[untyped-decorator]
def size_of(z, ORDER: tl.constexpr, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of |z| or z^2 by chunk; absent logits are 0, or LOWEST where MASKED."""
    if MASKED:
        z = tl.where(z > LOWEST, z, 0.0)
    return tl.sum(tl.abs(z) if ORDER == 1 else z * z, axis=2)


@triton.jit  # type: ignore[untyped-decorator]
def gaps_of(z, limit, absent, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """By chunk: the sum of limit - z where it is positive, and how often it is."""
    if MASKED:
        z = tl.where(z > LOWEST, z, limit[:, None, None])
    gaps = tl.sum(tl.maximum(limit[:, None, None] - z, 0.0), axis=2)
    times = tl.sum(tl.where(z < limit[:, None, None], 1.0, 0.0).to(z.dtype), axis=2)
    return tl.where(absent, 0.0, gaps), tl.where(absent, 0.0, times)


@triton.jit  # type: ignore[untyped-decorator]
def place_of(  # type: ignore[no-untyped-def]
    z_ptr,
    start,
    shift,
    alive,
    label,
    chunk,
    value,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    ACC: tl.constexpr,
    num_classes: tl.constexpr,
):
    """The lowest column of that chunk, not the label, that holds that value."""
    chunk = tl.minimum(chunk, (num_classes - 1) // CHUNK)
    around, column = load_chunk(z_ptr, start, shift, chunk, alive, CHUNK, ALIGN, num_classes)
    hit = (around.to(ACC) == value[:, None]) & (column != label[:, None])
    return tl.minimum(tl.min(tl.where(hit, column, NOWHERE), axis=1), num_classes - 1)


@triton.jit  # type: ignore[untyped-decorator]
def best_of(  # type: ignore[no-untyped-def]
    z_ptr,
    start,
    shift,
    alive,
    label,
    without,
    bound,
    BELOW: tl.constexpr,
    RAGGED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGN: tl.constexpr,
    num_classes: tl.constexpr,
):
    """Largest logit and its place except at `label` and `without`, strictly below `bound` if BELOW: another walk."""
    ROWS: tl.constexpr = bound.shape[0]
    ACC: tl.constexpr = bound.dtype
    value = tl.full((ROWS, BLOCK), LOWEST, dtype=ACC)
    at = tl.zeros((ROWS, BLOCK), dtype=tl.int32)
    for first in range(0, num_classes + ALIGN - 1, BLOCK):
        z = load_tile(z_ptr, start, shift, first, alive, True, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes).to(ACC)
        column = first + tl.arange(0, BLOCK)[None, :] - shift[:, None]
        keep = (column >= 0) & (column < num_classes) & (column != label[:, None]) & (column != without[:, None])
        if BELOW:
            keep = keep & (z < bound[:, None])
        z = tl.where(keep, z, LOWEST)
        at = tl.where(z > value, column, at)
        value = tl.maximum(value, z)
    best = tl.max(value, axis=1)
    return best, tl.minimum(first_place(value, best, at), num_classes - 1)


@triton.jit  # type: ignore[untyped-decorator]
def row_start(rows, ALIGN: tl.constexpr, stride: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the walk along each row begins, and how many logits before the row that is."""
    begin = rows.to(tl.int64) * stride
    start = begin // ALIGN * ALIGN
    return start, (begin - start).to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def label_of(y_ptr, rows, alive, shift, CHUNK: tl.constexpr, num_classes: tl.constexpr):  # type: ignore[no-untyped-def]
    """Label and its chunk; -1 for both where the label is bad."""
    wide = tl.load(y_ptr + rows, mask=alive, other=0)
    fine = alive & (wide >= 0) & (wide < num_classes)
    label = tl.where(fine, wide, -1).to(tl.int32)
    return label, tl.where(fine, (label + shift) // CHUNK, -1)


@triton.jit  # type: ignore[untyped-decorator]
def join_label_chunk(  # type: ignore[no-untyped-def]
    z_ptr,
    raw,
    alive,
    start,
    shift,
    label,
    label_chunk,
    near,
    near_column,
    HAS_NEAR: tl.constexpr,
    WANT: tl.constexpr,
    ACC: tl.constexpr,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    num_classes: tl.constexpr,
):
    """Join the chunk of the label, the label itself left out, and find the column of the largest other."""
    top, others, leaning, squares, drift, size, other, other_at, gaps, times = raw
    if HAS_NEAR:
        counts = (near_column != label[:, None]) & (near_column != NOWHERE)
        here = tl.where(counts, near - top[:, None], LOWEST)
        weight = quick_exp(here)
        others += tl.sum(weight, axis=1)
        if WITH_ENTROPY & WANT:
            leaning += tl.sum(weight * here, axis=1)
        if WITH_SQUARES & WANT:
            squares += tl.sum(weight * weight, axis=1)
        if WITH_MEAN & WANT:
            drift += tl.sum(tl.where(counts, here, 0.0), axis=1)
        if WITH_PLACE & WANT:
            peak = tl.max(tl.where(counts, near, LOWEST), axis=1)
            other_at = tl.where(
                peak > other, label_chunk, tl.where(peak == other, tl.minimum(other_at, label_chunk), other_at)
            )
            other = tl.maximum(other, peak)
    if WITH_PLACE & WANT:
        if CHUNK > 1:
            other_at = place_of(z_ptr, start, shift, alive, label, other_at, other, CHUNK, ALIGN, ACC, num_classes)
        other_at = tl.minimum(other_at, num_classes - 1)
    return top, others, leaning, squares, drift, size, other, other_at, gaps, times


@triton.jit  # type: ignore[untyped-decorator]
def sums_of_tile(  # type: ignore[no-untyped-def]
    z,
    shift,
    label_chunk,
    free,
    WANT: tl.constexpr,
    ORDER: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    num_classes: tl.constexpr,
):
    """The sums of rows that fit one tile."""
    LANES: tl.constexpr = BLOCK // CHUNK
    MASKED: tl.constexpr = num_classes % CHUNK != 0
    tile = in_chunks(z, shift, 0, True, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
    chunk = tl.arange(0, LANES)[None, :]
    absent = chunk >= (num_classes + CHUNK - 1) // CHUNK
    peaks = tl.where(absent, LOWEST, tl.max(tile, axis=2))
    top = tl.max(peaks, axis=1)
    skip = (chunk == label_chunk[:, None]) | absent
    here = tile - top[:, None, None]
    weight = quick_exp(here)
    zeros = top * 0.0
    leaning, squares, drift, size, other, gaps, times = zeros, zeros, zeros, zeros, zeros, zeros, zeros
    other_at = label_chunk
    others = tl.sum(tl.where(skip, 0.0, tl.sum(weight, axis=2)), axis=1)
    if WITH_ENTROPY & WANT:
        leaning = tl.sum(tl.where(skip, 0.0, tl.sum(weight * here, axis=2)), axis=1)
    if WITH_SQUARES & WANT:
        squares = tl.sum(tl.where(skip, 0.0, tl.sum(weight * weight, axis=2)), axis=1)
    if WITH_MEAN & WANT:
        drift = tl.sum(tl.where(tile > LOWEST, here, 0.0) if MASKED else here, axis=2)
        drift = tl.sum(tl.where(skip, 0.0, drift), axis=1)
    if ORDER > 0:
        size = tl.sum(size_of(tile, ORDER, MASKED), axis=1)
    if WITH_PLACE & WANT:
        lane = tl.where(skip, LOWEST, peaks)
        other = tl.max(lane, axis=1)
        other_at = first_place(lane, other, chunk)
    if WITH_EXCESS & WANT:
        gaps, times = gaps_of(tile, top - free, absent, MASKED)
        gaps, times = tl.sum(gaps, axis=1), tl.sum(times, axis=1)
    return top, others, leaning, squares, drift, size, other, other_at, gaps, times


@triton.jit  # type: ignore[untyped-decorator]
def sums_of_long_row(  # type: ignore[no-untyped-def]
    z_ptr,
    alive,
    start,
    shift,
    label_chunk,
    near_top,
    free,
    WANT: tl.constexpr,
    ORDER: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    RAGGED: tl.constexpr,
    STAGES: tl.constexpr,
    num_classes: tl.constexpr,
):
    """The sums of rows of several tiles: running sums in every lane, which meet at the end."""
    LANES: tl.constexpr = BLOCK // CHUNK
    # Tiles that no row's end reaches, wherever the row begins in its first chunk; then the others.
    FULL: tl.constexpr = num_classes // BLOCK
    TAILS: tl.constexpr = (num_classes + ALIGN - 1 - FULL * BLOCK + BLOCK - 1) // BLOCK
    MASKED: tl.constexpr = (ALIGN > 1) | (num_classes % CHUNK != 0)
    chunk = tl.arange(0, LANES)[None, :]
    lane = tl.full((ROWS, LANES), LOWEST, dtype=ACC)
    none = tl.zeros((ROWS, LANES), dtype=ACC)
    state = (lane, none, none, none, none, none, none, chunk + tl.zeros((ROWS, LANES), dtype=tl.int32))
    z = load_tile(z_ptr, start, shift, 0, alive, False, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
    z = in_chunks(z, shift, 0, ALIGN > 1, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
    state = add_tile(z, chunk, label_chunk, state, ALIGN > 1, False, WANT, ORDER, CHUNK, num_classes)
    for step in tl.range(1, FULL, num_stages=STAGES):
        first = step * BLOCK
        z = load_tile(z_ptr, start, shift, first, alive, False, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
        z = in_chunks(z, shift, first, False, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
        state = add_tile(z, step * LANES + chunk, label_chunk, state, False, False, WANT, ORDER, CHUNK, num_classes)
    for tail in tl.static_range(TAILS):
        first = (FULL + tail) * BLOCK
        z = load_tile(z_ptr, start, shift, first, alive, True, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
        z = in_chunks(z, shift, first, True, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
        state = add_tile(
            z, (FULL + tail) * LANES + chunk, label_chunk, state, MASKED, not MASKED, WANT, ORDER, CHUNK, num_classes
        )
    lane, mass, tilt, square, drift, count, size, at = state

    other = tl.max(lane, axis=1)
    top = tl.maximum(other, near_top)
    fall = lane - top[:, None]
    factor = quick_exp(fall)
    zeros = top * 0.0
    leaning, squares, drifts, sizes, gaps, times = zeros, zeros, zeros, zeros, zeros, zeros
    others, other_at = tl.sum(mass * factor, axis=1), label_chunk
    if WITH_ENTROPY & WANT:
        leaning = tl.sum(factor * (tilt + fall * mass), axis=1)
    if WITH_SQUARES & WANT:
        squares = tl.sum(square * factor * factor, axis=1)
    if WITH_MEAN & WANT:
        drifts = tl.sum(drift + fall * count, axis=1)
    if ORDER > 0:
        sizes = tl.sum(size, axis=1)
    if WITH_PLACE & WANT:
        other_at = first_place(lane, other, at)
    if WITH_EXCESS & WANT:
        # The largest logit is known only now: the row is read once more, from the cache.
        never, limit = chunk < 0, top - free
        z = load_tile(z_ptr, start, shift, 0, alive, False, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
        z = in_chunks(z, shift, 0, ALIGN > 1, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
        gap, often = gaps_of(z, limit, never, ALIGN > 1)
        for step in tl.range(1, FULL, num_stages=STAGES):
            first = step * BLOCK
            z = load_tile(z_ptr, start, shift, first, alive, False, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
            z = in_chunks(z, shift, first, False, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
            more, again = gaps_of(z, limit, never, False)
            gap, often = gap + more, often + again
        for tail in tl.static_range(TAILS):
            first = (FULL + tail) * BLOCK
            z = load_tile(z_ptr, start, shift, first, alive, True, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
            z = in_chunks(z, shift, first, True, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
            gone = (FULL + tail) * LANES + chunk >= (num_classes + ALIGN - 1 + CHUNK - 1) // CHUNK
            more, again = gaps_of(z, limit, gone, MASKED)
            gap, often = gap + more, often + again
        gaps, times = tl.sum(gap, axis=1), tl.sum(often, axis=1)
    return top, others, leaning, squares, drifts, sizes, other, other_at, gaps, times


@triton.jit  # type: ignore[untyped-decorator]
def sums_in_turn(  # type: ignore[no-untyped-def]
    z_ptr,
    y_ptr,
    n,
    margin,
    HAS_LABELS: tl.constexpr,
    WANT: tl.constexpr,
    ORDER: tl.constexpr,
    ACC: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    num_classes: tl.constexpr,
    stride: tl.constexpr,
):
    """The sums of GROUP rows that fit one tile each, one row after another; the result has a row in each thread."""
    turn, zeros = tl.arange(0, GROUP), tl.zeros((GROUP,), dtype=ACC)
    top, others, leaning, squares, drift, size, other = zeros, zeros, zeros, zeros, zeros, zeros, zeros
    gaps, times, other_at = zeros, zeros, turn * 0
    free = tl.full((1,), margin, dtype=ACC)
    for step in tl.range(0, GROUP, num_stages=STAGES):
        # Rows past the end repeat the last one; nothing of them is stored.
        row = tl.minimum(tl.program_id(0) * GROUP + step + tl.arange(0, 1), n - 1)
        start, shift = row_start(row, 1, stride)
        z = load_tile(z_ptr, start, shift, 0, row >= 0, num_classes < BLOCK, False, CHUNK, BLOCK, 1, 1, num_classes)
        label_chunk = shift - 1
        if HAS_LABELS:
            _, label_chunk = label_of(y_ptr, row, row >= 0, shift, CHUNK, num_classes)
        row_sums = sums_of_tile(z, shift, label_chunk, free, WANT, ORDER, ACC, 1, BLOCK, CHUNK, 1, num_classes)
        here = turn == step
        top = tl.where(here, tl.sum(row_sums[0], axis=0), top)
        others = tl.where(here, tl.sum(row_sums[1], axis=0), others)
        if WITH_ENTROPY & WANT:
            leaning = tl.where(here, tl.sum(row_sums[2], axis=0), leaning)
        if WITH_SQUARES & WANT:
            squares = tl.where(here, tl.sum(row_sums[3], axis=0), squares)
        if WITH_MEAN & WANT:
            drift = tl.where(here, tl.sum(row_sums[4], axis=0), drift)
        if ORDER > 0:
            size = tl.where(here, tl.sum(row_sums[5], axis=0), size)
        if WITH_PLACE & WANT:
            other = tl.where(here, tl.sum(row_sums[6], axis=0), other)
            other_at = tl.where(here, tl.sum(row_sums[7], axis=0), other_at)
        if WITH_EXCESS & WANT:
            gaps = tl.where(here, tl.sum(row_sums[8], axis=0), gaps)
            times = tl.where(here, tl.sum(row_sums[9], axis=0), times)
    return top, others, leaning, squares, drift, size, other, other_at, gaps, times
