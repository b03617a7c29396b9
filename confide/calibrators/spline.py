"""spline: the confidence plus the slope of a spline through the cumulative calibration error."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.curve import Vector, all_tops, interpolated, padded, top_of, with_top
from confide.core.door import InputError, check_range
from confide.core.shapes import Labels, Logits


@CALIBRATORS.add(
    "spline",
    paper="Gupta et al., 2021, arXiv:2006.12800",
    corners=({"knots": 3}, {"knots": 20}),
    keeps_argmax=False,
    yields="probabilities",
    parameters=(6, 0, 0),
)
def spline(logits: Logits, labels: Labels, *, knots: int = 6) -> Fitted:
    """Spline calibration of the top class, q = c + h'(rank of c), h a spline of the summed (correct - confidence).

    Args:
        knots: knots of the natural cubic spline, equally spaced over the ranks. Default: the choice of the paper.
    """
    check_range(knots, "knots", 3)
    if len(labels) < 2:
        raise InputError(f"calibrator 'spline' needs at least 2 predictions, got {len(labels)}; pass those on 'val'")
    confidence, lead = all_tops(logits)
    order = np.argsort(confidence, kind="stable")
    scores, correct = confidence[order], (lead == labels.numpy())[order]
    percentile = np.linspace(0.0, 1.0, len(scores))
    found = fitted_spline(percentile, np.cumsum(correct - scores) / len(scores), knots)
    levels = scores + found(percentile, 1)
    # Equal confidences are one node with their mean: the map is a function of the confidence.
    nodes, which = np.unique(scores, return_inverse=True)
    means = np.bincount(which, levels) / np.bincount(which)
    return Fitted({"nodes": padded([nodes])[0], "levels": padded([means])[0]})


@transform_of("spline")
def recalibrated(values: Values, logits: Logits) -> Logits:
    """Log-probabilities with the recalibrated confidence of the leading class, the rest in proportion."""
    confidence, lead = top_of(logits)
    moved = interpolated(values["nodes"], values["levels"], confidence).clamp(0.0, 1.0)
    return with_top(logits, lead, moved)


def fitted_spline(at: Vector, heights: Vector, knots: int) -> CubicSpline:
    """Least-squares natural cubic spline; its unknowns are the values at equally spaced knots on [0, 1]."""
    positions = np.linspace(0.0, 1.0, knots)
    basis = CubicSpline(positions, np.eye(knots), bc_type="natural")(at)
    values = np.linalg.lstsq(basis, heights, rcond=None)[0]
    return CubicSpline(positions, values, bc_type="natural")
