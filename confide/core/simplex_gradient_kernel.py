"""The backward Triton kernel of `simplex`: the gradient of anything, from a few numbers per row.

Rows that do not begin at a multiple of 16 bytes (ALIGN > 1) are entered at the multiple before, as in `simplex_walk`;
chunks that lie in the row are written at once, the parts of chunks at its two ends one by one.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    LINEAR_TERM: tl.constexpr,
    EXCESS_TERM: tl.constexpr,
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
    # Each term names its row in `rows`, 0 where it is absent (see simplex_backward); rows 0 and 1 are the largest logit
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
    if LINEAR_TERM > 0:
        out += z * tl.load(rows_ptr + LINEAR_TERM * n + rows, mask=alive, other=0.0)[:, None]
    if EXCESS_TERM > 0:
        free = tl.full((ROWS,), margin, dtype=ACC)[:, None]
        share = tl.load(rows_ptr + EXCESS_TERM * n + rows, mask=alive, other=0.0)[:, None] / num_classes
        out -= tl.where(z < top - free, share, 0.0)
    if LABEL > 0:
        label = tl.load(y_ptr + rows, mask=alive, other=0).to(tl.int32)[:, None]
        out = tl.where(column == label, tl.load(rows_ptr + LABEL * n + rows, mask=alive, other=0.0)[:, None], out)
    for point in tl.static_range(POINTS):
        at = tl.load(index_ptr + point * n + rows, mask=alive, other=0).to(tl.int32)[:, None]
        pull = tl.load(rows_ptr + (FIRST_POINT + point) * n + rows, mask=alive, other=0.0)[:, None]
        out += tl.where(column == at, pull, 0.0)
    if HAS_GRAD:
        given = tl.load(grad_ptr + rows.to(tl.int64) * grad_stride, mask=alive, other=0.0).to(ACC)[:, None]
        out *= given / n if SHARED else given
    if ALIGN > 1:
        whole = (position // CHUNK >= (shift + CHUNK - 1) // CHUNK) & (
            position // CHUNK < (shift + num_classes) // CHUNK
        )
        tl.store(out_ptr + (start[:, None] + position), out, mask=whole)
        if (tl.program_id(1) == 0) | (tl.program_id(1) >= tl.num_programs(1) - 2):
            tl.store(out_ptr + (start[:, None] + position), out, mask=inside & (whole == 0))
    else:
        tl.store(out_ptr + rows.to(tl.int64)[:, None] * num_classes + position, out, mask=inside)
