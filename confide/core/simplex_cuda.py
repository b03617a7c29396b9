"""The statistics of `simplex`, and losses fused with them, on a GPU.

Nothing here waits for the device. A row with a bad label or NaN becomes NaN and sets the device's flag.
Statistics go through `statistics`, whole losses through `fused`: one kernel forward, one backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from confide.core.simplex_backward import packed, row_terms, second_order
from confide.core.simplex_launch import POINTED, ROW_NAMES, Formula, backward, forward, layout_of
from confide.core.simplex_plain import Request, accumulator, refuse_second_derivative

INDEX_NAMES = ("p_max", "p_second", "p_other", "p_below")
Numbers = tuple[float, float, float]


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
        numbers: Numbers,
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


def with_mean(values: Tensor, mean: Tensor) -> Tensor:
    """Values that know their mean: one node of autograd and three small kernels less for who asks `simplex.mean_of`."""
    values.batch_mean = mean  # type: ignore[attr-defined]
    return values


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
) -> Tensor:
    """One value per sample by one kernel; FORMULAS has the names. It cannot be differentiated twice."""
    if torch.compiler.is_compiling():
        return _compiled(logits, labels, name, vector, table, float(a), float(b), order, float(margin), detach, bins)
    apply: Callable[..., tuple[Tensor, Tensor]] = _Fused.apply
    formula = Formula(name, order, detach, bins)
    return with_mean(*apply(logits, labels, formula, (float(a), float(b), float(margin)), vector, table))


def _compiled(
    logits: Tensor,
    labels: Tensor,
    name: str,
    vector: Tensor | None,
    table: Tensor | None,
    a: float,
    b: float,
    order: int,
    margin: float,
    detach: bool,
    bins: int,
) -> Tensor:
    values: Tensor = fused_op(logits, labels, vector, table, name, a, b, order, margin, detach, bins)[0]
    return values


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
    found = forward(_rows_of(logits), labels, Formula(name, order, detach, bins), (a, b, margin), vector, table)
    return found if name in POINTED else (found[0], found[1], labels.new_empty((0, len(logits))))


@fused_op.register_fake
def _(
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
def _(
    logits: Tensor, labels: Tensor, grad: Tensor, rows: Tensor, index: Tensor, name: str, order: int, margin: float
) -> Tensor:
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
