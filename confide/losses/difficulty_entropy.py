"""Difficulty-aware entropy regularisation."""

from __future__ import annotations

from torch import Tensor

from confide.core.door import InputError
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "difficulty_entropy",
    paper="Cui et al., 2023, Learning Sample Difficulty from Pre-trained Models, arXiv:2304.10127",
    corners=({"alpha": 0.0}, {"alpha": 1.0}),
    ranges={"alpha": (0.0, 1e6)},
    soft=True,
)
def difficulty_entropy(logits: Logits, labels: Labels, *, alpha: float = 0.3, weights: Tensor) -> PerSample:
    """Cross-entropy less alpha times the difficulty weight times the entropy, -log p_y - alpha s H(p).

    Args:
        alpha: how much spread is rewarded on the hardest sample. Default: CIFAR of the paper; ImageNet there: 0.2.
        weights: s in [0, 1], one per sample, a constant; `confide.difficulty.weights` makes them from scores.
    """
    if weights.device.type == "cpu" and len(weights) and not bool(((weights >= 0) & (weights <= 1)).all()):
        bad = int((~((weights >= 0) & (weights <= 1))).nonzero()[0])
        raise InputError(
            f"weights must lie in [0, 1], got {weights[bad].item():g} at sample {bad} of {len(weights)}; "
            "make them with confide.difficulty.weights"
        )
    whole = fused(logits, labels, "entropy", vector=weights, b=-alpha)
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true entropy")
    strength = alpha * weights.to(device=logits.device, dtype=statistics.entropy.dtype)
    return -statistics.log_p_true - strength * statistics.entropy
