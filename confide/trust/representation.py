"""What an oracle sees of a sample: facts of the softmax, log-probabilities and features, as one row."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import InputError, check_choice, check_finite
from confide.core.predictions import Predictions

INPUTS = ("all", "logits", "features")
LOWEST_LOG_PROBABILITY = -20.0


def logit_of_confidence(predictions: Predictions) -> Tensor:
    """log c - log(1 - c) of the largest probability c, both clipped at 1e-12 (float64)."""
    facts = predictions.facts
    confidence = facts.confidence.to(torch.float64)
    # What float32 rounds to 1 still differs in its distance from 1.
    doubt = 1 - confidence if facts.doubt is None else facts.doubt.to(torch.float64)
    return confidence.clamp_min(1e-12).log() - doubt.clamp_min(1e-12).log()


def energy_of(predictions: Predictions) -> Tensor:
    """log sum_k exp(z_k), for a predictor that was fitted on logits: probabilities have lost it."""
    if predictions.from_probabilities:
        raise InputError(
            "this trust predictor was fitted on logits and looks at their energy, but these predictions came from "
            "probabilities; pass logits, or fit it on probabilities"
        )
    return predictions.facts.need("energy")


def representation(
    predictions: Predictions, features: Tensor | None, inputs: str = "all", energy: bool | None = None
) -> tuple[Tensor, tuple[int, ...]]:
    """Rows `n d` in float32 and the widths of their parts: facts, log-probabilities, features.

    Log-probabilities are used instead of logits because a constant added to a row of logits says nothing.

    Args:
        energy: whether it is among the facts; by default where there are logits, which alone have it.
    """
    energy = not predictions.from_probabilities if energy is None else energy
    check_choice(inputs, INPUTS, "inputs")
    parts: list[Tensor] = []
    if inputs in ("all", "logits"):
        logits = predictions.need_logits("a trained oracle")
        facts = predictions.facts
        log_probs = torch.log_softmax(logits.to(torch.float32), dim=1).clamp_min(LOWEST_LOG_PROBABILITY)
        summary = [logit_of_confidence(predictions), -facts.need("entropy"), facts.need("margin")]
        summary += [energy_of(predictions)] if energy else []
        parts += [torch.stack([one.to(torch.float32) for one in summary], dim=1), log_probs]
    if inputs == "features" and features is None:
        raise InputError("inputs='features' needs features of the samples; pass them as the second argument")
    if inputs != "logits" and features is not None:
        parts.append(features.to(torch.float32))
    rows = torch.cat([part.cpu() for part in parts], dim=1)
    # Doubles beyond 3e38 are infinite in float32.
    check_finite(rows, "an oracle's inputs in float32")
    return rows, tuple(part.shape[1] for part in parts)
