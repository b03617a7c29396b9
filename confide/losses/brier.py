"""Brier score as a loss."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss("brier", paper="Brier, 1950, Verification of Forecasts Expressed in Terms of Probability", soft=True)
def brier(logits: Logits, labels: Labels) -> PerSample:
    """Brier, sum_k (p_k - 1[k = y])^2; with soft labels sum_k (p_k - q_k)^2."""
    whole = fused(logits, labels, "brier")
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "p_true sum_squares")
    square_of_labels = labels.to(statistics.p_true.dtype).square().sum(dim=1) if labels.ndim == 2 else 1.0
    return statistics.sum_squares - 2 * statistics.p_true + square_of_labels
