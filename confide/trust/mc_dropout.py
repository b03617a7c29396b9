"""Monte-Carlo dropout: entropy of the average over passes with dropout on."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import check_choice
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.members import Members, members_facts, negative_entropy_of

AVERAGES = ("logits", "probs")


def averaged_negative_entropy(predictions: Predictions, members: Tensor, average: str = "logits") -> PerSample:
    """Negative entropy of softmax(mean logits), or of the mean of the passes' softmax."""
    if average == "logits":
        # 1e-9 inside the logarithm as in the released code of ConfidNet: it shows in the ninth digit only.
        return negative_entropy_of(torch.softmax(members.mean(dim=0), dim=1), 1e-9)
    return negative_entropy_of(torch.softmax(members, dim=2).mean(dim=0))


@TRUST.add(
    "mc_dropout",
    paper="Gal & Ghahramani, 2016, arXiv:1506.02142",
    corners=({"average": "probs"},),
    **members_facts(averaged_negative_entropy),
)
def mc_dropout(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, average: str = "logits"
) -> Members:
    """Monte-Carlo dropout, sum_k p_k log p_k of the average of s passes; call it with their logits, s x n x c.

    Args:
        average: of the `logits`, as ConfidNet does, or of the `probs`, the predictive distribution of the paper.
    """
    check_choice(average, AVERAGES, "average")
    return Members(averaged_negative_entropy, {"average": average})
