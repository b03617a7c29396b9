"""Debiased calibration error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from confide.core.binning import bin_of, split_edges, width_edges
from confide.core.door import check_choice, check_range
from confide.metrics.family import metric
from confide.metrics.view import View

Floats = NDArray[np.float64]
DRAWS = 1000


def bin_means(sure: Floats, hit: Floats, bins: int, binning: str) -> tuple[Floats, Floats, Floats]:
    """Count, mean confidence and accuracy of every non-empty bin."""
    edges = width_edges(bins) if binning == "width" else split_edges(sure, bins)
    index = bin_of(sure, edges)
    size = len(edges) - 1
    count = np.bincount(index, minlength=size).astype(np.float64)
    full = count > 0
    confidence = np.bincount(index, sure, minlength=size)[full] / count[full]
    return count[full], confidence, np.bincount(index, hit, minlength=size)[full] / count[full]


def debiased_square(sure: Floats, hit: Floats, bins: int, binning: str) -> float:
    """Sum of n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)]; bins with one sample count 0."""
    count, confidence, accuracy = bin_means(sure, hit, bins, binning)
    noise = accuracy * (1 - accuracy) / np.maximum(count - 1, 1)
    terms = np.where(count >= 2, (confidence - accuracy) ** 2 - noise, 0.0)
    return float((count * terms).sum() / len(sure))


def debiased_mean(sure: Floats, hit: Floats, bins: int, binning: str) -> float:
    """2 x plug-in - its mean over accuracies redrawn as N(A_b, A_b (1 - A_b) / n_b); the draws are always the same."""
    count, confidence, accuracy = bin_means(sure, hit, bins, binning)
    weight = count / len(sure)
    plain = float((weight * np.abs(confidence - accuracy)).sum())
    spread = np.sqrt(accuracy * (1 - accuracy) / count)
    drawn = np.random.default_rng(0).normal(size=(DRAWS, len(count))) * spread + accuracy
    return 2 * plain - float((weight * np.abs(confidence - drawn)).sum(axis=1).mean())


@metric(
    "debiased_ece",
    paper="Kumar et al., 2019, arXiv:1909.10155",
    better="lower",
    range=(0.0, 1.0),
    meaning="The root mean squared gap between confidence and accuracy, with the part owed to chance taken off.",
    kind="calibration",
    corners=({"binning": "width"}, {"norm": 1}, {"of": "classes"}, {"bins": 1}, {"bins": 1000}),
    debiased=True,
)
def debiased_ece(view: View, *, bins: int = 15, binning: str = "mass", norm: int = 2, of: str = "top") -> float:
    """Debiased error, sqrt(max(0, sum_b n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)])).

    Args:
        bins: how many; equal-mass ones have their edges between neighbouring samples, and equal edges merge.
        binning: `mass` or `width`. Default: the choice of the paper.
        norm: 2 for the formula above; 1 for the mean gap less its noise, by 1,000 fixed normal draws (may be below 0).
        of: `top` for the confidence, `classes` for every class's probability (mean over classes before the root).
    """
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(norm, (1, 2), "norm")
    check_choice(of, ("top", "classes"), "of")
    check_range(bins, "bins", 1)
    pairs = view.class_columns() if of == "classes" else [view.top()]
    if norm == 1:
        values = [debiased_mean(sure, hit, bins, binning) for sure, hit in pairs]
        return float(np.mean(values))
    squares = [max(0.0, debiased_square(sure, hit, bins, binning)) for sure, hit in pairs]
    return float(np.sqrt(np.mean(squares)))
