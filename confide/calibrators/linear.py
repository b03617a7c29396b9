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
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

Array = NDArray[np.floating]
Matrix = NDArray[np.float64]
BLOCK_ELEMENTS = 1 << 18
WIDE_WORK = 1 << 26
"""n c^2 up to which a pass runs in float64 although the logits are float32: then rounding does not end the search."""
MANY_CLASSES = 256
ITERATIONS = 500


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

    def add_to(self, weights: Matrix, gradient: Matrix) -> float:
        """The penalty of `c c+1` weights (bias last); its gradient is added in place."""
        if not (self.off or self.diagonal or self.bias):
            return 0.0
        shifted = weights - weights[-1] if self.reference_row else weights
        slope = 2 * self.off * shifted
        index = np.arange(len(weights))
        slope[index, index] = 2 * self.diagonal * shifted[index, index]
        slope[:, -1] = 2 * self.bias * shifted[:, -1]
        value = float((slope * shifted).sum()) / 2
        if self.reference_row:
            slope[-1] -= slope.sum(axis=0)
        gradient += slope
        return value


class SoftmaxRows:
    """Rows x = features - shift with labels: mean NLL and gradient at any `c c+1` weights, bias last.

    Args:
        shift: subtracted from every row, such as its log-sum-exp, which turns logits into log-probabilities.
    """

    def __init__(self, features: Tensor, labels: Tensor, shift: Tensor | None = None) -> None:
        n, num_classes = features.shape
        wide = features.dtype == torch.float64 or n * num_classes**2 <= WIDE_WORK
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self.features, self.labels, self.n, self.num_classes = features.numpy(), labels.numpy(), n, num_classes
        self.shift = None if shift is None else shift.numpy()
        self.block = max(1, min(n, max(BLOCK_ELEMENTS // num_classes, 256)))
        self.inputs = np.ones((self.block, num_classes + 1), self.dtype)
        self.scores = np.empty((self.block, num_classes), self.dtype)
        self.ones = np.ones(max(num_classes, self.block), self.dtype)

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def inputs_of(self, part: slice) -> Array:
        """Features with a column of ones, in the ready buffer."""
        inputs = self.inputs[: part.stop - part.start]
        inputs[:, :-1] = self.features[part]
        if self.shift is not None:
            inputs[:, :-1] -= self.shift[part, None]
        return inputs

    def probs_of(self, inputs: Array, weights: Array) -> tuple[Array, Array]:
        """Probabilities, in the ready buffer, and log-sum-exp minus the largest score."""
        scores = np.matmul(inputs, weights.T, out=self.scores[: len(inputs)])
        view = torch.from_numpy(scores)
        highest = view.amax(dim=1, keepdim=True)
        view.sub_(highest)
        np.exp(scores, out=scores)
        total = scores @ self.ones[: self.num_classes]
        view.div_(torch.from_numpy(total)[:, None])
        return scores, np.log(total) + highest[:, 0].numpy()

    def loss(self, weights: Matrix, gradient: Matrix) -> float:
        """Mean NLL; its gradient is added in place."""
        narrow = weights.astype(self.dtype)
        value = 0.0
        for part in self.blocks():
            inputs, labels = self.inputs_of(part), self.labels[part]
            probs, log_total = self.probs_of(inputs, narrow)
            rows = np.arange(len(inputs))
            # The label's score from its own row of W: the buffer holds probabilities by now.
            value += float(np.sum(log_total - np.einsum("ij,ij->i", inputs, narrow[labels]), dtype=np.float64))
            probs[rows, labels] -= 1
            gradient += np.matmul(probs.T, inputs) / self.n
        return value / self.n


def fit_map(rows: SoftmaxRows, start: Matrix, penalty: Penalty, seen: NDArray[np.bool_]) -> tuple[Matrix, float, bool]:
    """Weights `c c+1` with the smallest loss + penalty, the largest slope left, and whether it converged.

    Args:
        seen: classes that have samples; the rows of the others stay as they start.
    """
    turn, back = preconditioner(rows, start, penalty)
    wide = rows.dtype == np.float64

    def objective(unknowns: Matrix) -> tuple[float, Matrix]:
        weights = start + turn(unknowns.reshape(start.shape))
        gradient = np.zeros_like(weights)
        value = rows.loss(weights, gradient)
        value += penalty.add_to(weights, gradient)
        gradient[~seen] = 0.0
        return value, back(gradient).ravel()

    found = minimize(
        objective,
        np.zeros(start.size),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": ITERATIONS,
            "maxfun": 2 * ITERATIONS,
            "gtol": 1e-9,
            "ftol": 0.0 if wide else 1e-9,
            "maxcor": 10 if rows.num_classes <= MANY_CLASSES else 5,
        },
    )
    weights = start + turn(found.x.reshape(start.shape))
    gradient = np.zeros_like(weights)
    value = rows.loss(weights, gradient) + penalty.add_to(weights, gradient)
    steepest = float(np.abs(gradient[seen]).max(initial=0.0))
    return weights, steepest, found.status != 1 and np.isfinite(value)


Turn = Callable[[Matrix], Matrix]


def preconditioner(rows: SoftmaxRows, start: Matrix, penalty: Penalty) -> tuple[Turn, Turn]:
    """Maps between unknowns of about unit curvature and weights: (unknowns -> weights, gradient -> gradient)."""
    if rows.num_classes <= MANY_CLASSES:
        return _class_blocks(rows, start, penalty)
    return _shared_basis(rows, start, penalty)


def _class_blocks(rows: SoftmaxRows, start: Matrix, penalty: Penalty) -> tuple[Turn, Turn]:
    """The exact curvature of each class's row of W, mean p (1 - p) x x', with the penalty's."""
    size = rows.num_classes + 1
    curvature = np.zeros((rows.num_classes, size, size))
    for part in rows.blocks():
        inputs = rows.inputs_of(part)
        probs, _ = rows.probs_of(inputs, start.astype(rows.dtype))
        spread = np.sqrt(probs * (1 - probs))
        for k in range(rows.num_classes):
            # Samples that are sure about this class bend nothing.
            matter = spread[:, k] > 1e-2 * max(float(spread[:, k].max()), 1e-6)
            scaled = inputs[matter] * spread[matter, k, None]
            curvature[k] += scaled.T @ scaled / rows.n
    index = np.arange(size)
    for k in range(rows.num_classes):
        ridge = np.full(size, 2 * penalty.off)
        ridge[k], ridge[-1] = 2 * penalty.diagonal, 2 * penalty.bias
        curvature[k, index, index] += ridge + 1e-6 * np.trace(curvature[k]) / size + 1e-12
    roots = np.linalg.inv(np.linalg.cholesky(curvature))
    return (
        lambda unknowns: np.matmul(unknowns[:, None, :], roots)[:, 0],
        lambda gradient: np.matmul(roots, gradient[:, :, None])[:, :, 0],
    )


def _shared_basis(rows: SoftmaxRows, start: Matrix, penalty: Penalty) -> tuple[Turn, Turn]:
    """The classes share the directions of mean x x'; each has its own mean p (1 - p)."""
    size = rows.num_classes + 1
    second, spread = np.zeros((size, size)), np.zeros(rows.num_classes)
    for part in rows.blocks():
        inputs = rows.inputs_of(part)
        second += inputs.T @ inputs / rows.n
        probs, _ = rows.probs_of(inputs, start.astype(rows.dtype))
        spread += (probs * (1 - probs)).sum(axis=0, dtype=np.float64) / rows.n
    lengths, basis = np.linalg.eigh(second)
    bend = spread[:, None] * np.maximum(lengths, 0.0)
    scale = 1 / np.sqrt(bend + 2 * penalty.off + 1e-4 * bend.mean() + 1e-12)
    return (lambda unknowns: (unknowns * scale) @ basis.T, lambda gradient: (gradient @ basis) * scale)
