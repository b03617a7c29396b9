"""What one reading of logits on a GPU tells of every sample, and of every class in bins of its probability.

The kernel of `facts.facts_of` for logits that live there: nothing of size n x c is written or leaves the device. A row
stays in registers; a program sums the probabilities of every class over its rows and adds them up once, at its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from confide.simplex.row_sums import first_place, log1p

NAMES = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy", "doubt")
"""Rows of `SampleFacts.values`."""
WIDEST = 1 << 14
"""Classes of a row that fits into registers."""
MOST_BINS = 64
"""Bins up to which a row's classes above the first edge are few enough to be taken one by one."""
TILE = 1 << 9
"""Logits that a program looks at together where rows are shorter."""
PROGRAMS = 16
"""Programs on every multiprocessor at once: while some wait for memory the others calculate."""


@dataclass(frozen=True, eq=False)
class SampleFacts:
    """Facts by name (`9 n`), predicted classes, sums of probabilities by class, and count, sum and sum of squares of
    the probabilities in every class and bin (`3 c bins`), of those at least as large as the first edge.
    """

    values: Tensor
    prediction: Tensor
    columns: Tensor
    cells: Tensor


@triton.jit  # type: ignore[untyped-decorator]
def sample_facts_kernel(  # type: ignore[no-untyped-def]
    z_ptr,
    label_ptr,
    weight_ptr,
    value_ptr,
    prediction_ptr,
    column_ptr,
    cell_ptr,
    edge_ptr,
    n,
    stride,
    num_classes,
    bins,
    HAS_LABELS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    COUNTED: tl.constexpr,
    LEFT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < num_classes
    totals = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(n, ROWS), tl.num_programs(0)):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        alive = row < n
        there = alive[:, None] & inside
        z = tl.load(z_ptr + row[:, None] * stride + column, mask=there, other=float("-inf")).to(tl.float32)
        top = tl.max(z, axis=1)
        at = first_place(z, top, column)
        top = tl.where(alive, top, 0.0)
        shifted = z - top[:, None]
        # Without the largest term the sum keeps its digits when all others vanish: 1 - p = others / (1 + others).
        mass = tl.where(column == at[:, None], 0.0, tl.exp(shifted))
        others = tl.sum(mass, axis=1)
        scale = 1.0 + others
        spread = tl.sum(tl.where(mass > 0, mass * shifted, 0.0), axis=1)  # a class ruled out: 0 * log 0 = 0
        log_scale = log1p(others)
        tl.store(prediction_ptr + row, at.to(tl.int64), mask=alive)
        tl.store(value_ptr + row, 1.0 / scale, mask=alive)
        tl.store(value_ptr + 1 * n + row, log_scale - spread / scale, mask=alive)
        second = tl.max(mass, axis=1)
        tl.store(value_ptr + 2 * n + row, (1.0 - second) / scale, mask=alive)
        tl.store(value_ptr + 6 * n + row, top, mask=alive)
        tl.store(value_ptr + 7 * n + row, top + log_scale, mask=alive)
        tl.store(value_ptr + 8 * n + row, others / scale, mask=alive)
        if HAS_LABELS:
            label = tl.load(label_ptr + row, mask=alive, other=0)
            apart = tl.load(z_ptr + row * stride + label, mask=alive, other=0.0).to(tl.float32) - top
            p_true = tl.exp(apart) / scale
            squares = (1.0 + tl.sum(mass * mass, axis=1)) / (scale * scale)
            tl.store(value_ptr + 3 * n + row, p_true, mask=alive)
            tl.store(value_ptr + 4 * n + row, log_scale - apart, mask=alive)
            tl.store(value_ptr + 5 * n + row, tl.maximum(squares - 2.0 * p_true + 1.0, 0.0), mask=alive)
        if COUNTED:
            weight = tl.full((ROWS,), 1.0, tl.float64)
            if HAS_WEIGHTS:
                weight = tl.load(weight_ptr + row, mask=alive, other=0.0)
            share = tl.where(alive, weight.to(tl.float32) / scale, 0.0)[:, None]
            totals += tl.sum(tl.where(column == at[:, None], share, mass * share), axis=0)
            # The largest, then the next: few classes of a row reach the first edge, and all the others wait for none.
            first_edge, size = tl.load(edge_ptr + 1), num_classes * bins
            prob = 1.0 / scale
            above = alive & (prob >= first_edge)
            while tl.max(above.to(tl.int32), axis=0) > 0:
                place = tl.minimum((tl.where(above, prob, 0.0) * bins).to(tl.int32), bins - 1)
                # Rounding may be off by one bin beside an edge: compared with the edges themselves.
                low = tl.load(edge_ptr + place, mask=above, other=0.0)
                high = tl.load(edge_ptr + place + 1, mask=above, other=0.0)
                if LEFT:
                    place += (prob >= high).to(tl.int32) - (prob < low).to(tl.int32)
                else:
                    place += (prob > high).to(tl.int32) - (prob <= low).to(tl.int32)
                cell = cell_ptr + at * bins + tl.minimum(tl.maximum(place, 0), bins - 1)
                weighted = prob.to(tl.float64) * weight
                tl.atomic_add(cell, weight, mask=above, sem="relaxed")
                tl.atomic_add(cell + size, weighted, mask=above, sem="relaxed")
                tl.atomic_add(cell + 2 * size, weighted * weighted, mask=above, sem="relaxed")
                prob = second / scale
                above = above & (prob >= first_edge)
                # Most rows have no further class there, and are not looked at again.
                if tl.max(above.to(tl.int32), axis=0) > 0:
                    at = first_place(mass, second, column)
                    mass = tl.where(column == at[:, None], 0.0, mass)
                    second = tl.max(mass, axis=1)
    if COUNTED:
        every = tl.arange(0, BLOCK)
        tl.atomic_add(column_ptr + every, totals.to(tl.float64), mask=every < num_classes, sem="relaxed")


