"""vector: softmax(w * z + b)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.descent import descend
from confide.calibrators.tempered import best_scale
from confide.core.shapes import Labels, Logits

BLOCK_ELEMENTS = 1 << 18
WIDE_ELEMENTS = 1 << 19
"""n c up to which a pass runs in float64 although the logits are float32."""
ITERATIONS = 300


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
    found = best_scale(logits, labels)
    start = torch.zeros(2, rows.num_classes, dtype=torch.float64)
    start[0] = found.scale if found.bound is None else 1.0
    seen = torch.bincount(labels, minlength=rows.num_classes) > 0
    roots = _roots(rows, start)

    def objective(unknowns: Tensor) -> tuple[float, Tensor]:
        value, gradient = rows.loss(start + _turned(roots, unknowns.view(2, -1)))
        gradient[:, ~seen] = 0.0
        return value, _turned_back(roots, gradient).flatten()

    change = 1e-15 if rows.dtype == torch.float64 else 1e-7
    result = descend(objective, start.numel(), tolerance=1e-9, change=change, iterations=ITERATIONS, memory=10)
    weights, bias = start + _turned(roots, result.unknowns.view(2, -1))
    notes = [] if result.converged else [f"the fit stopped at its last iteration with a slope of {result.steepest:.1e}"]
    if not bool(seen.all()):
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    return Fitted({"weights": weights.clone(), "bias": bias - bias.mean()}, tuple(notes))


@transform_of("vector")
def scaled(values: Values, logits: Logits) -> Logits:
    """w * z + b."""
    return logits * values["weights"] + values["bias"]


class ScaledRows:
    """Rows of logits with labels: mean NLL and gradient at any weights and biases `2 c`, by blocks in ready buffers."""

    def __init__(self, logits: Logits, labels: Labels) -> None:
        n, num_classes = logits.shape
        wide = logits.dtype == torch.float64 or n * num_classes <= WIDE_ELEMENTS
        self.dtype = torch.float64 if wide else torch.float32
        self.logits, self.labels, self.n, self.num_classes = logits, labels, n, num_classes
        self.block = max(1, min(n, BLOCK_ELEMENTS // num_classes))
        self.scores = torch.empty(self.block, num_classes, dtype=self.dtype)
        self.product = torch.empty_like(self.scores)
        self.ones = torch.ones(self.block, dtype=self.dtype)
        self.true_logits = logits.gather(1, labels[:, None]).squeeze(1).double()
        hits = torch.bincount(labels, minlength=num_classes)
        hit_logits = torch.bincount(labels, self.true_logits, minlength=num_classes)
        self.hits = torch.stack([hit_logits, hits]) / n

    def loss(self, weights: Tensor) -> tuple[float, Tensor]:
        """Mean NLL and its gradient `2 c`: mean (p - onehot) z and mean (p - onehot)."""
        scale, bias = weights[:, self.labels]
        value = -float((scale * self.true_logits + bias).sum())
        gradient = -self.hits
        for part in self.blocks():
            rows, probs, log_total = self.probs_of(part, weights)
            value += float(log_total.sum(dtype=torch.float64))
            product = torch.mul(rows, probs, out=self.product[: len(rows)])
            ones = self.ones[: len(rows)]
            gradient.add_(torch.stack([torch.mv(product.T, ones), torch.mv(probs.T, ones)]), alpha=1 / self.n)
        return value / self.n, gradient

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def probs_of(self, part: slice, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the block, probabilities in the ready buffer, and the log of their normaliser."""
        rows = self.logits[part].to(self.dtype)
        scores = torch.mul(rows, weights[0].to(self.dtype), out=self.scores[: len(rows)])
        scores.add_(weights[1].to(self.dtype))
        highest = scores.amax(dim=1, keepdim=True)
        np.exp(scores.sub_(highest).numpy(), out=scores.numpy())
        total = scores.sum(dim=1, keepdim=True)
        return rows, scores.div_(total), (total.log() + highest)[:, 0]

    def curvature(self, weights: Tensor) -> Tensor:
        """Mean p (1 - p) times z^2, z and 1, `3 c`: the curvature of every class by itself."""
        result = torch.zeros(3, self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            rows, probs, _ = self.probs_of(part, weights)
            spread = probs * (1 - probs)
            product = rows * spread
            sums = torch.stack([(product * rows).sum(dim=0), product.sum(dim=0), spread.sum(dim=0)])
            result.add_(sums, alpha=1 / self.n)
        return result


def _roots(rows: ScaledRows, start: Tensor) -> Tensor:
    """Inverse Cholesky factors of the classes' 2 x 2 curvatures, as (w, w), (b, w), (b, b) entries `3 c`."""
    squares, cross, ones = rows.curvature(start)
    squares = squares + 1e-6 * squares.mean() + 1e-12
    ones = ones + 1e-6 * ones.mean() + 1e-12
    first = squares.sqrt()
    under = cross / first
    second = torch.maximum(ones - under**2, 1e-6 * ones).sqrt()
    return torch.stack([1 / first, -under / (first * second), 1 / second])


def _turned(roots: Tensor, unknowns: Tensor) -> Tensor:
    return torch.stack([roots[0] * unknowns[0] + roots[1] * unknowns[1], roots[2] * unknowns[1]])


def _turned_back(roots: Tensor, gradient: Tensor) -> Tensor:
    return torch.stack([roots[0] * gradient[0], roots[1] * gradient[0] + roots[2] * gradient[1]])
