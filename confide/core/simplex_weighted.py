"""Losses on a GPU that weigh -log p_y by where a sample's confidence stands in the batch; see `simplex.weighted`.

The forward kernel gives the statistics, kernels over vectors of length n the loss and the terms of its gradient, and
the backward kernel the gradient: nothing of n x anything is made beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from confide.core.simplex_backward import Layout
from confide.core.simplex_cuda import pull_of, with_mean
from confide.core.simplex_kept import launch
from confide.core.simplex_launch import Formula, backward, forward
from confide.core.simplex_plain import accumulator, refuse_second_derivative
from confide.core.simplex_weights_kernel import (
    DIGITS,
    counted_rank_kernel,
    digit_kernel,
    distribution_kernel,
    rank_kernel,
)

LOG_P, ENTROPY, P_MAX, P_SECOND = 0, 2, 3, 4
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
        z = logits if logits.stride(1) == 1 else logits.contiguous()
        found, rows, index = forward(z, labels, Formula(want=frozenset(names)), (0.0, 0.0, 0.0), spare=3)
        values = torch.empty_like(found[LOG_P])
        if len(values):
            with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
                weigh(found, values, rows)
        ctx.points = points
        ctx.save_for_backward(z, labels, rows, index)
        ctx.set_materialize_grads(False)
        return values, values.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, of_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a fused loss on a GPU", "move the logits to the CPU for that")
        z, labels, rows, index = ctx.saved_tensors
        layout = Layout(scale=2, label=3, points=ctx.points, first_point=4)
        pull, shared = pull_of(grad, of_mean, len(z))
        return backward(z, labels, pull, rows, index, layout, 0.0, shared), None, None, None, None


def ranked(logits: Tensor, labels: Tensor, score: str, weights_of: Callable[[int], Tensor]) -> Tensor:
    """-w_r log p_y, r the ascending rank of the sample's confidence: w = weights_of(n), float64, is constant."""

    def weigh(found: Tensor, values: Tensor, rows: Tensor) -> None:
        n = len(values)
        ranking = found[P_MAX]
        if score != "msp":
            ranking = found[P_MAX] - found[P_SECOND] if score == "margin" else -found[ENTROPY]
        if n <= LARGEST_COUNTED:
            tensors = (found[LOG_P], ranking, weights_of(n), values, rows)
            launch(counted_rank_kernel, triton.cdiv(n, 32), tensors, n, (), {"BLOCK": 32, "OTHERS": 128}, 4)
            return
        tensors = (found[LOG_P], ranking.argsort(stable=True), weights_of(n), values, rows)
        launch(rank_kernel, triton.cdiv(n, 256), tensors, n, (), {"BLOCK": 256}, 2)

    apply: Callable[..., tuple[Tensor, Tensor]] = _Weighted.apply
    return with_mean(*apply(logits, labels, ("log_p_true", *SCORE_STATISTICS[score]), weigh, 0))


def spread(logits: Tensor, labels: Tensor, coverage: float, smoothing: float, bins: int, size: int) -> Tensor | None:
    """-b log p_y with b = -ln(1 - G(min(s, t))), s the largest probability; None for bins or a dtype it has not."""
    if accumulator(logits.dtype) != torch.float32 or bins > LARGEST_BINS or bins & (bins - 1) or bins < 2:
        return None

    def weigh(found: Tensor, values: Tensor, rows: Tensor) -> None:
        n, scores = len(values), found[P_MAX]
        position = coverage * (n - 1)
        below, above = math.floor(position), math.ceil(position)
        # At least one sample for each of the block's threads: a histogram might count copies twice.
        counted = triton.next_power_of_2(max(n, 256)) if n <= LARGEST_COUNTED_BY_ALL else 0
        counts = scores
        if not counted:
            counts = torch.zeros(512 * DIGITS + bins, dtype=torch.int32, device=values.device)
            for level in range(DIGITS):
                constants = {"LEVEL": level, "BINS": bins, "BLOCK": 512}
                launch(digit_kernel, triton.cdiv(n, 512), (scores, counts), n, (below, above), constants, 4)
        numbers = (below, above, position - below, smoothing, 1 / (size + 1), size / (size + 1))
        constants = {"BINS": bins, "BLOCK": 128, "SIZE": counted}
        tensors = (scores, found[LOG_P], counts, values, rows)
        launch(distribution_kernel, triton.cdiv(n, 128), tensors, n, numbers, constants, 8)

    apply: Callable[..., tuple[Tensor, Tensor]] = _Weighted.apply
    return with_mean(*apply(logits, labels, ("log_p_true", "p_max"), weigh, 1))
