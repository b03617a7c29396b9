"""The statistics of `simplex` on a CPU, by row blocks that stay in cache.

The forward keeps the probabilities, and the backward turns them into the gradient in place: no exponential is computed
twice, and one n x c matrix is all the memory there is, where cross-entropy needs three. The gradient of every statistic
has the shape

    dz_k = p_k (a + b (z_k - max) + c p_k) + e + [k = j_1] v_1 + ... + norm and excess terms

with a few numbers per row, so all statistics together cost one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide import block_sizes
from confide.checks import InputError, label_hint
from confide.simplex.gradient import gradient, row_terms, second_order
from confide.simplex.reference import Request, accumulator

_BLOCK_SUMS = ("entropy", "mean_log_p", "excess", "sum_squares", "norm")
_AT_TRUTH = ("log_p_true", "p_true")
_INFINITE_AT_MINUS_INFINITY = ("log_p_true", "entropy", "mean_log_p", "norm", "excess")


class BlockPass(torch.autograd.Function):
    """Statistics of softmax(logits), in the order of the request; see `simplex.simplex_statistics`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
        check_rows(logits, labels)
        rows = _Forward(logits.detach(), labels, request)
        statistics = rows.run()
        ctx.request, ctx.index, ctx.probs = request, rows.index, rows.probs
        ctx.save_for_backward(logits, labels, rows.top, rows.log_scale)
        outputs = tuple(statistics[name] for name in request.names)
        ctx.values = {name: value.detach() for name, value in statistics.items()}
        ctx.mark_non_differentiable(*(value for value in outputs if not value.is_floating_point()))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        logits, labels, top, log_scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return second_order(logits, labels, ctx.request, grads), None, None
        # The probabilities become the gradient in place; a second backward over a retained graph makes them anew.
        probs, ctx.probs = ctx.probs, None
        if probs is None:
            probs = torch.softmax(logits, dim=1, dtype=top.dtype)
        terms = row_terms(ctx.request, ctx.values, grads, ctx.index, labels)
        return gradient(logits, probs, top, log_scale, terms, ctx.request.margin), None, None


