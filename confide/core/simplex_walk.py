"""How the forward Triton kernel of `simplex` walks along its rows: logits in, a few raw sums per row out.

A row is walked in tiles of `LANES` chunks of `CHUNK` logits, 16 bytes where the memory allows it, so that a thread
reads a chunk by one instruction and adds it up by itself. Where rows do not begin at a multiple of 16 bytes (ALIGN > 1)
the walk begins at the multiple before the row, `shift` logits early, and what is not of the row counts as absent.

The chunk that holds the label is left out of the sums and joins last without the label, so that 1 - p_y is a sum of
the others and keeps all its digits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from confide.core.simplex_parts import (
    LOWEST,
    NOWHERE,
    WITH_ENTROPY,
    WITH_MEAN,
    WITH_PLACE,
    WITH_SQUARES,
    first_place,
    quick_exp,
)


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
def absorb(  # type: ignore[no-untyped-def]
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
