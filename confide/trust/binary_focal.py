"""An oracle trained with the binary focal loss."""

from __future__ import annotations

from torch import Tensor

from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows
from confide.trust.family import TRUST
from confide.trust.losses.binary_focal import binary_focal as binary_focal_loss
from confide.trust.oracle import ORACLE_FACTS, Oracle, Recipe, fit_oracle, trained


@TRUST.add(
    "binary_focal",
    paper="Luo et al., 2021, arXiv:2110.00054, eq. 5",
    corners=({"hidden": 16}, {"gamma": 0.0}, {"gamma": 5.0}, {"form": "released"}),
    **ORACLE_FACTS,
)
@trained(head="linear")
def binary_focal(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    recipe: Recipe,
    gamma: float = 2.0,
    form: str = "paper",
) -> Oracle:
    """Oracle with the binary focal loss, -(1 - p_o)^gamma log p_o of the true outcome o, one term per sample.

    Args:
        gamma: how fast sure samples fade; 0 is binary cross-entropy. Default: the choice of the paper.
        form: `released` reproduces the broadcasting error of the paper's code (see the errata): it trusts everything.
    """

    def objective(z: Tensor, correct: Tensor) -> Tensor:
        return binary_focal_loss(z, correct, gamma=gamma, form=form)

    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)
