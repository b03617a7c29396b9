"""Calibration error by kernel density."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from confide.core.door import check_choice, check_range
from confide.core.predictions import Predictions
from confide.metrics.classwise import draw_labels
from confide.metrics.family import metric
from confide.metrics.view import View

Floats = NDArray[np.float64]
SMALLEST = 1e-9
BLOCK = 1 << 22
NULL_DRAWS = 39


def leave_one_out(probs: Floats, targets: Floats, bandwidth: float) -> Floats:
    """Kernel estimate of the targets at every row from all others: softmax over j != i of the log-kernels.

    The kernel of sample j is Dirichlet(p_j / bandwidth + 1), evaluated at p_i.
    """
    n = len(probs)
    shape = probs / bandwidth + 1
    constant = gammaln(shape.sum(axis=1)) - gammaln(shape).sum(axis=1)
    exponents, logs = probs / bandwidth, np.log(probs)
    out = np.empty(targets.shape)
    rows = max(1, BLOCK // n)
    for start in range(0, n, rows):
        block = logs[start : start + rows] @ exponents.T + constant
        own = np.arange(len(block))
        block[own, start + own] = -np.inf
        block -= logsumexp(block, axis=1, keepdims=True)
        out[start : start + len(block)] = np.exp(block) @ targets
    return out


def as_binary(column: Floats) -> Floats:
    """A probability as a point of the two-class simplex, where the Dirichlet kernel is the Beta kernel."""
    return np.clip(np.stack([column, 1 - column], axis=1), SMALLEST, 1 - SMALLEST)


def null_draws(predictions: Predictions, options: dict[str, Any], seed: int) -> Floats:
    """The error of labels drawn from the probabilities; kernel estimates are linear in the labels, so all at once."""
    bandwidth, p = options.get("bandwidth", 0.02), options.get("p", 1)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 31]))
    probs = np.clip(predictions.probabilities().double().cpu().numpy(), SMALLEST, 1 - SMALLEST)
    n, num_classes = probs.shape
    if n < 2:
        return np.zeros(NULL_DRAWS)
    truth = np.eye(num_classes)[draw_labels(probs, NULL_DRAWS, rng)].reshape(n, -1)
    gaps = leave_one_out(probs, truth, bandwidth).reshape(n, NULL_DRAWS, num_classes) - probs[:, None, :]
    return np.asarray((np.abs(gaps) ** p).sum(axis=2).mean(axis=0))


@metric(
    "kde_ece",
    paper="Popordanoska et al., 2022, arXiv:2210.07810",
    better="lower",
    range=(0.0, 2.0),
    meaning="The distance between all probabilities and what is seen around them, by kernels instead of bins.",
    kind="calibration",
    corners=({"of": "top"}, {"of": "classes"}, {"p": 2}, {"bandwidth": 0.5}),
    whole=True,
    slow=True,
    null=null_draws,
)
def kde_ece(view: View, *, bandwidth: float = 0.02, p: int = 1, of: str = "all") -> float:
    """Kernel calibration error, mean_i sum_k |E_i[y_k] - p_ik|^p with a leave-one-out Dirichlet kernel; no root.

    Takes n x n steps: seconds at 10,000 samples, an hour at a million. One sample has no neighbours: its error is
    measured against its own probabilities, 0.

    Args:
        bandwidth: width of the kernel. Default: what the paper reports.
        p: power of the gaps.
        of: `all` probabilities at once (canonical), the `top` label's confidence, or every one of the `classes`
            on its own, summed.
    """
    check_range(bandwidth, "bandwidth", 0, low_open=True)
    check_range(p, "p", 1)
    check_choice(of, ("all", "top", "classes"), "of")
    if len(view.predictions) < 2:
        return 0.0
    if of == "top":
        sure, hit = view.top()
        points = as_binary(sure)
        return float((np.abs(leave_one_out(points, hit[:, None], bandwidth)[:, 0] - points[:, 0]) ** p).mean())
    view.predictions.need_logits("kernel calibration error")
    probs = np.clip(view.predictions.probabilities().double().cpu().numpy(), SMALLEST, 1 - SMALLEST)
    truth = np.eye(probs.shape[1])[view.predictions.labels.cpu().numpy()]
    if of == "all":
        return float((np.abs(leave_one_out(probs, truth, bandwidth) - probs) ** p).sum(axis=1).mean())
    gaps = [
        np.abs(leave_one_out(as_binary(column), hits[:, None], bandwidth)[:, 0] - column) ** p
        for column, hits in zip(probs.T, truth.T, strict=True)
    ]
    return float(np.sum(gaps, axis=0).mean())
