"""An oracle that predicts the probability of the true class (ConfidNet)."""

from __future__ import annotations

from torch import Tensor

from confide.core.door import check_choice
from confide.core.predictions import Predictions
from confide.core.shapes import FeatureRows
from confide.trust.family import TRUST
from confide.trust.losses.tcp import tcp as tcp_loss
from confide.trust.oracle import ORACLE_FACTS, Oracle, Recipe, fit_oracle, trained


@TRUST.add(
    "tcp",
    paper="Corbiere et al., 2019, arXiv:1910.04851",
    corners=({"hidden": 16}, {"target": "ratio"}, {"inputs": "logits"}),
    **ORACLE_FACTS,
)
@trained(head="linear")
def tcp(
    predictions: Predictions, features: FeatureRows | None = None, *, recipe: Recipe, target: str = "probability"
) -> Oracle:
    """Oracle of the true class probability, (sigmoid(z) - p_y)^2.

    Args:
        target: `probability` learns p_y; `ratio` learns p_y / max p, which is 1 for every right prediction.
    """
    check_choice(target, ("probability", "ratio"), "target")
    facts = predictions.facts
    wanted: Tensor = facts.need("p_true")
    if target == "ratio":
        wanted = wanted / facts.confidence
    return fit_oracle(predictions, features, wanted, tcp_loss, recipe)
