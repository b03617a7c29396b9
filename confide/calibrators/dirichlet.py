"""dirichlet: softmax(W log p + b)."""

from __future__ import annotations

import torch

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, log_sums, transform_of
from confide.calibrators.linear import Penalty, SoftmaxRows
from confide.calibrators.matrix import fitted_map
from confide.core.door import check_range
from confide.core.shapes import Labels, Logits


@CALIBRATORS.add(
    "dirichlet",
    paper="Kull et al., 2019, arXiv:1910.12656",
    corners=({"reg_lambda": 0.001}, {"reg_lambda": 0.01, "reg_mu": 0.01}, {"reg_lambda": 1.0, "reg_norm": True}),
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 1, 1),
    linear=True,
)
def dirichlet(
    logits: Logits,
    labels: Labels,
    *,
    reg_lambda: float | None = None,
    reg_mu: float | None = None,
    reg_norm: bool = False,
    reference_row: bool | None = None,
) -> Fitted:
    """Dirichlet calibration, softmax(W log p + b), mean NLL + lambda sum off-diagonal^2 + mu sum b^2 (ODIR).

    Args:
        reg_lambda: pull on W; left out, ODIR with lambda = mu = strength / n, the same for every class, the strength
            chosen by cross-validated NLL on these samples.
        reg_mu: pull on b; left out while `reg_lambda` is given, lambda pulls on all entries and b (L2), not ODIR.
        reg_norm: divide lambda by c (c - 1) and mu by c, as the paper prints it.
        reference_row: subtract the last row from every row before the pull, as the released code does, so that its
            published strengths mean the same; by default done where `reg_lambda` is given.
    """
    check_range(reg_lambda or 0.0, "reg_lambda", 0.0)
    check_range(reg_mu or 0.0, "reg_mu", 0.0)
    num_classes = logits.shape[1]
    pairs, ones = (num_classes * (num_classes - 1), num_classes) if reg_norm else (1, 1)
    odir = reg_lambda is None or reg_mu is not None
    released = reg_lambda is not None if reference_row is None else reference_row

    def penalty(pull: float) -> Penalty:
        bias = pull if reg_mu is None else reg_mu
        return Penalty(pull / pairs, 0.0 if odir else pull / pairs, bias / ones, released)

    rows = SoftmaxRows(logits, labels, log_sums(logits))
    return fitted_map(rows, logits, labels, penalty if reg_lambda is None else penalty(reg_lambda))


@transform_of("dirichlet")
def mapped_log_probs(values: Values, logits: Logits) -> Logits:
    """Log-probabilities of W log p + b."""
    log_probs = torch.log_softmax(logits, dim=1)
    return torch.log_softmax(log_probs @ values["weights"].T + values["bias"], dim=1)
