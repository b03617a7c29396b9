"""Cross-entropy."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss("cross_entropy", paper="Good, 1952, Rational Decisions", soft=True)
def cross_entropy(logits: Logits, labels: Labels) -> PerSample:
    """Cross-entropy, -log p_y; with soft labels -sum_k q_k log p_k."""
    whole = fused(logits, labels, "cross_entropy")
    if whole is not None:
        return whole
    return -simplex_statistics(logits, labels, "log_p_true").log_p_true
