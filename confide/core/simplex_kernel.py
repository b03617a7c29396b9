"""The forward Triton kernel of `simplex`: every statistic, or a whole loss, from one reading of the logits.

Each lane walks its columns with a running maximum and sums relative to it; lanes meet once, at the end of the row. The
label's own logit is left out of the walk and joins last, so 1 - p_y is a sum of the others and keeps all its digits.
A row ends in one of two ways: its statistics are stored, or a loss's formula is applied at once and the loss is stored
with the terms of its gradient, which are all that the backward kernel knows (see `simplex_backward`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from confide.core.simplex_parts import first_place, log1p, quick_exp


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
    WANT_ENTROPY: tl.constexpr,
    WANT_SQUARES: tl.constexpr,
    WANT_MEAN: tl.constexpr,
    WANT_PLACE: tl.constexpr,
    WANT_SECOND: tl.constexpr,
    WANT_BELOW: tl.constexpr,
    ORDER: tl.constexpr,
    WANT_EXCESS: tl.constexpr,
    ACC: tl.constexpr,
    TINY: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    num_classes: tl.constexpr,
    stride: tl.constexpr,
):
    # Stands for a class that is not there: -2^100, finite so that no 0 * infinity appears, exact in every dtype.
    LOWEST: tl.constexpr = -1267650600228229401496703205376.0
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    alive = rows < n
    base = z_ptr + rows.to(tl.int64)[:, None] * stride
    columns = tl.arange(0, BLOCK)[None, :]
    zeros = tl.zeros((ROWS,), dtype=ACC)
    free = tl.full((ROWS,), margin, dtype=ACC)
    label = tl.zeros((ROWS,), dtype=tl.int32) - 1
    z_true = zeros + LOWEST
    bad = alive & (rows < 0)
    if HAS_LABELS:
        wide = tl.load(y_ptr + rows, mask=alive, other=0)
        fine = alive & (wide >= 0) & (wide < num_classes)
        bad = alive & ((wide < 0) | (wide >= num_classes))
        label = tl.where(fine, wide, -1).to(tl.int32)
        z_true = tl.load(z_ptr + rows.to(tl.int64) * stride + label, mask=fine, other=0.0).to(ACC)

    # A lane that has seen no class keeps LOWEST and weighs exp(LOWEST - top) = 0 in the end, whatever its sums hold.
    z = tl.load(base + columns, mask=(columns < num_classes) & alive[:, None], other=0.0).to(ACC)
    z = tl.where((columns < num_classes) & (columns != label[:, None]), z, LOWEST)
    lane, lane2 = z, tl.full((ROWS, BLOCK), LOWEST, dtype=ACC)
    at = tl.zeros((ROWS, BLOCK), dtype=tl.int32) + columns
    at2, below_at = at, at
    mass, square, count = lane2 * 0.0 + 1.0, lane2 * 0.0 + 1.0, lane2 * 0.0 + 1.0
    tilt, drift = lane2 * 0.0, lane2 * 0.0
    below = tl.where(z < z_true[:, None], z, LOWEST)
    size = tilt
    if ORDER == 1:
        size = tl.where(z > LOWEST, tl.abs(z), 0.0)
    if ORDER == 2:
        size = tl.where(z > LOWEST, z * z, 0.0)
    if num_classes > BLOCK:
        for start in range(BLOCK, num_classes, BLOCK):
            column = start + columns
            z = tl.load(base + column, mask=(column < num_classes) & alive[:, None], other=0.0).to(ACC)
            z = tl.where((column < num_classes) & (column != label[:, None]), z, LOWEST)
            new = tl.maximum(lane, z)
            if WANT_SECOND:
                at2 = tl.where(z > lane, at, tl.where(z > lane2, column, at2))
                lane2 = tl.where(z > lane, lane, tl.maximum(lane2, z))
            if WANT_PLACE:
                at = tl.where(z > lane, column, at)
            if WANT_BELOW:
                lower = tl.where(z < z_true[:, None], z, LOWEST)
                below_at = tl.where(lower > below, column, below_at)
                below = tl.maximum(below, lower)
            drop, here = lane - new, z - new
            shrink, weight = quick_exp(drop), quick_exp(here)
            if WANT_ENTROPY:
                tilt = shrink * (tilt + drop * mass) + weight * here
            if WANT_SQUARES:
                square = shrink * shrink * square + weight * weight
            if WANT_MEAN:
                there = tl.where(z > LOWEST, 1.0, 0.0)
                drift += tl.where(lane > LOWEST, drop * count, 0.0) + there * here
                count = tl.where(lane > LOWEST, count, 0.0) + there
            if ORDER == 1:
                size += tl.where(z > LOWEST, tl.abs(z), 0.0)
            if ORDER == 2:
                size += tl.where(z > LOWEST, z * z, 0.0)
            mass = shrink * mass + weight
            lane = new

    other = tl.max(lane, axis=1)
    top = tl.maximum(other, z_true)
    fall = lane - top[:, None]
    factor = quick_exp(fall)
    others = tl.sum(mass * factor, axis=1)
    own = tl.exp(z_true - top)
    total = others + own
    tail = z_true - top
    log_total = tl.log(total)
    one_minus, p_true = others / total, own / total
    small = others < own
    log_p = tl.where(small, -log1p(others / tl.where(small, own, 1.0)), tail - log_total)
    broken = alive & ((log_total != log_total) | (tl.abs(top) == float("inf")))
    wrong = bad | broken
    if HAS_LABELS:
        tl.store(flag_ptr + rows * 0, 1, mask=bad)
    tl.store(flag_ptr + 1 + rows * 0, 1, mask=broken)
    log_total = tl.where(wrong, float("nan"), log_total)
    log_p = tl.where(wrong, float("nan"), log_p)
    entropy, squares, mean_log, norm = zeros, zeros, zeros, zeros
    if WANT_ENTROPY:
        entropy = log_total - (tl.sum(factor * (tilt + fall * mass), axis=1) + own * tail) / total
        if not HAS_LABELS:
            entropy = log_total - tl.sum(factor * (tilt + fall * mass), axis=1) / total
    if WANT_SQUARES:
        rest_squares = tl.sum(square * factor * factor, axis=1) / (total * total)
        squares = rest_squares + p_true * p_true
    if WANT_MEAN:
        drift = tl.sum(tl.where(lane > LOWEST, drift + fall * count, 0.0), axis=1)
        mean_log = (drift + tail if HAS_LABELS else drift) / num_classes - log_total
    if ORDER == 1:
        norm = tl.sum(size, axis=1) + (tl.abs(z_true) if HAS_LABELS else zeros)
    if ORDER == 2:
        norm = tl.sqrt(tl.sum(size, axis=1) + (z_true * z_true if HAS_LABELS else zeros))
    p_other, p_below = tl.exp(other - top) / total, zeros
    place, other_at, below_place = label, label, label
    if WANT_PLACE:
        other_at = first_place(lane, other, at)
        place = tl.where((z_true > other) | ((z_true == other) & (label >= 0) & (label < other_at)), label, other_at)
    if WANT_BELOW:
        lower_top = tl.max(below, axis=1)
        below_place = first_place(below, lower_top, below_at)
        p_below = tl.exp(lower_top - top) / total
    excess, share = zeros, zeros
    if WANT_EXCESS:
        gap = top - free - z_true
        excess = tl.where((gap > 0) & (label >= 0), gap, 0.0)
        share = tl.where((gap > 0) & (label >= 0), 1.0, 0.0).to(ACC)
        if num_classes <= BLOCK:
            gaps = (top - free)[:, None] - lane
            over = (lane > LOWEST) & (gaps > 0)
            excess += tl.sum(tl.where(over, gaps, 0.0), axis=1)
            share += tl.sum(tl.where(over, 1.0, 0.0).to(ACC), axis=1)
        else:
            # The largest logit is known only now: the row is read once more, from the cache.
            for start in range(0, num_classes, BLOCK):
                column = start + columns
                inside = (column < num_classes) & (column != label[:, None]) & alive[:, None]
                z = tl.load(base + column, mask=inside, other=0.0).to(ACC)
                gaps = (top - free)[:, None] - z
                over = inside & (gaps > 0)
                excess += tl.sum(tl.where(over, gaps, 0.0), axis=1)
                share += tl.sum(tl.where(over, 1.0, 0.0).to(ACC), axis=1)
        excess, share = excess / num_classes, share / num_classes

    tl.store(rows_ptr + rows, top, mask=alive)
    tl.store(rows_ptr + n + rows, log_total, mask=alive)
    if FORMULA == 0:
        p_second, second_at = zeros, label
        if WANT_SECOND:
            # Among the others: the leader's lane offers its second, every other lane its first.
            lead = at == other_at[:, None]
            rest = tl.where(lead, lane2, lane)
            second = tl.max(rest, axis=1)
            second_at = first_place(rest, second, tl.where(lead, at2, at))
            ahead = (place != label) & (z_true >= second)
            second_at = tl.where(place == label, other_at, tl.where(ahead, label, second_at))
            second = tl.where(place == label, other, tl.where(ahead, z_true, second))
            p_second = tl.exp(second - top) / total
        tl.store(out_ptr + 0 * n + rows, log_p, mask=alive)
        tl.store(out_ptr + 1 * n + rows, p_true, mask=alive)
        tl.store(out_ptr + 2 * n + rows, entropy, mask=alive)
        tl.store(out_ptr + 3 * n + rows, 1.0 / total, mask=alive)
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
        first, second_number = tl.full((ROWS,), a, dtype=ACC), tl.full((ROWS,), b, dtype=ACC)
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
                found = tl.sum(tl.where(bins == bin_at[:, None], level, 0.0), axis=1)
                if MODE == 5:
                    gamma = found
                else:
                    # Accuracy of the bin, NaN where nothing is known of it.
                    gamma = tl.exp(tl.minimum(first * tl.where(found != found, 0.0, p_true - found), 80.0))
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
