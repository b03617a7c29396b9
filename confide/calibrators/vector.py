"""vector: softmax(w * z + b)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.newton import Turn, newton
from confide.calibrators.tempered import best_scale, row_dot
from confide.core.shapes import Labels, Logits

BLOCK_ELEMENTS = 1 << 17
WIDE_ELEMENTS = 1 << 19
"""n c up to which a pass runs in float64 although the logits are float32."""
ITERATIONS = 100
START_ROWS = 2048
STILL = 1e-5
"""A value that moved no more than this, relative to it, bends as it did."""
CERTAIN = 0.1
"""Samples' worth of doubt, sum of p (1 - p), below which a class is told apart: its weight has no best value."""


@CALIBRATORS.add(
    "vector",
    paper="Guo et al., 2017, arXiv:1706.04599",
    corners=(),
    keeps_argmax=False,
    yields="logits",
    parameters=(0, 2, 0),
    linear=True,
)
def vector(logits: Logits, labels: Labels) -> Fitted:
    """Vector scaling, softmax(w * z + b) with one weight and one bias per class, smallest mean NLL."""
    rows = ScaledRows(logits, labels)
    # The temperature of some rows is near enough to start from; a class without samples keeps that of all.
    step = max(1, rows.n // START_ROWS) if bool(rows.seen.all()) else 1
    found = best_scale(logits[::step], labels[::step])
    start = torch.zeros(2, rows.num_classes, dtype=torch.float64)
    start[0] = found.scale if found.bound is None else 1.0
    change = 1e-15 if rows.dtype == torch.float64 else 1e-6
    result = newton(rows, start, tolerance=1e-9, change=change, iterations=ITERATIONS)
    weights, bias = result.at
    notes = [] if result.converged else [f"the fit stopped at its last iteration with a slope of {result.steepest:.1e}"]
    if not bool(rows.seen.all()):
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    certain = int(((rows.n * rows.curvature()[2] < CERTAIN) & rows.seen).sum())
    if certain:
        notes.append(
            f"{certain} of {rows.num_classes} classes are told apart perfectly: their weights have no best value, the "
            "search was stopped where they no longer matter"
        )
    return Fitted({"weights": weights.clone(), "bias": bias - bias.mean()}, tuple(notes))


@transform_of("vector")
def scaled(values: Values, logits: Logits) -> Logits:
    """w * z + b."""
    return logits * values["weights"] + values["bias"]


class ScaledRows:
    """Rows of logits with labels: mean NLL, slope and curvature at any weights and biases `2 c`, by blocks.

    The probabilities of the last point measured are kept, one float32 a logit, so that a product with the curvature
    needs no exponentials.
    """

    def __init__(self, logits: Logits, labels: Labels) -> None:
        n, num_classes = logits.shape
        wide = logits.dtype == torch.float64 or n * num_classes <= WIDE_ELEMENTS
        self.dtype = torch.float64 if wide else torch.float32
        self.logits, self.labels, self.n, self.num_classes = logits, labels, n, num_classes
        self.block = max(1, min(n, BLOCK_ELEMENTS // num_classes))
        self.probs = torch.empty(n, num_classes, dtype=self.dtype)
        self.first = torch.empty(self.block, num_classes, dtype=self.dtype)
        self.second = torch.empty_like(self.first)
        self.ones = torch.ones(self.block, dtype=self.dtype)
        self.true_logits = logits.gather(1, labels[:, None]).squeeze(1).double()
        hits = torch.bincount(labels, minlength=num_classes)
        hit_logits = torch.bincount(labels, self.true_logits, minlength=num_classes)
        self.hits, self.seen = torch.stack([hit_logits, hits]) / n, hits > 0
        self.value = self.bent_at = math.inf
        self.bends = torch.zeros(3, num_classes, dtype=torch.float64)

    def measure(self, at: Tensor) -> tuple[float, Tensor]:
        """Mean NLL and its slope `2 c`: mean (p - onehot) z and mean (p - onehot)."""
        scale, bias = at[:, self.labels]
        value = -float((scale * self.true_logits + bias).sum())
        sums = torch.zeros(2, self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            rows, probs, log_total = self.probs_of(part, at)
            value += float(log_total.sum(dtype=torch.float64))
            sums[0].add_(self.total(torch.mul(rows, probs, out=self.first[: len(rows)])))
            sums[1].add_(self.total(probs))
        self.value = value / self.n
        return self.value, self.seen * (sums / self.n - self.hits)

    def curvature(self) -> Tensor:
        """That of every class by itself, mean p (1 - p) times z^2, z and 1, `3 c`, at the last point measured."""
        sums = torch.zeros(3, self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            rows, probs = self.logits[part].to(self.dtype), self.probs[part]
            spread = torch.addcmul(probs, probs, probs, value=-1, out=self.first[: len(rows)])
            for k in (2, 1, 0):
                sums[k].add_(self.total(spread))
                spread.mul_(rows)
        return sums / self.n

    def product(self, direction: Tensor) -> Tensor:
        """Curvature times direction: with s = z dw + db, mean p (s - E s) z and mean p (s - E s)."""
        result = torch.zeros_like(direction)
        weights, bias = direction.to(self.dtype)
        for part in self.blocks():
            rows, probs = self.logits[part].to(self.dtype), self.probs[part]
            moved = torch.addcmul(bias, rows, weights, out=self.first[: len(rows)])
            mean = torch.from_numpy(row_dot(probs.numpy(), moved.numpy()))
            moved.sub_(mean[:, None]).mul_(probs)
            result[1].add_(self.total(moved))
            result[0].add_(self.total(moved.mul_(rows)))
        return self.seen * result / self.n

    def inverse(self) -> Turn:
        """The inverse of every class's own 2 x 2 curvature."""
        if not abs(self.bent_at - self.value) <= STILL * max(self.value, 1.0):
            self.bends, self.bent_at = self.curvature(), self.value
        squares, cross, ones = self.bends
        squares, ones = squares + 1e-12, ones + 1e-12
        area = torch.maximum(squares * ones - cross**2, 1e-4 * squares * ones)
        return lambda v: torch.stack([ones * v[0] - cross * v[1], squares * v[1] - cross * v[0]]) / area

    def total(self, block: Tensor) -> Tensor:
        """Sums of the columns."""
        return torch.mv(block.T, self.ones[: len(block)])

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def probs_of(self, part: slice, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the block, probabilities in their place, and the log of their normaliser."""
        rows, probs = self.logits[part].to(self.dtype), self.probs[part]
        torch.addcmul(at[1].to(self.dtype), rows, at[0].to(self.dtype), out=probs)
        highest = probs.amax(dim=1, keepdim=True)
        np.exp(probs.sub_(highest).numpy(), out=probs.numpy())
        total = probs.sum(dim=1, keepdim=True)
        return rows, probs.mul_(1 / total), (total.log() + highest)[:, 0]
