"""Mean probability of every class in a batch together with log p_y, by one pass on a CPU: what MDCA is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.core.simplex_backward import BLOCK_ELEMENTS
from confide.core.simplex_cpu import probabilities_and
from confide.core.simplex_plain import accumulator


def log_p_and_class_means(logits: Logits, labels: Labels) -> tuple[PerSample, Tensor]:
    """log p_y of every sample, and the mean of the batch's probabilities for every class; a batch of none has means 0.

    On a CPU by one softmax and one pass back, elsewhere and under the compiler by plain torch.
    """
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        one_pass: Callable[..., tuple[Tensor, Tensor]] = _OnePass.apply
        return one_pass(logits, labels)
    return simplex_statistics(logits, labels, "log_p_true").log_p_true, _class_means(logits)


def _class_means(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype)).sum(dim=0) / max(len(logits), 1)


class _OnePass(torch.autograd.Function):
    """dz_ik = p_ik (m_k / n - (p_i . m) / n - g_i) + 1[k = y_i] g_i for slopes g of log p_y and m of the means."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        ctx.probs, log_p = probabilities_and(logits, labels, "log_p_true")
        ctx.save_for_backward(logits, labels)
        ctx.set_materialize_grads(False)
        return log_p, ctx.probs.sum(dim=0) / max(len(logits), 1)

    @staticmethod
    def backward(ctx: Any, by_log_p: Tensor | None, by_mean: Tensor | None) -> tuple[Tensor | None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():
            wanted = simplex_statistics(logits, labels, "log_p_true").log_p_true, _class_means(logits)
            pairs = [(v, g) for v, g in zip(wanted, (by_log_p, by_mean), strict=True) if g is not None]
            values, slopes = zip(*pairs, strict=True)
            return torch.autograd.grad(values, logits, slopes, create_graph=True)[0], None
        # The probabilities become the gradient in place; a second backward over a retained graph makes them anew.
        probs, ctx.probs = ctx.probs, None
        if probs is None:
            probs = torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype))
        return _gradient(probs, labels, by_log_p, by_mean).to(logits.dtype), None


def _gradient(probs: Tensor, labels: Tensor, by_log_p: Tensor | None, by_mean: Tensor | None) -> Tensor:
    n, num_classes = probs.shape
    row = torch.zeros(n, dtype=probs.dtype) if by_log_p is None else -by_log_p
    size = max(1, BLOCK_ELEMENTS // num_classes)
    for start in range(0, n, size):
        part = slice(start, start + size)
        block = probs[part]
        if by_mean is None:
            block.mul_(row[part, None])
        else:
            column = by_mean / n
            # Autocast would round the product to 8 bits.
            with torch.autocast("cpu", enabled=False):
                pulled = block @ column
            block.mul_(column + (row[part] - pulled)[:, None])
    return probs if by_log_p is None else probs.scatter_add_(1, labels[:, None], by_log_p[:, None])
