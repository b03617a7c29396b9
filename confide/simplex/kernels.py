"""The Triton kernels: forward (every statistic, or a whole loss, from one reading of the logits) and backward.

A row that fits one tile is kept in registers: its largest logit first, then sums relative to it. A longer row is read
with a running maximum and running sums in every lane, and the lanes meet once, at its end (`row_sums`).
A row ends in one of two ways: its statistics are stored, or a loss's formula is applied at once and the loss is stored
with the terms of its gradient, which are all that the backward kernel knows (see `gradient`).

With GROUP > 1 a program sums that many rows one after another, the next ones' logits on their way meanwhile, and
ends them all at once, a row in each thread: the end of a row costs as many instructions as its 1,000 logits.
The backward kernel enters unaligned rows as `row_sums` does; chunks that lie in the row are written at once, the parts
of chunks at its two ends one by one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from confide.simplex.row_sums import (
    LOWEST,
    NOWHERE,
    WITH_BELOW,
    WITH_ENTROPY,
    WITH_EXCESS,
    WITH_MEAN,
    WITH_PLACE,
    WITH_SECOND,
    WITH_SQUARES,
    best_of,
    join_label_chunk,
    label_of,
    load_chunk,
    load_tile,
    log1p,
    quick_exp,
    row_start,
    sums_in_turn,
    sums_of_long_row,
    sums_of_tile,
)


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(  # type: ignore[no-untyped-def]
    z_ptr,
    y_ptr,
    out_ptr,
    rows_ptr,
    index_ptr,
    flag_ptr,
    vector_ptr,
    table_ptr,
    n,
    a: tl.float64,
    b: tl.float64,
    margin: tl.float64,
    FORMULA: tl.constexpr,
    TERM: tl.constexpr,
    MODE: tl.constexpr,
    BINS: tl.constexpr,
    BINS_BLOCK: tl.constexpr,
    HAS_LABELS: tl.constexpr,
    HAS_VECTOR: tl.constexpr,
    HAS_TABLE: tl.constexpr,
    DETACH: tl.constexpr,
    WANT: tl.constexpr,
    ORDER: tl.constexpr,
    ACC: tl.constexpr,
    TINY: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    RAGGED: tl.constexpr,
    STAGES: tl.constexpr,
    num_classes: tl.constexpr,
    stride: tl.constexpr,
):
    SPAN: tl.constexpr = ROWS * GROUP
    HAS_NEAR: tl.constexpr = HAS_LABELS & (CHUNK > 1)
    rows = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    alive = rows < n
    start, shift = row_start(rows, ALIGN, stride)
    zeros, free = tl.zeros((SPAN,), dtype=ACC), tl.full((SPAN,), margin, dtype=ACC)
    label, label_chunk = shift * 0 - 1, shift * 0 - 1
    z_true, near, near_column = zeros + LOWEST, zeros, shift
    if HAS_LABELS:
        label, label_chunk = label_of(y_ptr, rows, alive, shift, CHUNK, num_classes)
        z_true = tl.load(z_ptr + (start + shift + label), mask=label >= 0, other=0.0).to(ACC)
        if HAS_NEAR:
            chunk = tl.maximum(label_chunk, 0)
            near, near_column = load_chunk(z_ptr, start, shift, chunk, label >= 0, CHUNK, ALIGN, num_classes)
            near = near.to(ACC)
    if GROUP > 1:
        raw = sums_in_turn(
            z_ptr, y_ptr, n, margin, HAS_LABELS, WANT, ORDER, ACC, GROUP, BLOCK, CHUNK, STAGES, num_classes, stride
        )
    elif num_classes <= BLOCK:
        z = load_tile(
            z_ptr, start, shift, 0, alive, num_classes < BLOCK, RAGGED, CHUNK, BLOCK, ALIGN, ROWS, num_classes
        )
        raw = sums_of_tile(z, shift, label_chunk, free, WANT, ORDER, ACC, ROWS, BLOCK, CHUNK, ALIGN, num_classes)
    else:
        near_top = z_true
        if HAS_NEAR:
            near_top = tl.max(tl.where(near_column != NOWHERE, near, LOWEST), axis=1)
        raw = sums_of_long_row(
            z_ptr,
            alive,
            start,
            shift,
            label_chunk,
            near_top,
            free,
            WANT,
            ORDER,
            ACC,
            ROWS,
            BLOCK,
            CHUNK,
            ALIGN,
            RAGGED,
            STAGES,
            num_classes,
        )
    top, others, leaning, rest_squares, drift, size, other, other_at, gaps, times = join_label_chunk(
        z_ptr,
        raw,
        alive,
        start,
        shift,
        label,
        label_chunk,
        near,
        near_column,
        HAS_NEAR,
        WANT,
        ACC,
        CHUNK,
        ALIGN,
        num_classes,
    )

    below_top, own, bad = zeros, zeros, rows < 0
    if HAS_LABELS:
        below_top = z_true - top
        own = quick_exp(below_top)
        bad = alive & (label < 0)
    total = others + own
    inverse_total = 1.0 / total
    log_total = tl.log(total)
    one_minus, p_true = others * inverse_total, own * inverse_total
    small = others < own
    log_p = tl.where(small, -log1p(others / tl.where(small, own, 1.0)), below_top - log_total)
    broken = alive & ((log_total != log_total) | (tl.abs(top) == float("inf")))
    wrong = bad | broken
    if HAS_LABELS:
        tl.store(flag_ptr + rows * 0, 1, mask=bad)
    tl.store(flag_ptr + 1 + rows * 0, 1, mask=broken)
    log_total = tl.where(wrong, float("nan"), log_total)
    log_p = tl.where(wrong, float("nan"), log_p)
    entropy, squares, mean_log, norm, excess, share = zeros, zeros, zeros, zeros, zeros, zeros
    if WITH_ENTROPY & WANT:
        entropy = log_total - (leaning + own * below_top) * inverse_total
    if WITH_SQUARES & WANT:
        rest_squares = rest_squares * inverse_total * inverse_total
        squares = rest_squares + p_true * p_true
    if WITH_MEAN & WANT:
        mean_log = (drift + below_top) / num_classes - log_total
    if ORDER > 0:
        norm = size if ORDER == 1 else tl.sqrt(size)
    if WITH_EXCESS & WANT:
        excess, share = gaps / num_classes, times / num_classes
    p_other, p_below = zeros, zeros
    place, below_place = label, label
    if WITH_PLACE & WANT:
        p_other = quick_exp(other - top) * inverse_total
        place = other_at
        if HAS_LABELS:
            ahead = (z_true > other) | ((z_true == other) & (label < other_at))
            place = tl.where((label >= 0) & ahead, label, other_at)
    if WITH_BELOW & WANT:
        below, below_place = best_of(
            z_ptr, start, shift, alive, label, label, z_true, True, RAGGED, CHUNK, BLOCK, ALIGN, num_classes
        )
        p_below = quick_exp(below - top) * inverse_total

    tl.store(rows_ptr + rows, top, mask=alive)
    tl.store(rows_ptr + n + rows, log_total, mask=alive)
    if FORMULA == 0:
        p_second, second_at = zeros, label
        if WITH_SECOND & WANT:
            second, second_at = best_of(
                z_ptr, start, shift, alive, label, other_at, top, False, RAGGED, CHUNK, BLOCK, ALIGN, num_classes
            )
            ahead = (place != label) & (z_true >= second)
            second_at = tl.where(place == label, other_at, tl.where(ahead, label, second_at))
            second = tl.where(place == label, other, tl.where(ahead, z_true, second))
            p_second = quick_exp(second - top) * inverse_total
        tl.store(out_ptr + 0 * n + rows, log_p, mask=alive)
        tl.store(out_ptr + 1 * n + rows, p_true, mask=alive)
        tl.store(out_ptr + 2 * n + rows, entropy, mask=alive)
        tl.store(out_ptr + 3 * n + rows, inverse_total, mask=alive)
        tl.store(out_ptr + 4 * n + rows, p_second, mask=alive)
        tl.store(out_ptr + 5 * n + rows, p_other, mask=alive)
        tl.store(out_ptr + 6 * n + rows, p_below, mask=alive)
        tl.store(out_ptr + 7 * n + rows, squares, mask=alive)
        tl.store(out_ptr + 8 * n + rows, mean_log, mask=alive)
        tl.store(out_ptr + 9 * n + rows, top + log_total, mask=alive)
        tl.store(out_ptr + 10 * n + rows, norm, mask=alive)
        tl.store(out_ptr + 11 * n + rows, excess, mask=alive)
        tl.store(out_ptr + 12 * n + rows, share, mask=alive)
        tl.store(index_ptr + rows, place.to(tl.int64), mask=alive)
        tl.store(index_ptr + n + rows, second_at.to(tl.int64), mask=alive)
        tl.store(index_ptr + 2 * n + rows, other_at.to(tl.int64), mask=alive)
        tl.store(index_ptr + 3 * n + rows, below_place.to(tl.int64), mask=alive)
    else:
        first, second_number = tl.full((SPAN,), a, dtype=ACC), tl.full((SPAN,), b, dtype=ACC)
        if FORMULA == 1:
            if HAS_TABLE:
                first = tl.load(table_ptr + label, mask=label >= 0, other=0.0).to(ACC)
            strength = second_number
            if HAS_VECTOR:
                strength *= tl.load(vector_ptr + rows, mask=alive, other=0.0).to(ACC)
            # `own_slope` is the gradient at the label itself, made of 1 - p_y so that no digits cancel.
            value, scale, own_slope = -first * log_p, first, -first * one_minus
            if TERM == 1:
                value += strength * entropy
                scale -= strength * (entropy - log_total)
                own_slope -= strength * p_true * (log_p + entropy)
                tl.store(rows_ptr + 4 * n + rows, -strength, mask=alive)
            if TERM == 2:
                value += strength * mean_log
                scale -= strength
                own_slope += strength / num_classes - strength * p_true
                tl.store(rows_ptr + 4 * n + rows, strength, mask=alive)
            if TERM == 3:
                value += strength * one_minus
                scale += strength * p_true
                own_slope -= strength * p_true * one_minus
            if TERM == 4:
                value = one_minus * one_minus + rest_squares
                scale = 2 * (p_true * one_minus - rest_squares)
                own_slope = p_true * scale - 2 * p_true * one_minus
                tl.store(rows_ptr + 4 * n + rows, zeros + 2.0, mask=alive)
            if TERM == 5:
                value += strength * norm
                slope = strength if ORDER == 1 else strength / tl.maximum(norm, TINY)
                sign = tl.where(z_true > 0, 1.0, tl.where(z_true < 0, -1.0, 0.0))
                own_slope += slope * (sign if ORDER == 1 else z_true)
                tl.store(rows_ptr + 4 * n + rows, slope, mask=alive)
            if TERM == 6:
                value += strength * excess
                own_slope -= tl.where(z_true < top - free, strength / num_classes, 0.0)
                tl.store(rows_ptr + 4 * n + rows, strength, mask=alive)
                tl.store(rows_ptr + 5 * n + rows, strength * share, mask=alive)
                tl.store(index_ptr + rows, place.to(tl.int64), mask=alive)
        else:
            gamma, rival = first, zeros
            if MODE == 2:
                rival = p_other
            if MODE == 3:
                rival = p_below
            if MODE == 4:
                gamma = tl.where(p_true < 0.2, 5.0, 3.0).to(ACC)
            if FORMULA == 3:
                bins = tl.arange(0, BINS_BLOCK)[None, :]
                # Edge i + 1 for bin i: the last bin has no upper edge and is never counted.
                edge = tl.load(table_ptr + 1 + bins, mask=bins < BINS - 1, other=float("inf")).to(ACC)
                level = tl.load(vector_ptr + bins, mask=bins < BINS, other=0.0).to(ACC)
                bin_at = tl.sum((p_true[:, None] >= edge).to(tl.int32), axis=1)
                bin_level = tl.sum(tl.where(bins == bin_at[:, None], level, 0.0), axis=1)
                if MODE == 5:
                    gamma = bin_level
                else:
                    # Accuracy of the bin, NaN where nothing is known of it.
                    gamma = tl.exp(tl.minimum(first * tl.where(bin_level != bin_level, 0.0, p_true - bin_level), 80.0))
            inverse = gamma < 0
            if MODE == 1:
                inverse = rows >= 0
            gamma = tl.abs(gamma)
            x = tl.where(inverse, 1.0 + p_true, one_minus + rival)
            clipped = x < TINY
            x = tl.where(clipped, TINY, x)
            fade = tl.exp(gamma * tl.log(x))
            slope = tl.where(clipped, 0.0, gamma * fade / x)
            if DETACH:
                slope = zeros
            value = -fade * log_p
            pull = -fade - log_p * slope * tl.where(inverse, p_true, -p_true)
            scale, own_slope = -pull, pull * one_minus
            if (MODE == 2) | (MODE == 3):
                push = -log_p * slope * rival
                scale -= push
                own_slope -= p_true * push
                tl.store(rows_ptr + 4 * n + rows, push, mask=alive)
                where_at = other_at if MODE == 2 else below_place
                tl.store(index_ptr + rows, where_at.to(tl.int64), mask=alive)
        tl.store(out_ptr + rows, tl.where(wrong, float("nan"), value), mask=alive)
        tl.store(rows_ptr + 2 * n + rows, tl.where(wrong, float("nan"), scale), mask=alive)
        tl.store(rows_ptr + 3 * n + rows, own_slope, mask=alive)


@triton.jit  # type: ignore[untyped-decorator]
def backward_kernel(  # type: ignore[no-untyped-def]
    z_ptr,
    y_ptr,
    grad_ptr,
    rows_ptr,
    index_ptr,
    out_ptr,
    n,
    grad_stride,
    margin: tl.float64,
    HAS_GRAD: tl.constexpr,
    SHARED: tl.constexpr,
    SCALE: tl.constexpr,
    LABEL: tl.constexpr,
    SLOPE: tl.constexpr,
    SQUARE: tl.constexpr,
    CONSTANT: tl.constexpr,
    ABSOLUTE: tl.constexpr,
    LINEAR: tl.constexpr,
    EXCESS: tl.constexpr,
    POINTS: tl.constexpr,
    FIRST_POINT: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ALIGN: tl.constexpr,
    RAGGED: tl.constexpr,
    num_classes: tl.constexpr,
    stride: tl.constexpr,
):
    # Each term names its row in `rows`, 0 where it is absent (see `gradient`); rows 0 and 1 are the largest logit
    # and the logarithm of the sum relative to it. `LABEL` is the whole gradient at the label.
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    alive = rows < n
    begin = rows.to(tl.int64) * stride
    start = begin // ALIGN * ALIGN
    shift = (begin - start).to(tl.int32)[:, None]
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    column = position - shift
    inside = (column >= 0) & (column < num_classes) & alive[:, None]
    if (ALIGN > 1) & (not RAGGED):
        # Whole chunks; the last may reach into the next row, never past the last row.
        near = position // CHUNK < (shift + num_classes + CHUNK - 1) // CHUNK
        z = tl.load(z_ptr + (start[:, None] + position), mask=near, other=0.0).to(ACC)
    elif ALIGN > 1:
        z = tl.load(z_ptr + (start[:, None] + position), mask=inside, other=0.0).to(ACC)
    else:
        inside = (position < num_classes) & alive[:, None]
        z = tl.load(z_ptr + (begin[:, None] + position), mask=inside, other=0.0).to(ACC)
    top = tl.load(rows_ptr + rows, mask=alive, other=0.0)[:, None]
    log_sum = tl.load(rows_ptr + n + rows, mask=alive, other=0.0)[:, None]
    shifted = z - top
    p = tl.exp2(shifted * 1.4426950408889634 - log_sum * 1.4426950408889634)
    term = tl.zeros((ROWS, BLOCK), dtype=ACC)
    if SCALE > 0:
        term += tl.load(rows_ptr + SCALE * n + rows, mask=alive, other=0.0)[:, None]
    if SLOPE > 0:
        term += shifted * tl.load(rows_ptr + SLOPE * n + rows, mask=alive, other=0.0)[:, None]
    if SQUARE > 0:
        term += p * tl.load(rows_ptr + SQUARE * n + rows, mask=alive, other=0.0)[:, None]
    out = p * term
    if CONSTANT > 0:
        out += tl.load(rows_ptr + CONSTANT * n + rows, mask=alive, other=0.0)[:, None] / num_classes
    if ABSOLUTE > 0:
        sign = tl.where(z > 0, 1.0, tl.where(z < 0, -1.0, 0.0))
        out += sign * tl.load(rows_ptr + ABSOLUTE * n + rows, mask=alive, other=0.0)[:, None]
    if LINEAR > 0:
        out += z * tl.load(rows_ptr + LINEAR * n + rows, mask=alive, other=0.0)[:, None]
    if EXCESS > 0:
        free = tl.full((ROWS,), margin, dtype=ACC)[:, None]
        share = tl.load(rows_ptr + EXCESS * n + rows, mask=alive, other=0.0)[:, None] / num_classes
        out -= tl.where(z < top - free, share, 0.0)
    if LABEL > 0:
        label = tl.load(y_ptr + rows, mask=alive, other=0).to(tl.int32)[:, None]
        out = tl.where(column == label, tl.load(rows_ptr + LABEL * n + rows, mask=alive, other=0.0)[:, None], out)
    for point in tl.static_range(POINTS):
        at = tl.load(index_ptr + point * n + rows, mask=alive, other=0).to(tl.int32)[:, None]
        pull = tl.load(rows_ptr + (FIRST_POINT + point) * n + rows, mask=alive, other=0.0)[:, None]
        out += tl.where(column == at, pull, 0.0)
    if HAS_GRAD:
        grad = tl.load(grad_ptr + rows.to(tl.int64) * grad_stride, mask=alive, other=0.0).to(ACC)[:, None]
        out *= grad / n if SHARED else grad
    if ALIGN > 1:
        whole = (position // CHUNK >= (shift + CHUNK - 1) // CHUNK) & (
            position // CHUNK < (shift + num_classes) // CHUNK
        )
        tl.store(out_ptr + (start[:, None] + position), out, mask=whole)
        if (tl.program_id(1) == 0) | (tl.program_id(1) >= tl.num_programs(1) - 2):
            tl.store(out_ptr + (start[:, None] + position), out, mask=inside & (whole == 0))
    else:
        tl.store(out_ptr + rows.to(tl.int64)[:, None] * num_classes + position, out, mask=inside)
