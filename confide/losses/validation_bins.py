"""Equal-mass bins of validation confidence, which AdaFocal and CalFocal take their gammas from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from confide.core.binning import bin_of, width_edges
from confide.core.door import InputError, as_tensor, check_labels, check_logits
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics

FUSED_BINS = 128
"""More bins than this are looked up outside the GPU kernel."""


@dataclass(frozen=True)
class ValidationBins:
    """Edges (b + 1) and, per bin, the number of samples, their mean confidence and accuracy (0 where empty)."""

    edges: Tensor
    counts: Tensor
    confidence: Tensor
    accuracy: Tensor


def equal_width_edges(bins: int) -> Tensor:
    """Edges of the bins before the first validation pass."""
    return torch.from_numpy(width_edges(bins))


def bin_of_samples(p_true: PerSample, edges: Tensor) -> Tensor:
    """Bin of every sample, [low, high); the first also takes all below, the last all above."""
    return torch.bucketize(p_true, edges[1:-1].to(p_true), right=True)


def validation_bins(logits: Logits, labels: Labels, bins: int) -> ValidationBins:
    """Equal-mass bins of top-label confidence: edges interpolated in the sorted values, statistics over (low, high].

    The smallest confidence lies on the lowest edge and is in no bin, as in the released code of AdaFocal.
    """
    logits = check_logits(as_tensor(logits, "validation logits").cpu(), "validation logits")
    labels = as_tensor(labels, "validation labels").cpu()
    labels = check_labels(labels, len(logits), logits.shape[1], "validation labels")
    n = len(logits)
    if n == 0:
        raise InputError("validation logits must hold at least one sample, got none; pass the validation set")
    found = simplex_statistics(logits.double(), labels, "p_max prediction")
    confidence, correct = found.p_max.numpy(), (found.prediction == labels).numpy().astype(np.float64)
    edges = np.interp(np.linspace(0, n, bins + 1), np.arange(n), np.sort(confidence))
    inside = confidence > edges[0]
    place = bin_of(confidence[inside], edges)
    counts = np.bincount(place, minlength=bins)
    divisor = np.maximum(counts, 1)
    means = [np.bincount(place, v[inside], minlength=bins) / divisor for v in (confidence, correct)]
    return ValidationBins(*(torch.from_numpy(v) for v in (edges, counts, *means)))
