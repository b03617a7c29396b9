"""Raw sums of rows for the forward Triton kernel of `simplex`: of rows kept in registers, and of longer ones.

Both give the tuple (top, others, leaning, squares, drift, size, other, other_at, gaps, times) of vectors over ROWS,
relative to the row's largest logit `top` and without the label's chunk: the sums of e^(z - top), e^(z - top) (z - top),
e^(2 (z - top)) and z - top, and the largest logit with its chunk; and with it: the sum of |z| or z^2, how far the
logits lie below top - margin together, and how many do. `finish` joins the chunk of the label.
"""

from __future__ import annotations

import triton
import triton.language as tl

from confide.core.simplex_parts import (
    LOWEST,
    NOWHERE,
    WITH_ENTROPY,
    WITH_EXCESS,
    WITH_MEAN,
    WITH_PLACE,
    WITH_SQUARES,
    first_place,
    quick_exp,
)
from confide.core.simplex_walk import absorb, gaps_of, in_chunks, load_tile, place_of, size_of


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
def finish(  # type: ignore[no-untyped-def]
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
def survey_tile(  # type: ignore[no-untyped-def]
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
def survey_walk(  # type: ignore[no-untyped-def]
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
    state = absorb(z, chunk, label_chunk, state, ALIGN > 1, False, WANT, ORDER, CHUNK, num_classes)
    for step in tl.range(1, FULL, num_stages=STAGES):
        first = step * BLOCK
        z = load_tile(z_ptr, start, shift, first, alive, False, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
        z = in_chunks(z, shift, first, False, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
        state = absorb(z, step * LANES + chunk, label_chunk, state, False, False, WANT, ORDER, CHUNK, num_classes)
    for tail in tl.static_range(TAILS):
        first = (FULL + tail) * BLOCK
        z = load_tile(z_ptr, start, shift, first, alive, True, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes)
        z = in_chunks(z, shift, first, True, CHUNK, BLOCK, ALIGN, ROWS, ACC, num_classes)
        state = absorb(
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
def survey_in_turn(  # type: ignore[no-untyped-def]
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
        one = survey_tile(z, shift, label_chunk, free, WANT, ORDER, ACC, 1, BLOCK, CHUNK, 1, num_classes)
        here = turn == step
        top = tl.where(here, tl.sum(one[0], axis=0), top)
        others = tl.where(here, tl.sum(one[1], axis=0), others)
        if WITH_ENTROPY & WANT:
            leaning = tl.where(here, tl.sum(one[2], axis=0), leaning)
        if WITH_SQUARES & WANT:
            squares = tl.where(here, tl.sum(one[3], axis=0), squares)
        if WITH_MEAN & WANT:
            drift = tl.where(here, tl.sum(one[4], axis=0), drift)
        if ORDER > 0:
            size = tl.where(here, tl.sum(one[5], axis=0), size)
        if WITH_PLACE & WANT:
            other = tl.where(here, tl.sum(one[6], axis=0), other)
            other_at = tl.where(here, tl.sum(one[7], axis=0), other_at)
        if WITH_EXCESS & WANT:
            gaps = tl.where(here, tl.sum(one[8], axis=0), gaps)
            times = tl.where(here, tl.sum(one[9], axis=0), times)
    return top, others, leaning, squares, drift, size, other, other_at, gaps, times