def tile_shape(block: int) -> tuple[int, int]:
    """Rows of so many logits that a program looks at together, and its warps."""
    return max(1, TILE // block), max(1, min(16, block // 1024))


def sample_facts(
    logits: Tensor, labels: Tensor | None, edges: Tensor | None, weights: Tensor | None, closed: str = "right"
) -> SampleFacts:
    """Facts of logits of at most `WIDEST` classes in at most 32 bits; with edges (of bins of [0, 1]) also the sums.

    Args:
        weights: of the samples, in the sums alone.
        closed: `right` for bins (low, high], `left` for [low, high).
    """
    n, num_classes = logits.shape
    rows_of = logits if logits.stride(1) == 1 else logits.contiguous()
    bins = 1 if edges is None else len(edges) - 1
    sums = torch.zeros(num_classes * (1 + 3 * bins), dtype=torch.float64, device=logits.device)
    facts = SampleFacts(
        torch.empty((len(NAMES), n), dtype=torch.float32, device=logits.device),
        torch.empty(n, dtype=torch.int64, device=logits.device),
        sums[:num_classes],
        sums[num_classes:].view(3, num_classes, bins),
    )
    block = triton.next_power_of_2(max(num_classes, 2))
    rows, warps = tile_shape(block)
    cores = torch.cuda.get_device_properties(logits.device).multi_processor_count if logits.is_cuda else 1
    with torch.cuda.device_of(logits):
        sample_facts_kernel[(min(triton.cdiv(n, rows), PROGRAMS * cores),)](
            *(rows_of, labels, weights, facts.values, facts.prediction, facts.columns, facts.cells, edges),
            *(n, rows_of.stride(0), num_classes, bins),
            HAS_LABELS=labels is not None,
            HAS_WEIGHTS=weights is not None,
            COUNTED=edges is not None,
            LEFT=closed == "left",
            ROWS=rows,
            BLOCK=block,
            num_warps=warps,
        )
    return facts
