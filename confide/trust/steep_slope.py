"""An oracle trained with the steep slope loss."""

from __future__ import annotations

from torch import Tensor

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows
from confide.trust.family import TRUST
from confide.trust.losses.steep_slope import steep_slope as steep_slope_loss
from confide.trust.oracle import ORACLE_FACTS, Oracle, Recipe, fit_oracle, trained


@TRUST.add(
    "steep_slope",
    paper="Luo et al., 2021, arXiv:2110.00054",
    corners=({"hidden": 16}, {"head": "linear"}, {"inputs": "logits"}, {"alpha_pos": 6.0, "alpha_neg": 10.0}),
    **ORACLE_FACTS,
)
@trained(head="signed_distance")
def steep_slope(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    recipe: Recipe,
    alpha_pos: float = 1.0,
    alpha_neg: float = 3.0,
) -> Oracle:
    """Oracle with the steep slope loss: exp(-a+ z/(1+|z|)) for right, exp(a- z/(1+|z|)) for wrong; trust iff z > 0.

    Differs from eq. 8: its printed exponents have both signs reversed.

    Args:
        alpha_pos: how steeply right predictions are pushed to z > 0. Default: the paper's choice for ViT.
        alpha_neg: how steeply wrong ones are pushed to z < 0; larger catches more errors and doubts more right ones.
    """

    def objective(z: Tensor, correct: Tensor) -> Tensor:
        return steep_slope_loss(z, correct, alpha_pos=alpha_pos, alpha_neg=alpha_neg)

    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)
