"""Calibration error by kernel density."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from confide.core.door import check_choice, check_range
from confide.metrics.family import metric
from confide.metrics.kernel import (
    LARGEST,
    as_binary,
    bootstrap_draws,
    null_draws,
    permutation_draws,
    probabilities_of,
)
from confide.metrics.view import View

Floats = NDArray[np.float64]
BLOCK = 1 << 22


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
    resample=bootstrap_draws,
    permute=permutation_draws,
    resampled_rows=LARGEST,
)
def kde_ece(view: View, *, bandwidth: float = 0.02, p: int = 1, of: str = "all") -> float:
    """Kernel calibration error, mean_i sum_k |E_i[y_k] - p_ik|^p with a leave-one-out Dirichlet kernel; no root.

    Takes n x n steps: seconds at 10,000 samples, an hour at a million. One sample has no neighbours: its error is
    measured against its own probabilities, 0. The interval comes from 100 resamples of at most 2,000 rows, the chance
    level from 99 draws on all rows.

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
    probs = probabilities_of(view.predictions)
    truth = np.eye(probs.shape[1])[view.predictions.labels.cpu().numpy()]
    if of == "all":
        return float((np.abs(leave_one_out(probs, truth, bandwidth) - probs) ** p).sum(axis=1).mean())
    gaps = [
        np.abs(leave_one_out(as_binary(column), hits[:, None], bandwidth)[:, 0] - column) ** p
        for column, hits in zip(probs.T, truth.T, strict=True)
    ]
    return float(np.sum(gaps, axis=0).mean())
