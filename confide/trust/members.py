"""Scores over the logits of several members `s n c`: an ensemble, or passes with dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from confide.core.predictions import Predictions
from confide.core.shapes import PerSample
from confide.trust.family import State


@dataclass(frozen=True)
class Members:
    """A scorer that only applies a formula to the members' logits: `formula(predictions, members, **options) -> n`."""

    formula: Callable[..., PerSample]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        return self.formula(predictions, features, **self.options)

    def state(self) -> State:
        return dict(self.options), {}


def members_facts(formula: Callable[..., PerSample]) -> dict[str, Any]:
    """What the registry tells about a method over members."""

    def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> Members:
        return Members(formula, numbers)

    return {"trained": False, "wants": "members", "scale": "score", "threshold": None, "restore": restore}


def negative_entropy_of(probs: Tensor, epsilon: float = 0.0) -> Tensor:
    """sum_k p_k log(p_k + epsilon) over the last dimension; 0 log 0 = 0."""
    return torch.xlogy(probs, probs + epsilon).sum(dim=-1)
