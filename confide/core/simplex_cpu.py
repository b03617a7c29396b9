"""The statistics of `simplex` on a CPU, by row blocks that stay in cache.

The forward saves the probabilities: recomputing them costs an exponential, keeping them costs one n x c matrix, still
one less than cross-entropy keeps. The gradient of every statistic has the shape

    dz_k = p_k (a + b (z_k - max) + c p_k) + e + [k = j_1] v_1 + ... + norm and excess terms

with a few numbers per row, so all statistics together cost one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError
from confide.core.simplex_backward import BLOCK_ELEMENTS, gradient, row_terms, second_order
from confide.core.simplex_plain import Request, accumulator


class BlockPass(torch.autograd.Function):
    """Statistics of softmax(logits), in the order of the request; see `simplex.simplex_statistics`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
        check_rows(logits, labels)
        rows = _Forward(logits, labels, request)
        for start in range(0, len(logits), rows.size):
            rows.block(start)
        rows.check()
        ctx.request, ctx.index = request, rows.index
        ctx.save_for_backward(logits, labels, rows.probs, rows.top, rows.log_scale)
        ctx.values = {name: value.detach() for name, value in rows.out.items()}
        outputs = tuple(rows.out[name] for name in request.names)
        ctx.mark_non_differentiable(*(value for value in outputs if not value.is_floating_point()))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        logits, labels, probs, top, log_scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return second_order(logits, labels, ctx.request, grads), None, None
        terms = row_terms(ctx.request, ctx.values, grads, ctx.index, labels)
        return gradient(logits, probs, top, log_scale, terms, ctx.request.margin), None, None


def check_rows(logits: Tensor, labels: Tensor | None) -> None:
    """Labels must be class indices within range; a look at n numbers, not at the logits."""
    if labels is None or not len(labels):
        return
    low, high = torch.aminmax(labels)
    if int(low) < 0 or int(high) >= logits.shape[1]:
        bad = int(((labels < 0) | (labels >= logits.shape[1])).nonzero()[0])
        raise InputError(
            f"labels must lie in [0, {logits.shape[1]}), got {int(labels[bad])} at sample {bad} of {len(labels)}; "
            "drop that sample or give one logit per class"
        )


class _Forward:
    """Buffers and results of one forward pass."""

    def __init__(self, logits: Tensor, labels: Tensor | None, request: Request) -> None:
        n, num_classes = logits.shape
        self.logits, self.labels, self.request = logits, labels, request
        self.dtype = accumulator(logits.dtype)
        self.size = max(1, BLOCK_ELEMENTS // num_classes)
        self.probs = torch.empty((n, num_classes), dtype=self.dtype)
        self.buffer = torch.empty((min(self.size, n), num_classes), dtype=self.dtype)
        self.top = torch.empty((n, 1), dtype=self.dtype)
        self.log_scale = torch.empty((n, 1), dtype=self.dtype)
        names = [name for name in request.names if name != "prediction"]
        self.out = {name: torch.empty(n, dtype=self.dtype) for name in names}
        self.index = {"p_max": torch.empty((n, 1), dtype=torch.int64)}
        if "prediction" in request.names:
            self.out["prediction"] = torch.empty(n, dtype=torch.int64)
        for name in ("p_second", "p_other", "p_below"):
            if name in names:
                self.index[name] = torch.empty((n, 1), dtype=torch.int64)

    def block(self, start: int) -> None:
        """All wanted statistics of one block of rows."""
        part = slice(start, min(start + self.size, len(self.logits)))
        z = self.logits[part].detach().to(self.dtype).contiguous()
        probs = self.probs[part]
        torch.softmax(z, dim=1, out=probs)
        # numpy's argmax is ten times torch's; it finds a NaN first, so that the row's statistics become NaN.
        peak = torch.from_numpy(z.numpy().argmax(axis=1))[:, None]
        self.index["p_max"][part] = peak
        self.top[part] = z.gather(1, peak)
        self.log_scale[part] = -probs.gather(1, peak).log()
        for name in self.out:
            self.out[name][part] = getattr(self, f"_{name}")(z, probs, peak, part).squeeze(1)

    def _log_p_true(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return z.gather(1, self._truth(part)).sub_(self.top[part]).sub_(self.log_scale[part])

    def _p_true(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return probs.gather(1, self._truth(part))

    def _prediction(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return peak

    def _p_max(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return probs.gather(1, peak)

    def _p_second(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return self._largest_but("p_second", probs, peak, part)

    def _p_other(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return self._largest_but("p_other", probs, self._truth(part), part)

    def _p_below(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        below = self.buffer[: len(z)]
        torch.mul(probs, probs < probs.gather(1, self._truth(part)), out=below)
        found = torch.from_numpy(below.numpy().argmax(axis=1))[:, None]
        self.index["p_below"][part] = found
        return below.gather(1, found)

    def _entropy(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        shifted = torch.sub(z, self.top[part], out=self.buffer[: len(z)])
        return self.log_scale[part] - shifted.mul_(probs).sum(dim=1, keepdim=True)

    def _sum_squares(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return torch.mul(probs, probs, out=self.buffer[: len(z)]).sum(dim=1, keepdim=True)

    def _mean_log_p(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        shifted = torch.sub(z, self.top[part], out=self.buffer[: len(z)])
        return shifted.mean(dim=1, keepdim=True) - self.log_scale[part]

    def _log_sum_exp(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        return self.top[part] + self.log_scale[part]

    def _norm(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        if self.request.order == 1.0:
            return torch.abs(z, out=self.buffer[: len(z)]).sum(dim=1, keepdim=True)
        norm: Tensor = torch.linalg.vector_norm(z, 2, dim=1, keepdim=True)
        return norm

    def _excess(self, z: Tensor, probs: Tensor, peak: Tensor, part: slice) -> Tensor:
        gap = torch.sub(self.top[part] - self.request.margin, z, out=self.buffer[: len(z)])
        return gap.clamp_min_(0).mean(dim=1, keepdim=True)

    def _truth(self, part: slice) -> Tensor:
        assert self.labels is not None, "the statistic needs labels"
        return self.labels[part, None]

    def _largest_but(self, name: str, probs: Tensor, skip: Tensor, part: slice) -> Tensor:
        kept = probs.gather(1, skip)
        probs.scatter_(1, skip, -1.0)
        found = torch.from_numpy(probs.numpy().argmax(axis=1))[:, None]
        probs.scatter_(1, skip, kept)
        self.index[name][part] = found
        return probs.gather(1, found)

    def check(self) -> None:
        """Raise for the first row whose statistics are not finite; needs no look at the logits unless there is one."""
        watched = [self.top.squeeze(1) + self.log_scale.squeeze(1)]
        watched += [self.out[name] for name in ("log_p_true", "entropy") if name in self.out]
        for value in watched:
            if bool(torch.isfinite(value).all()):
                continue
            row = int((~torch.isfinite(value)).nonzero()[0])
            values = self.logits[row].detach()
            worst = values[~torch.isfinite(values)]
            got = f"{worst[0].item()}" if len(worst) else "values too far apart for this dtype"
            raise InputError(
                f"logits must be finite, got {got} at sample {row} of {len(self.logits)}; "
                "drop that sample or mend the model that made it"
            )
