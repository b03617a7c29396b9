"""matrix: softmax(W z + b)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.linear import Penalty, Precision, SoftmaxRows, fit_map, preconditioner
from confide.calibrators.strength import best_strength
from confide.calibrators.tempered import best_scale
from confide.core.door import check_range
from confide.core.shapes import Labels, Logits

CERTAIN = 0.1
"""Nats of all samples together below which every label counts as told apart."""


@CALIBRATORS.add(
    "matrix",
    paper="Guo et al., 2017, arXiv:1706.04599; ODIR: Kull et al., 2019, arXiv:1910.12656",
    corners=({"reg_lambda": 1.0, "reg_mu": 1.0}, {"reg_lambda": 0.1}),
    keeps_argmax=False,
    yields="logits",
    parameters=(0, 1, 1),
    linear=True,
)
def matrix(logits: Logits, labels: Labels, *, reg_lambda: float = 0.0, reg_mu: float | None = None) -> Fitted:
    """Matrix scaling, softmax(W z + b), mean NLL + lambda / (c (c - 1)) sum off-diagonal^2 + mu / c sum b^2.

    Args:
        reg_lambda: pull on the off-diagonal entries (ODIR); 0 is plain matrix scaling, which needs n well above c^2.
        reg_mu: pull on the bias; left out, the same as `reg_lambda`.
    """
    check_range(reg_lambda, "reg_lambda", 0.0)
    bias = reg_lambda if reg_mu is None else reg_mu
    check_range(bias, "reg_mu", 0.0)
    num_classes = logits.shape[1]
    penalty = Penalty(off=reg_lambda / (num_classes * (num_classes - 1)), bias=bias / num_classes)
    return fitted_map(SoftmaxRows(logits, labels), logits, labels, penalty)


def fitted_map(
    rows: SoftmaxRows, logits: Logits, labels: Labels, penalty: Penalty | Callable[[float], Penalty]
) -> Fitted:
    """The map from the identity over the best temperature, its bias centred, and a note if it had to stop early.

    Args:
        penalty: or, where its strength is to be found by cross-validation, the penalty of a pull.
    """
    num_classes = logits.shape[1]
    found = best_scale(logits, labels)
    scale = found.scale if found.bound is None else 1.0
    start = scale * torch.eye(num_classes, num_classes + 1, dtype=torch.float64)
    seen = torch.bincount(labels, minlength=num_classes) > 0
    turns, values = preconditioner(rows, start), {}
    if not isinstance(penalty, Penalty):
        strength = best_strength(rows, start, penalty, turns)
        values = {"strength": torch.tensor(strength, dtype=torch.float64)}
        penalty = penalty(strength / rows.n)
    weights, steepest, converged = fit_map(rows, start, penalty, seen, turns(penalty), Precision.of(rows))
    notes = [] if converged else [f"the fit stopped at its last iteration with a slope of {steepest:.1e}"]
    if not seen.all():
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    # Only a map with as many numbers as samples can fit them all.
    if rows.n <= weights.numel() and rows.n * rows.loss(weights) < CERTAIN:
        notes.append(
            "the samples are told apart perfectly: the map has no best value and was stopped where it no longer "
            "matters; expect it to be overconfident on others, use more samples, a pull or fewer parameters"
        )
    bias = weights[:, -1]
    return Fitted({"weights": weights[:, :-1].clone(), "bias": bias - bias.mean(), **values}, tuple(notes))


@transform_of("matrix")
def mapped(values: Values, logits: Logits) -> Logits:
    """W z + b."""
    return logits @ values["weights"].T + values["bias"]
