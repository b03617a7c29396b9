"""Which confidence score a ranking metric sorts by: a word, the trust of the predictions, or a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.door import InputError, as_tensor, check_finite, did_you_mean
from confide.core.predictions import Predictions

Values = NDArray[np.floating]

WORDS = ("msp", "entropy", "margin", "max_logit", "energy", "trust")


def score_name(score: Any) -> str:
    """The name that stands in the table: the word itself, `trust:<predictor>`, or `given` for a vector."""
    return score if isinstance(score, str) else "given"


def score_values(predictions: Predictions, score: Any) -> Values:
    """One value per sample, high = safe.

    Args:
        score: `msp` (largest probability), `entropy` (negated), `margin` (largest minus second largest probability),
            `max_logit`, `energy`, `trust` or `trust:<name>` (the trust the predictions carry), or n values.
    """
    if not isinstance(score, str):
        return _given(score, len(predictions), "score")
    if score == "trust" or score.startswith("trust:"):
        if predictions.trust is None:
            raise InputError(f"score '{score}' needs predictions with trust; pass trust= or the values as score=")
        return _given(predictions.trust, len(predictions), "trust")
    facts = predictions.facts
    if score in ("max_logit", "energy"):
        if predictions.from_probabilities:
            raise InputError(f"score '{score}' needs real logits, but these predictions came from probabilities")
        return _array(facts.need(score))
    if score == "msp":
        return facts.sureness()
    if score == "entropy":
        return np.negative(_array(facts.need("entropy")))
    if score == "margin":
        return _array(facts.need("margin"))
    raise InputError(f"no score named '{score}'; {did_you_mean(score, WORDS)}")


def _array(values: torch.Tensor) -> Values:
    return np.asarray(values.detach().cpu().numpy())


def _given(score: Any, n: int, name: str) -> Values:
    values = as_tensor(score, name)
    if values.ndim != 1 or len(values) != n:
        raise InputError(f"{name} must be {n} values, one per sample, got shape {tuple(values.shape)}")
    check_finite(values, name)
    return _array(values if values.dtype in (torch.float32, torch.float64) else values.double())
