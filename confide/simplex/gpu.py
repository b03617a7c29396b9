"""The statistics on a GPU, losses fused with them, and losses that weigh -log p_y by a sample's rank in the batch.

Nothing here waits for the device. A row with a bad label or NaN becomes NaN and sets the device's flag.
Statistics go through `statistics`, whole losses through `fused`: one kernel forward, one backward. Weighted losses
(`ranked`, `spread`) have kernels over vectors of length n between the two, which leave the loss and the terms of its
gradient as a fused loss does: row 2 of `rows` the scale, 3 the gradient at the label, 4 the pull at the largest class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from confide.simplex.gradient import GradientLayout, packed, row_terms, second_order
from confide.simplex.launch import POINTED, ROW_NAMES, Formula, backward, forward, launch_over_samples, layout_of
from confide.simplex.reference import FusedLoss, Request, accumulator, refuse_second_derivative
from confide.simplex.row_sums import log1p

INDEX_NAMES = ("p_max", "p_second", "p_other", "p_below")


def _rows_of(logits: Tensor) -> Tensor:
    """Rows must be contiguous each; the distance between rows may be anything."""
    return logits if logits.stride(1) == 1 else logits.contiguous()


class _Fused(torch.autograd.Function):
    """A whole loss and its mean: one kernel forward, one backward."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        formula: Formula,
        numbers: tuple[float, float, float],
        vector: Tensor | None,
        table: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        z = _rows_of(logits)
        values, rows, index = forward(z, labels, formula, numbers, vector, table)
        ctx.formula, ctx.margin = formula, numbers[2]
        ctx.save_for_backward(z, labels, rows, *(() if index is rows else (index,)))
        ctx.set_materialize_grads(False)
        return values, values.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, of_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a fused loss on a GPU", "move the logits to the CPU for that")
        z, labels, rows, *index = ctx.saved_tensors
        pull, shared = pull_of(grad, of_mean, len(z))
        out = backward(z, labels, pull, rows, index[0] if index else rows, layout_of(ctx.formula), ctx.margin, shared)
        return out, None, None, None, None, None


def pull_of(grad: Tensor | None, of_mean: Tensor | None, n: int) -> tuple[Tensor | None, bool]:
    """One gradient from that of the values and that of their mean, and whether all rows share it."""
    if of_mean is None or grad is None:
        return (of_mean, True) if grad is None else (grad, False)
    return grad + of_mean / n, False


def fused(
    logits: Tensor,
    labels: Tensor,
    name: str,
    vector: Tensor | None,
    table: Tensor | None,
    *,
    a: float = 1.0,
    b: float = 0.0,
    order: int = 0,
    margin: float = 0.0,
    detach: bool = False,
    bins: int = 0,
) -> FusedLoss:
    """One value per sample and their mean, by one kernel; FORMULAS has the names. It cannot be differentiated twice."""
    if torch.compiler.is_compiling():
        numbers = (float(a), float(b), order, float(margin), detach, bins)
        values: Tensor = fused_op(logits, labels, vector, table, name, *numbers)[0]
        return FusedLoss(values, values.mean())
    apply: Callable[..., tuple[Tensor, Tensor]] = _Fused.apply
    formula = Formula(name, order, detach, bins)
    return FusedLoss(*apply(logits, labels, formula, (float(a), float(b), float(margin)), vector, table))


