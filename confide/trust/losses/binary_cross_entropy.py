"""Binary cross-entropy of correctness."""

import torch
from torch.nn import functional

from confide.core.shapes import PerSample
from confide.trust.losses.family import trust_loss

RELEASED_EPSILON = 1e-7


@trust_loss(
    "binary_cross_entropy",
    paper="Luo et al., 2021, arXiv:2110.00054 (baseline)",
    target="correct",
    corners=({"weight_neg": 3.0}, {"form": "released"}),
    ranges={"weight_pos": (0.0, 1e6), "weight_neg": (0.0, 1e6)},
    choices={"form": ("paper", "released")},
)
def binary_cross_entropy(
    z: PerSample, correct: PerSample, *, weight_pos: float = 1.0, weight_neg: float = 1.0, form: str = "paper"
) -> PerSample:
    """Binary cross-entropy, -o log sigmoid(z) - (1 - o) log(1 - sigmoid(z)).

    Args:
        weight_pos: factor of correct samples.
        weight_neg: factor of wrong samples.
        form: `released` reproduces the broadcast of the paper's code, where every z meets every target of the batch:
            each sample is then pulled to the batch's accuracy.
    """
    if form == "released":
        share = correct.mean()
        p = torch.sigmoid(z)
        positive = -torch.log(p + RELEASED_EPSILON)
        negative = -torch.log(1 - p + RELEASED_EPSILON)
        return weight_pos * share * positive + weight_neg * (1 - share) * negative
    positive, negative = -functional.logsigmoid(z), -functional.logsigmoid(-z)
    return weight_pos * correct * positive + weight_neg * (1 - correct) * negative
