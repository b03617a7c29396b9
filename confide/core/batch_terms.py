"""Batch terms over the whole probability matrix, shared by losses and penalties: KDE-XE, MDCA."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.kernels import dirichlet_calibration_error, likely_bandwidth
from confide.core.shapes import Labels, Logits, Scalar
from confide.core.simplex_plain import accumulator

PROBABILITY_CLAMP = 1e-9


def kde_calibration_error(logits: Logits, labels: Labels, bandwidth: float | None, power: float, form: str) -> Scalar:
    """Calibration error by Dirichlet kernels; the bandwidth chosen without gradient where none is given."""
    probs = _probs(logits).clamp(PROBABILITY_CLAMP, 1 - PROBABILITY_CLAMP)
    if form == "released":
        probs = probs.detach()
    chosen = likely_bandwidth(probs.detach(), extra_factor=form == "original") if bandwidth is None else bandwidth
    # A bad label has raised or set the device's flag already; an index out of range would end the process there.
    return dirichlet_calibration_error(probs, labels.clamp(0, logits.shape[1] - 1), chosen, power)


def class_mean_gap(logits: Logits, labels: Labels) -> Scalar:
    """(1/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]|."""
    n, num_classes = logits.shape
    if not n:
        return logits.sum()
    share = torch.zeros(num_classes, dtype=accumulator(logits.dtype), device=logits.device)
    share = share.index_add(0, labels.clamp(0, num_classes - 1), torch.full_like(labels, 1, dtype=share.dtype)) / n
    return (_probs(logits).mean(dim=0) - share).abs().mean()


def _probs(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype))
