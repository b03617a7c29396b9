"""Scores that need no fitting: a function of the predictions alone, in the shape the family's door expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.shapes import PerSample
from confide.trust.family import State


@dataclass(frozen=True)
class Untrained:
    """A scorer that only applies a formula: `formula(predictions, **options) -> n`."""

    formula: Callable[..., PerSample]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        return self.formula(predictions, **self.options)

    def state(self) -> State:
        return dict(self.options), {}


def untrained_facts(
    formula: Callable[..., PerSample], scale: str = "score", threshold: float | None = None
) -> dict[str, Any]:
    """What the registry tells about a method without training."""

    def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> Untrained:
        return Untrained(formula, numbers)

    return {"trained": False, "wants": "nothing", "scale": scale, "threshold": threshold, "restore": restore}


def need_real_logits(predictions: Predictions, word: str) -> Tensor:
    """The logits, refused where they are only the logarithm of probabilities: a constant was lost."""
    if predictions.from_probabilities:
        raise InputError(
            f"'{word}' needs logits, but these predictions came from probabilities; use 'mcp' or 'entropy'"
        )
    return predictions.need_logits(f"'{word}'")
