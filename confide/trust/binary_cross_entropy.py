"""An oracle trained with binary cross-entropy."""

from __future__ import annotations

from torch import Tensor

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows
from confide.trust.family import TRUST
from confide.trust.losses.binary_cross_entropy import binary_cross_entropy as binary_cross_entropy_loss
from confide.trust.oracle import ORACLE_FACTS, Oracle, Recipe, fit_oracle, trained


@TRUST.add(
    "binary_cross_entropy",
    paper="Luo et al., 2021, arXiv:2110.00054, eq. 4",
    corners=({"hidden": 16}, {"inputs": "logits"}, {"weight_neg": 3.0}, {"form": "released"}),
    **ORACLE_FACTS,
)
@trained(head="linear")
def binary_cross_entropy(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    recipe: Recipe,
    weight_pos: float = 1.0,
    weight_neg: float = 1.0,
    form: str = "paper",
) -> Oracle:
    """Oracle with binary cross-entropy, -o log sigmoid(z) - (1 - o) log sigmoid(-z), one term per sample.

    Args:
        weight_pos: factor of right predictions.
        weight_neg: factor of wrong predictions.
        form: `released` reproduces the broadcasting error of the paper's code (see the errata): it trusts everything.
    """

    def objective(z: Tensor, correct: Tensor) -> Tensor:
        return binary_cross_entropy_loss(z, correct, weight_pos=weight_pos, weight_neg=weight_neg, form=form)

    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)
