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


def class_mean_gap(means: Tensor, labels: Labels) -> Scalar:
    """(1/c) sum_k |m_k - mean_i 1[y_i = k]| for mean probabilities m of the batch."""
    labels = labels.clamp(0, len(means) - 1)
    share = torch.zeros_like(means).index_add(0, labels, torch.full_like(labels, 1, dtype=means.dtype))
    return (means - share / max(len(labels), 1)).abs().mean()


def _probs(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype))
