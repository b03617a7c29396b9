"""histogram: the share of hits in the bin of a probability."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.curve import Vector, all_tops, inner_below, looked_up, normalised, padded, top_of, with_top
from confide.calibrators.isotonic import class_columns
from confide.core.binning import bin_of, width_edges
from confide.core.door import check_choice, check_range
from confide.core.shapes import Labels, Logits


@CALIBRATORS.add(
    "histogram",
    paper="Zadrozny and Elkan, 2001; Guo et al., 2017, arXiv:1706.04599",
    corners=({"binning": "mass"}, {"target": "classes"}, {"empty": "zero"}, {"bins": 1}),
    keeps_argmax=False,
    yields="probabilities",
    parameters=(15, 0, 0),
)
def histogram(
    logits: Logits,
    labels: Labels,
    *,
    bins: int = 15,
    binning: str = "width",
    target: str = "top",
    empty: str = "midpoint",
) -> Fitted:
    """Histogram binning, q = share of hits among the validation samples whose probability falls into the same bin.

    Args:
        bins: number of bins (low, high].
        binning: `width` (Guo et al.) or `mass`, edges midway between parts of equal size (Kumar et al., 2019).
        target: `top` calibrates the confidence of the predicted class and leaves the others their proportions;
            `classes` calibrates every class against the rest and normalises.
        empty: value of a bin without samples, its `midpoint` (Kumar et al.) or `zero`.
    """
    check_range(bins, "bins", 1)
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(target, ("top", "classes"), "target")
    check_choice(empty, ("midpoint", "zero"), "empty")
    if target == "top":
        confidence, lead = all_tops(logits)
        maps = [_bin_map(confidence, lead == labels.numpy(), bins, binning, empty)]
    else:
        maps = [
            _bin_map(column, labels.numpy() == k, bins, binning, empty)
            for first, probs in class_columns(logits)
            for k, column in enumerate(probs.T, start=first)
        ]
    edges, levels = (padded(list(part)) for part in zip(*maps, strict=True))
    return Fitted({"edges": edges[0], "levels": levels[0]} if target == "top" else {"edges": edges, "levels": levels})


@transform_of("histogram")
def binned(values: Values, logits: Logits) -> Logits:
    """Log of the bins' shares: of the leading class with the rest in proportion, or of all classes, normalised."""
    edges, levels = values["edges"], values["levels"]
    if edges.dim() == 1:
        confidence, lead = top_of(logits)
        return with_top(logits, lead, looked_up(levels, inner_below(edges, confidence)))
    return normalised(looked_up(levels, inner_below(edges, torch.softmax(logits, dim=1).T)).T, logits)


def _bin_map(scores: Vector, hits: Vector, bins: int, binning: str, empty: str) -> tuple[Vector, Vector]:
    edges = width_edges(bins) if binning == "width" else mass_edges(scores, bins)
    count = len(edges) - 1
    which = bin_of(scores, edges)
    size = np.bincount(which, minlength=count)
    middle = (edges[:-1] + edges[1:]) / 2 if empty == "midpoint" else np.zeros(count)
    return edges, np.where(size > 0, np.bincount(which, hits, minlength=count) / np.maximum(size, 1), middle)


def mass_edges(scores: Vector, bins: int) -> Vector:
    """0, the midpoints between neighbouring parts of the sorted scores cut into equal sizes, and 1; equal ones once."""
    parts = [part for part in np.array_split(np.sort(scores), bins) if len(part)]
    inner = [(left[-1] + right[0]) / 2 for left, right in pairwise(parts)]
    return np.unique([0.0, *(edge for edge in inner if 0.0 < edge < 1.0), 1.0])