@torch.library.custom_op("confide::fused", mutates_args=())
def fused_op(
    logits: Tensor,
    labels: Tensor,
    vector: Tensor | None,
    table: Tensor | None,
    name: str,
    a: float,
    b: float,
    order: int,
    margin: float,
    detach: bool,
    bins: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The fused forward as one operation that torch.compile leaves whole."""
    outputs = forward(_rows_of(logits), labels, Formula(name, order, detach, bins), (a, b, margin), vector, table)
    return outputs if name in POINTED else (outputs[0], outputs[1], labels.new_empty((0, len(logits))))


@fused_op.register_fake
def _fused_shapes(
    logits: Tensor, labels: Tensor, vector: Tensor | None, table: Tensor | None, name: str, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    n, acc = logits.shape[0], accumulator(logits.dtype)
    index = labels.new_empty((int(name in POINTED), n))
    return logits.new_empty((n,), dtype=acc), logits.new_empty((6, n), dtype=acc), index


@torch.library.custom_op("confide::fused_backward", mutates_args=())
def fused_backward_op(
    logits: Tensor, labels: Tensor, grad: Tensor, rows: Tensor, index: Tensor, name: str, order: int, margin: float
) -> Tensor:
    """The fused backward as one operation."""
    return backward(_rows_of(logits), labels, grad, rows, index, layout_of(Formula(name, order)), margin)


@fused_backward_op.register_fake
def _fused_backward_shapes(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, labels, _, _, name, _, _, order, margin, _, _ = inputs
    ctx.save_for_backward(logits, labels, output[1], output[2])
    ctx.name, ctx.order, ctx.margin = name, order, margin


def _compiled_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    logits, labels, rows, index = ctx.saved_tensors
    out = fused_backward_op(logits, labels, grad, rows, index, ctx.name, ctx.order, ctx.margin)
    return (out, *(None,) * 10)


fused_op.register_autograd(_compiled_backward, setup_context=_keep_for_backward)


class _Statistics(torch.autograd.Function):
    """Any statistics: one kernel forward, one backward after a little work on n numbers."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
        order = int(request.order) if "norm" in request.names else 0
        formula = Formula(order=order, want=frozenset(request.names))
        out, rows, index = forward(_rows_of(logits), labels, formula, (0.0, 0.0, request.margin))
        ctx.request = request
        ctx.save_for_backward(logits, labels, out, rows, index)
        ctx.set_materialize_grads(False)
        outputs = tuple(index[0] if name == "prediction" else out[ROW_NAMES.index(name)] for name in request.names)
        ctx.mark_non_differentiable(*(value for value in outputs if not value.is_floating_point()))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        logits, labels, out, rows, index = ctx.saved_tensors
        request: Request = ctx.request
        if torch.is_grad_enabled():
            return second_order(logits, labels, request, grads), None, None
        values = {name: out[ROW_NAMES.index(name)] for name in request.names if name != "prediction"}
        places = {name: index[i, :, None] for i, name in enumerate(INDEX_NAMES)}
        terms = row_terms(request, values, grads, places, labels)
        if terms.excess is not None:
            position, _ = terms.points.pop()
            terms.points.append((position, terms.excess * out[ROW_NAMES.index("count"), :, None]))
        if terms.scale is not None and terms.slope is not None:
            terms.scale = terms.scale - terms.slope * rows[1, :, None]
        buffer, at, layout, peak = packed(terms, rows)
        # A formula without points has no places, and any tensor may stand for them.
        at = index if at is None else at
        return backward(_rows_of(logits), peak, None, buffer, at, layout, request.margin), None, None


def statistics(logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
    """The wanted statistics, in the order of the request."""
    apply: Callable[..., tuple[Tensor, ...]] = _Statistics.apply
    return apply(logits, labels, request)


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
    rank = _counted_rank(tl.load(score_ptr + sample, mask=alive, other=0.0), sample, score_ptr, n, BLOCK, OTHERS)
    _weigh(sample, rank, alive, log_p_ptr, weight_ptr, out_ptr, rows_ptr, n)


@triton.jit  # type: ignore[untyped-decorator]
def _counted_rank(score, sample, score_ptr, n, BLOCK: tl.constexpr, OTHERS: tl.constexpr):  # type: ignore[no-untyped-def]
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
def _order_statistic(counts_ptr, which, rank, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
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
            prefix, _ = _order_statistic(counts_ptr, which, below if which == 0 else above, LEVEL)
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
        rank = tl.where(everyone < n, _counted_rank(theirs, everyone, score_ptr, n, SIZE, 16), n)
        first = tl.sum(tl.where(rank == below, theirs, 0.0), axis=0)
        second = tl.sum(tl.where(rank == above, theirs, 0.0), axis=0)
        place = tl.minimum(theirs * BINS, BINS - 1.0).to(tl.int32)
        counts = tl.histogram(place, BINS, mask=everyone < n)
    else:
        below_key, _ = _order_statistic(counts_ptr, 0, below, 3)
        above_key, _ = _order_statistic(counts_ptr, 1, above, 3)
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


LOG_P_ROW, ENTROPY_ROW, P_MAX_ROW, P_SECOND_ROW = 0, 2, 3, 4
SCORE_STATISTICS = {"msp": (), "margin": ("p_second",), "entropy": ("entropy",)}
LARGEST_BINS = 256
LARGEST_COUNTED = 8192
"""Samples up to which each counts those below it, n^2 comparisons in one kernel, rather than a sort of many."""
LARGEST_COUNTED_BY_ALL = 1024
"""The same where every block of samples needs the order of all."""


class _Weighted(torch.autograd.Function):
    """-w log p_y with the terms of its gradient made in the forward; one backward kernel."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, names: tuple[str, ...], weigh: Any, points: int
    ) -> tuple[Tensor, Tensor]:
        z = _rows_of(logits)
        facts, rows, index = forward(z, labels, Formula(want=frozenset(names)), (0.0, 0.0, 0.0), spare=3)
        values = torch.empty_like(facts[LOG_P_ROW])
        if len(values):
            with torch.cuda.device_of(z):
                weigh(facts, values, rows)
        ctx.points = points
        ctx.save_for_backward(z, labels, rows, index)
        ctx.set_materialize_grads(False)
        return values, values.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, of_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a fused loss on a GPU", "move the logits to the CPU for that")
        z, labels, rows, index = ctx.saved_tensors
        layout = GradientLayout(scale=2, label=3, points=ctx.points, first_point=4)
        pull, shared = pull_of(grad, of_mean, len(z))
        return backward(z, labels, pull, rows, index, layout, 0.0, shared), None, None, None, None


def ranked(logits: Tensor, labels: Tensor, score: str, weights_of: Callable[[int], Tensor]) -> FusedLoss:
    """-w_r log p_y, r the ascending rank of the sample's confidence: w = weights_of(n), float64, is constant."""

    def weigh(facts: Tensor, values: Tensor, rows: Tensor) -> None:
        n = len(values)
        ranking = facts[P_MAX_ROW]
        if score != "msp":
            ranking = facts[P_MAX_ROW] - facts[P_SECOND_ROW] if score == "margin" else -facts[ENTROPY_ROW]
        if n <= LARGEST_COUNTED:
            tensors = (facts[LOG_P_ROW], ranking, weights_of(n), values, rows)
            launch_over_samples(counted_rank_kernel, tensors, n, (), {"BLOCK": 32, "OTHERS": 128}, 4)
            return
        tensors = (facts[LOG_P_ROW], ranking.argsort(stable=True), weights_of(n), values, rows)
        launch_over_samples(rank_kernel, tensors, n, (), {"BLOCK": 256}, 2)

    apply: Callable[..., tuple[Tensor, Tensor]] = _Weighted.apply
    return FusedLoss(*apply(logits, labels, ("log_p_true", *SCORE_STATISTICS[score]), weigh, 0))


def spread(logits: Tensor, labels: Tensor, coverage: float, smoothing: float, bins: int, size: int) -> FusedLoss | None:
    """-b log p_y with b = -ln(1 - G(min(s, t))), s the largest probability; None for bins or a dtype it has not."""
    if accumulator(logits.dtype) != torch.float32 or bins > LARGEST_BINS or bins & (bins - 1) or bins < 2:
        return None

    def weigh(facts: Tensor, values: Tensor, rows: Tensor) -> None:
        n, scores = len(values), facts[P_MAX_ROW]
        position = coverage * (n - 1)
        below, above = math.floor(position), math.ceil(position)
        # At least one sample for each of the block's threads: a histogram might count copies twice.
        counted = triton.next_power_of_2(max(n, 256)) if n <= LARGEST_COUNTED_BY_ALL else 0
        counts = scores
        if not counted:
            counts = torch.zeros(512 * DIGITS + bins, dtype=torch.int32, device=values.device)
            for level in range(DIGITS):
                constants = {"LEVEL": level, "BINS": bins, "BLOCK": 512}
                launch_over_samples(digit_kernel, (scores, counts), n, (below, above), constants, 4)
        numbers = (below, above, position - below, smoothing, 1 / (size + 1), size / (size + 1))
        constants = {"BINS": bins, "BLOCK": 128, "SIZE": counted}
        tensors = (scores, facts[LOG_P_ROW], counts, values, rows)
        launch_over_samples(distribution_kernel, tensors, n, numbers, constants, 8)

    apply: Callable[..., tuple[Tensor, Tensor]] = _Weighted.apply
    return FusedLoss(*apply(logits, labels, ("log_p_true", "p_max"), weigh, 1))