def probabilities_and(logits: Tensor, labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """All probabilities of a batch and one statistic of it, by the same pass; without gradient."""
    check_rows(logits, labels)
    rows = _Forward(logits.detach(), labels, Request((name,)))
    value = rows.run()[name]
    return rows.probs, value


def check_rows(logits: Tensor, labels: Tensor | None) -> None:
    """Labels must be class indices within range; a look at n numbers, not at the logits."""
    if labels is None or not len(labels):
        return
    low, high = torch.aminmax(labels)
    if int(low) < 0 or int(high) >= logits.shape[1]:
        bad = int(((labels < 0) | (labels >= logits.shape[1])).nonzero()[0])
        raise InputError(
            f"labels must lie in [0, {logits.shape[1]}), got {int(labels[bad])} at sample {bad} of {len(labels)}; "
            f"{label_hint(int(low), int(high))}"
        )


def check_statistics(logits: Tensor, statistics: dict[str, Tensor], *others: Tensor) -> None:
    """Raise for the first row whose statistics are not finite; needs no look at the logits unless there is one."""
    for value in (*others, *(statistics[name] for name in _INFINITE_AT_MINUS_INFINITY if name in statistics)):
        if bool(torch.isfinite(value).all()):
            continue
        row = int((~torch.isfinite(value)).nonzero()[0])
        values = logits[row]
        worst = values[~torch.isfinite(values)]
        got = f"{worst[0].item()}" if len(worst) else "values too far apart for this dtype"
        raise InputError(
            f"logits must be finite, got {got} at sample {row} of {len(logits)}; "
            "drop that sample or mend the model that made it"
        )


class _Forward:
    """Buffers and results of one forward pass: heavy work by blocks, work on n numbers once at the end."""

    def __init__(self, logits: Tensor, labels: Tensor | None, request: Request) -> None:
        n, num_classes = logits.shape
        self.logits, self.request = logits, request
        self.labels = None if labels is None else labels[:, None]
        self.dtype = accumulator(logits.dtype)
        self.size = block_sizes.rows_in(block_sizes.CACHED, num_classes)
        self.probs = torch.empty((n, num_classes), dtype=self.dtype)
        self.buffer = torch.empty((min(self.size, n), num_classes), dtype=self.dtype)
        self.top = torch.empty((n, 1), dtype=self.dtype)
        self.log_scale = torch.empty((n, 1), dtype=self.dtype)
        self.at_truth = {name: torch.empty((n, 1), dtype=self.dtype) for name in request.names if name in _AT_TRUTH}
        self.index = {"p_max": torch.empty((n, 1), dtype=torch.int64)}
        self.sums = {name: torch.empty(n, dtype=self.dtype) for name in request.names if name in _BLOCK_SUMS}
        for name in ("p_second", "p_other", "p_below"):
            if name in request.names:
                self.index[name] = torch.empty((n, 1), dtype=torch.int64)

    def run(self) -> dict[str, Tensor]:
        """All wanted statistics, by name."""
        wide = self.dtype != self.logits.dtype or not self.logits.is_contiguous()
        for start in range(0, len(self.logits), self.size):
            part = slice(start, start + self.size)
            z = self.logits[part]
            self._block(z.to(self.dtype).contiguous() if wide else z, part)
        self.log_scale.log_().neg_()
        statistics = {name: getattr(self, f"_{name}")() for name in self.request.names}
        check_statistics(self.logits, statistics, (self.top + self.log_scale).squeeze(1))
        return statistics

    def _block(self, z: Tensor, part: slice) -> None:
        """What needs a look at every element of the block."""
        probs = self.probs[part]
        torch.softmax(z, dim=1, out=probs)
        peak = self.index["p_max"][part]
        # numpy's argmax is ten times torch's; it finds a NaN first, so that the row's statistics become NaN.
        z.numpy().argmax(axis=1, out=peak.squeeze(1).numpy())
        top = torch.gather(z, 1, peak, out=self.top[part])
        torch.gather(probs, 1, peak, out=self.log_scale[part])
        for name, values in self.at_truth.items():
            torch.gather(z if name == "log_p_true" else probs, 1, self._truth()[part], out=values[part])
        for name, sums in self.sums.items():
            self._sum(name, z, probs, top, sums[part])
        for name in self.index:
            if name != "p_max":
                self._find(name, probs, peak, part)

    def _sum(self, name: str, z: Tensor, probs: Tensor, top: Tensor, out: Tensor) -> None:
        """Sums over the classes of a block's rows."""
        buffer = self.buffer[: len(z)]
        if name == "entropy":
            torch.sub(z, top, out=buffer).mul_(probs)
        elif name == "mean_log_p":
            torch.sub(z, top, out=buffer)
        elif name == "excess":
            torch.sub(top - self.request.margin, z, out=buffer).clamp_min_(0)
        elif name == "sum_squares":
            torch.linalg.vector_norm(probs, 2, dim=1, out=out).square_()
            return
        elif self.request.order == 1.0:
            torch.abs(z, out=buffer)
        else:
            torch.linalg.vector_norm(z, 2, dim=1, out=out)
            return
        torch.sum(buffer, dim=1, out=out)

    def _find(self, name: str, probs: Tensor, peak: Tensor, part: slice) -> None:
        """Index of the largest probability under a condition."""
        index = self.index[name][part].squeeze(1).numpy()
        if name == "p_below":
            below = self.buffer[: len(probs)]
            torch.lt(probs, probs.gather(1, self._truth()[part]), out=below).mul_(probs)
            below.numpy().argmax(axis=1, out=index)
            return
        skip = peak if name == "p_second" else self._truth()[part]
        skipped = probs.gather(1, skip)
        probs.scatter_(1, skip, -1.0)
        probs.numpy().argmax(axis=1, out=index)
        probs.scatter_(1, skip, skipped)

    def _truth(self) -> Tensor:
        assert self.labels is not None, "the statistic needs labels"
        return self.labels

    def _log_p_true(self) -> Tensor:
        return self.at_truth["log_p_true"].sub(self.top).sub_(self.log_scale).squeeze(1)

    def _p_true(self) -> Tensor:
        return self.at_truth["p_true"].squeeze(1)

    def _prediction(self) -> Tensor:
        return self.index["p_max"].squeeze(1)

    def _p_max(self) -> Tensor:
        return self.log_scale.neg().exp_().squeeze(1)

    def _p_second(self) -> Tensor:
        return self.probs.gather(1, self.index["p_second"]).squeeze(1)

    def _p_other(self) -> Tensor:
        return self.probs.gather(1, self.index["p_other"]).squeeze(1)

    def _p_below(self) -> Tensor:
        p_below = self.probs.gather(1, self.index["p_below"])
        return torch.where(p_below < self.probs.gather(1, self._truth()), p_below, 0.0).squeeze(1)

    def _entropy(self) -> Tensor:
        return self.log_scale.squeeze(1) - self.sums["entropy"]

    def _sum_squares(self) -> Tensor:
        return self.sums["sum_squares"]

    def _mean_log_p(self) -> Tensor:
        return self.sums["mean_log_p"] / self.logits.shape[1] - self.log_scale.squeeze(1)

    def _log_sum_exp(self) -> Tensor:
        return (self.top + self.log_scale).squeeze(1)

    def _norm(self) -> Tensor:
        return self.sums["norm"]

    def _excess(self) -> Tensor:
        return self.sums["excess"] / self.logits.shape[1]
