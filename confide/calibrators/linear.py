"""Softmax regression on logits or log-probabilities: blocked loss and gradient, preconditioned L-BFGS.

Minimises mean NLL of softmax(x W' + b) + penalty. Rows are read in blocks into ready buffers, so the memory is that of
W and a few blocks; the gradient is analytic, (p - onehot)' x. The unknowns are turned by the curvature at the start
(one block per class, or one basis for all where the classes are many), which saves half of the iterations or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from confide.calibrators.descent import descend

BLOCK_ELEMENTS = 1 << 18
WIDE_WORK = 1 << 26
"""n c^2 up to which a pass runs in float64, whatever the logits are: then rounding does not end the search."""
MANY_CLASSES = 128
CURVATURE_ROWS = 3000
ITERATIONS = 300


@dataclass(frozen=True)
class Penalty:
    """off * sum of off-diagonal^2 + diagonal * sum of diagonal^2 + bias * sum of b^2.

    With `reference_row` the sums are taken after the last row was subtracted from every row (the released Dirichlet
    code), without it on the map itself, which treats all classes alike.
    """

    off: float = 0.0
    diagonal: float = 0.0
    bias: float = 0.0
    reference_row: bool = False

    def centre(self, weights: Tensor) -> Tensor:
        """The weights, in place, with the row added to all rows that makes the penalty smallest.

        The likelihood does not see that row, so a search would find it only by the weak slope of the penalty.
        """
        if self.reference_row:
            return weights
        matrix, bias = weights[:, :-1], weights[:, -1]
        total = self.off * (len(weights) - 1) + self.diagonal
        if total > 0:
            own = matrix.diagonal().clone()
            matrix -= (self.off * (matrix.sum(dim=0) - own) + self.diagonal * own) / total
        if self.bias > 0:
            bias -= bias.mean()
        return weights

    def add_to(self, weights: Tensor, gradient: Tensor) -> float:
        """The penalty of `c c+1` weights (bias last); its gradient is added in place."""
        if not (self.off or self.diagonal or self.bias):
            return 0.0
        shifted = weights - weights[-1] if self.reference_row else weights
        slope = 2 * self.off * shifted
        slope.diagonal().copy_(2 * self.diagonal * shifted.diagonal())
        slope[:, -1] = 2 * self.bias * shifted[:, -1]
        value = float(torch.dot(slope.view(-1), shifted.view(-1))) / 2
        if self.reference_row:
            slope[-1] -= slope.sum(dim=0)
        gradient.add_(slope)
        return value


class SoftmaxRows:
    """Rows x = features - shift with labels: mean NLL and gradient at any `c c+1` weights, bias last.

    Args:
        shift: subtracted from every row, such as its log-sum-exp, which turns logits into log-probabilities.
        index: the rows that count, all when left out; they are not copied.
        dtype: of the passes; chosen by their size when left out.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        shift: Tensor | None = None,
        index: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.features, self.all_labels, self.shift, self.index = features, labels, shift, index
        self.labels = labels if index is None else labels[index]
        n, num_classes = len(self.labels), features.shape[1]
        wide = n * num_classes**2 <= WIDE_WORK
        self.dtype = dtype or (torch.float64 if wide else torch.float32)
        self.n, self.num_classes = n, num_classes
        # Rows at least as many as classes: adding a block's `c c+1` slopes should cost little beside making them.
        self.block = max(1, min(n, max(BLOCK_ELEMENTS // num_classes, num_classes)))
        self.inputs = torch.empty(self.block, num_classes, dtype=self.dtype)
        self.scores = torch.empty_like(self.inputs)

    def thinned(self, size: int) -> SoftmaxRows:
        """Every k-th row, about `size` of them."""
        index = torch.arange(len(self.all_labels)) if self.index is None else self.index
        return self.only(index[:: max(1, self.n // size)])

    def only(self, index: Tensor, dtype: torch.dtype | None = None) -> SoftmaxRows:
        """These rows of the features, passes in the same dtype unless another is given."""
        return SoftmaxRows(self.features, self.all_labels, self.shift, index, dtype or self.dtype)

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def inputs_of(self, part: slice) -> Tensor:
        """Features less their shift, in the ready buffer."""
        inputs = self.inputs[: part.stop - part.start]
        rows = part if self.index is None else self.index[part]
        inputs.copy_(self.features[rows])
        if self.shift is not None:
            inputs -= self.shift[rows, None]
        return inputs

    def probs_of(self, inputs: Tensor, weights: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities, in the ready buffer, and the NLL of every row."""
        # The bias apart: with a column of ones the rows would not lie on whole cache lines, at half the speed.
        scores = torch.addmm(weights[:, -1], inputs, weights[:, :-1].T, out=self.scores[: len(inputs)])
        scores.sub_(scores.amax(dim=1, keepdim=True))
        true = scores.gather(1, labels[:, None])
        np.exp(scores.numpy(), out=scores.numpy())
        total = scores.sum(dim=1, keepdim=True)
        return scores.div_(total), (total.log() - true)[:, 0]

    def loss(self, weights: Tensor, gradient: Tensor | None = None) -> float:
        """Mean NLL; its gradient, mean (p - onehot)' x, is added in place where asked for."""
        narrow = weights.to(self.dtype)
        value = 0.0
        slopes = torch.zeros(0 if gradient is None else self.num_classes, self.num_classes, dtype=self.dtype)
        sums = torch.zeros(self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            inputs, labels = self.inputs_of(part), self.labels[part]
            probs, nll = self.probs_of(inputs, narrow, labels)
            value += float(nll.sum(dtype=torch.float64))
            if gradient is None:
                continue
            probs[torch.arange(len(labels)), labels] -= 1
            torch.addmm(slopes, probs.T, inputs, out=slopes)
            sums.add_(probs.sum(dim=0))
        if gradient is not None:
            gradient[:, :-1].add_(slopes, alpha=1 / self.n)
            gradient[:, -1].add_(sums, alpha=1 / self.n)
        return value / self.n


@dataclass(frozen=True)
class Precision:
    """When a search ends: after `idle` steps in a row that change the value by less than `change`, relative to it."""

    change: float
    idle: int = 3

    @classmethod
    def of(cls, rows: SoftmaxRows) -> Precision:
        """As far as the dtype of the passes allows."""
        return cls(1e-15 if rows.dtype == torch.float64 else 1e-7)


def fit_map(
    rows: SoftmaxRows, start: Tensor, penalty: Penalty, seen: Tensor, turns: Turns, precision: Precision
) -> tuple[Tensor, float, bool]:
    """Weights `c c+1` with the smallest loss + penalty, the steepest slope left, and whether it converged.

    Args:
        seen: classes that have samples; the rows of the others stay as they start.
        turns: maps between unknowns of about unit curvature and weights.
    """
    turn, back = turns

    def objective(unknowns: Tensor) -> tuple[float, Tensor]:
        weights = penalty.centre(turn(unknowns.view_as(start)).add_(start))
        gradient = torch.zeros_like(weights)
        value = rows.loss(weights, gradient) + penalty.add_to(weights, gradient)
        gradient[~seen] = 0.0
        return value, back(gradient).flatten()

    found = descend(
        objective,
        start.numel(),
        tolerance=1e-9,
        change=precision.change,
        idle=precision.idle,
        iterations=ITERATIONS,
        memory=10 if rows.num_classes <= MANY_CLASSES else 5,
        kept=rows.dtype,
    )
    return penalty.centre(turn(found.unknowns.view_as(start)).add_(start)), found.steepest, found.converged


Turn = Callable[[Tensor], Tensor]
Turns = tuple[Turn, Turn]


def preconditioner(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], Turns]:
    """penalty -> maps between unknowns of about unit curvature and weights, from the curvature at the start."""
    # About the right curvature is enough: a part of the rows gives it.
    make = _class_blocks if rows.num_classes <= MANY_CLASSES else _shared_basis
    return make(rows.thinned(CURVATURE_ROWS), start)


def with_ones(rows: SoftmaxRows, part: slice, start: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs of a block with a column of ones, and its probabilities."""
    inputs = rows.inputs_of(part)
    probs, _ = rows.probs_of(inputs, start.to(rows.dtype), rows.labels[part])
    return torch.cat([inputs, torch.ones(len(inputs), 1, dtype=rows.dtype)], dim=1), probs


def _class_blocks(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], Turns]:
    """The exact curvature of each class's row of W, mean p (1 - p) x x', with the penalty's."""
    size = rows.num_classes + 1
    curvature = torch.zeros(rows.num_classes, size, size, dtype=torch.float64)
    for part in rows.blocks():
        inputs, probs = with_ones(rows, part, start)
        scaled = torch.empty_like(inputs)
        for k, spread in enumerate((probs * (1 - probs)).T.contiguous()):
            torch.mul(inputs, spread[:, None], out=scaled)
            curvature[k].add_(torch.mm(scaled.T, inputs), alpha=1 / rows.n)

    def turns(penalty: Penalty) -> Turns:
        ridged, index = curvature.clone(), torch.arange(size)
        for k in range(rows.num_classes):
            ridge = torch.full((size,), 2 * penalty.off, dtype=torch.float64)
            ridge[k], ridge[-1] = 2 * penalty.diagonal, 2 * penalty.bias
            ridged[k, index, index] += ridge + 1e-6 * curvature[k].trace() / size + 1e-12
        unit = torch.eye(size, dtype=torch.float64).expand_as(ridged)
        roots = torch.linalg.solve_triangular(torch.linalg.cholesky(ridged), unit, upper=False)
        return (
            lambda unknowns: torch.bmm(unknowns[:, None, :], roots)[:, 0],
            lambda gradient: torch.bmm(roots, gradient[:, :, None])[:, :, 0],
        )

    return turns


def _shared_basis(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], Turns]:
    """The classes share the directions of mean x x'; each has its own mean p (1 - p)."""
    size = rows.num_classes + 1
    second = torch.zeros(size, size, dtype=torch.float64)
    spread = torch.zeros(rows.num_classes, dtype=torch.float64)
    for part in rows.blocks():
        inputs, probs = with_ones(rows, part, start)
        second.add_(torch.mm(inputs.T, inputs), alpha=1 / rows.n)
        spread.add_((probs * (1 - probs)).sum(dim=0, dtype=torch.float64), alpha=1 / rows.n)
    lengths, basis = torch.linalg.eigh(second)
    lengths.clamp_min_(0.0)

    def turns(penalty: Penalty) -> Turns:
        bend = spread[:, None] * lengths
        scale = (bend + 2 * penalty.off + 1e-4 * bend.mean() + 1e-12).rsqrt_()
        return (lambda unknowns: (unknowns * scale) @ basis.T, lambda gradient: (gradient @ basis).mul_(scale))

    return turns
