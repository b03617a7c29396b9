"""vector: softmax(w * z + b)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.tempered import best_scale
from confide.core.shapes import Labels, Logits

Array = NDArray[np.floating]
Matrix = NDArray[np.float64]
BLOCK_ELEMENTS = 1 << 16
WIDE_ELEMENTS = 1 << 21
"""n c up to which a pass runs in float64 although the logits are float32."""
ITERATIONS = 300


@CALIBRATORS.add(
    "vector",
    paper="Guo et al., 2017, arXiv:1706.04599",
    corners=(),
    keeps_argmax=False,
    yields="logits",
    parameters=(0, 2, 0),
)
def vector(logits: Logits, labels: Labels) -> Fitted:
    """Vector scaling, softmax(w * z + b) with one weight and one bias per class, smallest mean NLL."""
    rows = ScaledRows(logits, labels)
    found = best_scale(logits, labels)
    start = np.stack(
        [np.full(rows.num_classes, found.scale if found.bound is None else 1.0), np.zeros(rows.num_classes)]
    )
    seen = np.bincount(labels.numpy(), minlength=rows.num_classes) > 0
    roots = _roots(rows, start)

    def objective(unknowns: Matrix) -> tuple[float, Matrix]:
        value, gradient = rows.loss(start + _turned(roots, unknowns.reshape(2, -1)))
        gradient[:, ~seen] = 0.0
        return value, _turned_back(roots, gradient).ravel()

    wide = rows.dtype == np.float64
    options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "gtol": 1e-9, "ftol": 0.0 if wide else 1e-9}
    result = minimize(objective, np.zeros(2 * rows.num_classes), jac=True, method="L-BFGS-B", options=options)
    weights, bias = start + _turned(roots, result.x.reshape(2, -1))
    notes = ["the fit stopped at its last iteration"] if result.status == 1 else []
    if not seen.all():
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    values = {"weights": torch.from_numpy(weights), "bias": torch.from_numpy(bias - bias.mean())}
    return Fitted(values, tuple(notes))


@transform_of("vector")
def scaled(values: Values, logits: Logits) -> Logits:
    """w * z + b."""
    return logits * values["weights"] + values["bias"]


class ScaledRows:
    """Rows of logits with labels: mean NLL and gradient at any weights and biases `2 c`, by blocks in ready buffers."""

    def __init__(self, logits: Logits, labels: Labels) -> None:
        n, num_classes = logits.shape
        wide = logits.dtype == torch.float64 or n * num_classes <= WIDE_ELEMENTS
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self.logits, self.labels, self.n, self.num_classes = logits.numpy(), labels.numpy(), n, num_classes
        self.block = max(1, min(n, BLOCK_ELEMENTS // num_classes))
        self.scores = np.empty((self.block, num_classes), self.dtype)
        self.product = np.empty_like(self.scores)
        self.ones = np.ones(max(num_classes, self.block), self.dtype)
        index = np.arange(n)
        self.true_logits = self.logits[index, self.labels].astype(np.float64)
        self.hits = np.bincount(self.labels, minlength=num_classes) / n
        self.hit_logits = np.bincount(self.labels, self.true_logits, minlength=num_classes) / n

    def loss(self, weights: Matrix) -> tuple[float, Matrix]:
        """Mean NLL and its gradient `2 c`: mean (p - onehot) z and mean (p - onehot)."""
        value = 0.0
        gradient = -np.stack([self.hit_logits, self.hits])
        for part in self.blocks():
            rows, probs, log_total = self.probs_of(part, weights)
            labels = self.labels[part]
            true = weights[0][labels] * self.true_logits[part] + weights[1][labels]
            value += float(np.sum(log_total - true, dtype=np.float64))
            gradient += self.sums(rows, probs)
        return value / self.n, gradient

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def probs_of(self, part: slice, weights: Matrix) -> tuple[Array, Array, Array]:
        """Logits of the block, probabilities in the ready buffer, and the log of their normaliser."""
        rows = self.logits[part]
        scores = self.scores[: len(rows)]
        np.multiply(rows, weights[0].astype(self.dtype), out=scores)
        np.add(scores, weights[1].astype(self.dtype), out=scores)
        view = torch.from_numpy(scores)
        highest = view.amax(dim=1, keepdim=True)
        view.sub_(highest)
        np.exp(scores, out=scores)
        total = scores @ self.ones[: self.num_classes]
        view.div_(torch.from_numpy(total)[:, None])
        return rows, scores, np.log(total) + highest[:, 0].numpy()

    def sums(self, rows: Array, probs: Array) -> Matrix:
        """Column means of p z and p."""
        product = np.multiply(rows, probs, out=self.product[: len(rows)])
        ones = self.ones[: len(rows)]
        return np.stack([ones @ product, ones @ probs]).astype(np.float64) / self.n

    def curvature(self, weights: Matrix) -> Matrix:
        """Mean p (1 - p) times z^2, z and 1, `3 c`: the curvature of every class by itself."""
        result = np.zeros((3, self.num_classes))
        for part in self.blocks():
            rows, probs, _ = self.probs_of(part, weights)
            spread = probs * (1 - probs)
            product = rows * spread
            ones = self.ones[: len(rows)]
            result += np.stack([ones @ (product * rows), ones @ product, ones @ spread]) / self.n
        return result


def _roots(rows: ScaledRows, start: Matrix) -> Matrix:
    """Inverse Cholesky factors of the classes' 2 x 2 curvatures, as (w, w), (b, w), (b, b) entries `3 c`."""
    squares, cross, ones = rows.curvature(start)
    squares = squares + 1e-6 * squares.mean() + 1e-12
    ones = ones + 1e-6 * ones.mean() + 1e-12
    first = np.sqrt(squares)
    under = cross / first
    second = np.sqrt(np.maximum(ones - under**2, 1e-6 * ones))
    return np.stack([1 / first, -under / (first * second), 1 / second])


def _turned(roots: Matrix, unknowns: Matrix) -> Matrix:
    return np.stack([roots[0] * unknowns[0] + roots[1] * unknowns[1], roots[2] * unknowns[1]])


def _turned_back(roots: Matrix, gradient: Matrix) -> Matrix:
    return np.stack([roots[0] * gradient[0], roots[1] * gradient[0] + roots[2] * gradient[1]])
