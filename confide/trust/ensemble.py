"""Disagreement between the members of an ensemble."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import check_choice
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.family import TRUST
from confide.trust.members import Members, members_facts, negative_entropy_of

MEASURES = ("mutual_information", "predicted_class", "votes")


def agreement(predictions: Predictions, members: Tensor, measure: str = "predicted_class") -> PerSample:
    """How far the members agree, high = they agree."""
    probs = torch.softmax(members, dim=2)
    said = predictions.facts.prediction.to(members.device)
    if measure == "votes":
        return (members.argmax(dim=2) == said).to(probs.dtype).mean(dim=0)
    if measure == "predicted_class":
        return probs.mean(dim=0).gather(1, said[:, None]).squeeze(1)
    # -I = E[H(p)] negated against H(E[p]): 0 where all members say the same.
    return negative_entropy_of(probs.mean(dim=0)) - negative_entropy_of(probs).mean(dim=0)


@TRUST.add(
    "ensemble",
    paper="Lakshminarayanan et al., 2017, arXiv:1612.01474",
    corners=({"measure": "mutual_information"}, {"measure": "votes"}),
    **members_facts(agreement),
)
def ensemble(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, measure: str = "predicted_class"
) -> Members:
    """Ensemble agreement, mean_s p_s(predicted class); call it with the members' logits, s x n x c.

    Args:
        measure: `predicted_class` is the members' mean probability of it, `votes` the share that predicts it,
            `mutual_information` the negative H(mean p) - mean H(p), which is disagreement alone.
    """
    check_choice(measure, MEASURES, "measure")
    return Members(agreement, {"measure": measure})
