"""An oracle trained with binary cross-entropy weighted by the effective number of right and wrong samples."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import check_range
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows
from confide.trust.family import TRUST
from confide.trust.losses.binary_cross_entropy import binary_cross_entropy as binary_cross_entropy_loss
from confide.trust.oracle import ORACLE_FACTS, Oracle, Recipe, fit_oracle, trained


def balanced_weights(counts: Tensor, beta: float) -> Tensor:
    """w_c = (1 - beta) / (1 - beta^n_c), rescaled to sum to the number of classes; beta = 0 gives ones."""
    effective = -torch.expm1(counts.to(torch.float64) * torch.log(torch.tensor(beta, dtype=torch.float64)))
    weights = (1 - beta) / effective
    return weights / weights.sum() * len(weights)


@TRUST.add(
    "class_balanced",
    paper="Cui et al., 2019, arXiv:1901.05555",
    corners=({"hidden": 16}, {"beta": 0.0}, {"beta": 0.9999}),
    **ORACLE_FACTS,
)
@trained(head="linear")
def class_balanced(
    predictions: Predictions, features: FeatureRows | None = None, *, recipe: Recipe, beta: float = 0.999
) -> Oracle:
    """Oracle with class-balanced binary cross-entropy, w_o = (1 - beta) / (1 - beta^n_o) for o in {wrong, right}.

    Args:
        beta: 0 weighs all samples alike; towards 1 the weights are inverse frequencies.
    """
    check_range(beta, "beta", 0, 1, high_open=True)
    correct = predictions.facts.correct.cpu()
    weights = balanced_weights(torch.bincount(correct.to(torch.int64), minlength=2), beta).to(torch.float32)

    def objective(z: Tensor, right: Tensor) -> Tensor:
        return weights[right.to(torch.int64)] * binary_cross_entropy_loss(z, right)

    return fit_oracle(predictions, features, correct, objective, recipe)
