"""Calibration error by Dirichlet kernels, and its resamples: one kernel matrix, a product with the weights of each.

A kernel matrix has n x n entries, so there are 100 resamples, and at most 2,000 rows are resampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.block_sizes import MEMORY, rows_in
from confide.checks import check_choice, check_range
from confide.metrics.base import calibration_metric
from confide.metrics.classwise_calibration import draw_labels, thinned
from confide.metrics.resampling import Resamples
from confide.metrics.view import MetricSamples, View
from confide.predictions import Predictions
from confide.random import generator
from confide.types import Floats, Options

RESAMPLES = 100
NULL_DRAWS = 99
LARGEST = 2_000
SMALLEST = 1e-9


def as_binary(column: Floats) -> Floats:
    """A probability as a point of the two-class simplex, where the Dirichlet kernel is the Beta kernel."""
    return np.clip(np.stack([column, 1 - column], axis=1), SMALLEST, 1 - SMALLEST)


def probabilities_of(predictions: Predictions) -> Floats:
    """All probabilities, inside the simplex."""
    return np.asarray(np.clip(predictions.probabilities().double().cpu().numpy(), SMALLEST, 1 - SMALLEST))


def kernel_blocks(points: Floats, bandwidth: float) -> Iterator[tuple[slice, Floats]]:
    """Rows of the kernel matrix in blocks: Dirichlet(p_j / bandwidth + 1) at p_i, 0 at i = j, largest of a row 1."""
    from scipy.special import gammaln

    shape = points / bandwidth + 1
    constant = gammaln(shape.sum(axis=1)) - gammaln(shape).sum(axis=1)
    exponents, logs = (points / bandwidth).T, np.log(points)
    rows = rows_in(MEMORY, len(points))
    for start in range(0, len(points), rows):
        block = logs[start : start + rows] @ exponents + constant
        own = np.arange(len(block))
        block[own, start + own] = -np.inf
        block -= block.max(axis=1, keepdims=True)
        yield slice(start, start + len(block)), np.exp(block, out=block)


@dataclass(frozen=True, eq=False)
class KernelInputs:
    """What a form of the error sees: all probabilities and labels, or confidence and correctness of the top label."""

    probabilities: Floats
    truth: NDArray[Any]

    @classmethod
    def of(cls, predictions: Predictions, form: str) -> KernelInputs:
        """The rows of predictions in the order given."""
        if form != "top":
            return cls(probabilities_of(predictions), predictions.labels.cpu().numpy())
        facts = predictions.core_facts
        return cls(facts.confidence.double().cpu().numpy(), facts.correct.cpu().numpy().astype(np.int64))

    def drawn(self, draws: int, rng: np.random.Generator) -> NDArray[Any]:
        """`draws x n` labels, or hits of the top label, drawn from the probabilities."""
        if self.probabilities.ndim == 1:
            return (rng.random((draws, len(self.probabilities))) < self.probabilities).astype(np.int64)
        return np.asarray(draw_labels(self.probabilities, draws, rng).T)


def errors_of(rows: KernelInputs, truth: NDArray[Any], weights: Floats, options: Options) -> Floats:
    """Kernel calibration error of every draw: its `truth` (labels or hits) and `weights`, both `draws x n`.

    A row without a neighbour in a resample is measured against its own probabilities: it counts 0. Copies of a row are
    no neighbours of it.
    """
    bandwidth, power = options.get("bandwidth", 0.02), options.get("p", 1)
    if rows.probabilities.ndim == 1:
        total = binary_sums(rows.probabilities, truth, weights, bandwidth, power)
    elif options.get("of", "all") == "classes":
        columns = enumerate(rows.probabilities.T)
        total = sum((binary_sums(c, truth == k, weights, bandwidth, power) for k, c in columns), np.zeros(len(truth)))
    else:
        total = joint_sums(rows.probabilities, truth, weights, bandwidth, power)
    return np.asarray(total / weights.sum(axis=1))


def binary_sums(sure: Floats, hits: NDArray[Any], weights: Floats, bandwidth: float, power: float) -> Floats:
    """Weighted sums of |kernel estimate of the hits - probability|^power, for every draw."""
    total, points = np.zeros(len(hits)), as_binary(sure)
    for at, block in kernel_blocks(points, bandwidth):
        near, seen = block @ weights.T, block @ (weights * hits).T
        gaps = np.abs(np.divide(seen, near, where=near > 0, out=seen) - points[at, :1]) ** power
        total += (gaps * (near > 0) * weights.T[at]).sum(axis=0)
    return total


def joint_sums(probs: Floats, labels: NDArray[Any], weights: Floats, bandwidth: float, power: float) -> Floats:
    """Weighted sums of sum_k |kernel estimate of 1[label = k] - p_k|^power, for every draw."""
    from scipy.sparse import csr_matrix

    draws, n = labels.shape
    total, place = np.zeros(draws), np.arange(n)
    for at, block in kernel_blocks(probs, bandwidth):
        near, across, own = block @ weights.T, np.ascontiguousarray(block.T), probs[at].T
        for d in range(draws):
            chosen = csr_matrix((weights[d], (labels[d], place)), shape=(probs.shape[1], n))
            known = near[:, d] > 0
            gaps = np.abs((chosen @ across)[:, known] / near[known, d] - own[:, known]) ** power
            total[d] += float(gaps.sum(axis=0) @ weights[d, at][known])
    return total


def kernel_chance(view: View, draws: int, rng: np.random.Generator, **options: Any) -> Floats:
    """The error of labels drawn from the probabilities, on all rows, 99 times at most."""
    draws = min(draws, NULL_DRAWS)
    if len(view.predictions) < 2:
        return np.zeros(draws)
    rows = KernelInputs.of(view.predictions, options.get("of", "all"))
    truth = rows.drawn(draws, rng)
    return errors_of(rows, truth, np.broadcast_to(_weights_of(view), truth.shape), options)


def _weights_of(view: View) -> Floats:
    return np.ones(view.base.n) if view.weights is None else view.weights


def bootstrap_draws(base: MetricSamples, options: Options, seed: int) -> tuple[Floats, float]:
    """The error of 100 resamples, and the factor of their spread where only 2,000 rows were resampled."""
    rng = generator(seed, "kernel bootstrap")
    base, factor = thinned(base, LARGEST, rng)
    if base.n < 2:
        return np.zeros(RESAMPLES), factor
    rows = KernelInputs.of(base.predictions, options.get("of", "all"))
    weights = Resamples(base.n, base.design).several(RESAMPLES, rng).astype(np.float64)
    return errors_of(rows, np.broadcast_to(rows.truth, weights.shape), weights, options), factor


def leave_one_out(probs: Floats, targets: Floats, bandwidth: float) -> Floats:
    """Kernel estimate of the targets at every row from all others: their mean weighted by the kernels.

    The kernel of sample j is Dirichlet(p_j / bandwidth + 1), evaluated at p_i.
    """
    estimates = np.empty(targets.shape)
    for at, block in kernel_blocks(probs, bandwidth):
        estimates[at] = block @ targets / block.sum(axis=1, keepdims=True)
    return estimates


@calibration_metric(
    "kde_ece",
    paper="Popordanoska et al., 2022, arXiv:2210.07810",
    title="ECE by kernels",
    meaning="The distance between all probabilities and what is seen around them, by kernels instead of bins.",
    range=(0.0, 2.0),
    corners=({"of": "top"}, {"of": "classes"}, {"p": 2}, {"bandwidth": 0.5}),
    whole=True,
    slow=True,
    chance=kernel_chance,
    resample=bootstrap_draws,
    resampled_rows=LARGEST,
)
def kde_ece(view: View, *, bandwidth: float = 0.02, p: int = 1, of: str = "all") -> float:
    """Kernel calibration error, mean_i sum_k |E_i[y_k] - p_ik|^p with a leave-one-out Dirichlet kernel; no root.

    Takes n x n steps: seconds at 10,000 samples, an hour at a million. One sample has no neighbours: its error is
    measured against its own probabilities, 0. The interval comes from 100 resamples of at most 2,000 rows, the chance
    level from 99 draws on all rows.

    When: all class probabilities at once, no bins.
    When not: samples are more than some ten thousand: n x n steps.

    Args:
        bandwidth: width of the kernel. Default: what the paper reports.
        p: power of the gaps.
        of: `all` probabilities at once (canonical), the `top` label's confidence, or every one of the `classes`
            on its own, summed.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.kde_ece(predictions, bandwidth=0.1)), 3)
        0.901
    """
    check_range(bandwidth, "bandwidth", 0, low_open=True)
    check_range(p, "p", 1)
    check_choice(of, ("all", "top", "classes"), "of")
    if len(view.predictions) < 2:
        return 0.0
    if view.weights is not None:
        if of != "top":
            view.predictions.need_logits("kernel calibration error")
        rows, options = KernelInputs.of(view.predictions, of), {"bandwidth": bandwidth, "p": p, "of": of}
        return float(errors_of(rows, rows.truth[None], view.weights[None], options)[0])
    if of == "top":
        top = view.top()
        points = as_binary(top.probs)
        return float((np.abs(leave_one_out(points, top.hits[:, None], bandwidth)[:, 0] - points[:, 0]) ** p).mean())
    view.predictions.need_logits("kernel calibration error")
    probs = probabilities_of(view.predictions)
    truth = np.eye(probs.shape[1])[view.predictions.labels.cpu().numpy()]
    if of == "all":
        return float((np.abs(leave_one_out(probs, truth, bandwidth) - probs) ** p).sum(axis=1).mean())
    gaps = [
        np.abs(leave_one_out(as_binary(column), hits[:, None], bandwidth)[:, 0] - column) ** p
        for column, hits in zip(probs.T, truth.T, strict=True)
    ]
    return float(np.sum(gaps, axis=0).mean())
