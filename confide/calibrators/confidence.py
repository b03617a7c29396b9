"""Calibrators of a confidence alone, where no class probabilities are known: only how sure, and whether it was right.

A confidence is a problem of two classes, wrong and right, so folds, groups and the choice by a held-out score are those
of any calibrator; the map itself is of one number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from confide.calibrators.base import CALIBRATORS, Calibrator, Values
from confide.calibrators.evidence import Evidence
from confide.calibrators.probability_maps import (
    PSEUDO_COUNT,
    beta_maps,
    bin_map,
    inner_below,
    interpolated,
    isotonic_map,
    looked_up,
    padded,
    spline_nodes,
    with_pseudo_counts,
)
from confide.calibrators.temperature_scaling import temperature
from confide.checks import InputError, check_options
from confide.facts import SMALLEST_PROBABILITY
from confide.files.fitted import FittedState
from confide.numerics.logistic import logistic_regressions, platt_targets
from confide.predictions import Predictions
from confide.types import Flags, Floats, Logits, Options

# A confidence as two classes, and back.


def two_classes(predictions: Predictions) -> Predictions:
    """The same samples with the classes wrong and right: probabilities [1 - c, c], the label whether it was right."""
    sure = torch.from_numpy(predictions.facts.sureness())
    right = predictions.facts.right
    return Predictions.from_probs(
        torch.stack([1 - sure, sure], dim=1),
        None if right is None else right.cpu().to(torch.int64),
        predictions.ids,
        predictions.split,
        columns=predictions.columns,
        weights=predictions.weights,
        unit=predictions.unit,
    )


def smallest_doubt(confidence: Floats) -> float:
    """What stands for a certainty of 0 or 1 in log odds: where the fit has seen such, as rounding makes them, half of
    the smallest distance from 0 or 1 that it has seen beside them.
    """
    distance = np.minimum(confidence, 1 - confidence)
    inside = distance[distance > 0]
    rounded = len(inside) and len(inside) < len(distance)
    return max(float(inside.min()) / 2, SMALLEST_PROBABILITY) if rounded else SMALLEST_PROBABILITY


def log_odds(values: Values, confidence: Tensor) -> Tensor:
    """log c / (1 - c), finite also at 0 and 1."""
    smallest = float(values["smallest"])
    return torch.logit(confidence.clamp(smallest, 1 - smallest))


# The maps of one number.


@dataclass(frozen=True)
class ConfidenceMap:
    """`fit(confidence, correct, weights, **options)` gives the values with which `apply` moves confidences."""

    fit: Callable[..., dict[str, Tensor]]
    apply: Callable[[Values, Tensor], Tensor]
    parameters: int


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _fit_temperature(confidence: Floats, correct: Flags, weights: Floats | None) -> dict[str, Tensor]:
    values = {"smallest": _number(smallest_doubt(confidence))}
    odds = log_odds(values, torch.from_numpy(confidence))
    rows = torch.stack([torch.zeros_like(odds), odds], dim=1)
    return {**values, **temperature(rows, torch.from_numpy(correct).to(torch.int64), weights).values}


def _fit_platt(confidence: Floats, correct: Flags, weights: Floats | None) -> dict[str, Tensor]:
    values = {"smallest": _number(smallest_doubt(confidence))}
    odds = log_odds(values, torch.from_numpy(confidence)).numpy()
    targets, times = platt_targets(correct, weights), np.ones(len(odds)) if weights is None else weights
    slope, intercept = logistic_regressions(
        [odds[None], np.ones((1, len(odds)))],
        None if weights is None else weights[None],
        np.array([[targets * times @ odds, targets @ times]]),
    )[0]
    return {**values, "slope": _number(slope), "intercept": _number(intercept)}


def _fit_isotonic(
    confidence: Floats, correct: Flags, weights: Floats | None, pseudo_count: float = PSEUDO_COUNT
) -> dict[str, Tensor]:
    nodes, levels = (padded([part])[0] for part in isotonic_map(confidence, correct, weights))
    return {"nodes": nodes, "levels": with_pseudo_counts(levels, pseudo_count, len(confidence), 2)}


def _fit_histogram(
    confidence: Floats,
    correct: Flags,
    weights: Floats | None,
    bins: int = 15,
    binning: str = "width",
    empty: str = "midpoint",
) -> dict[str, Tensor]:
    edges, levels = bin_map(confidence, correct.astype(np.float64), bins, binning, empty, weights)
    return {"edges": torch.from_numpy(edges), "levels": torch.from_numpy(levels)}


def _fit_spline(confidence: Floats, correct: Flags, weights: Floats | None, knots: int = 6) -> dict[str, Tensor]:
    nodes, levels = (padded([part])[0] for part in spline_nodes(confidence, correct, knots, weights))
    return {"nodes": nodes, "levels": levels}


def _fit_beta(confidence: Floats, correct: Flags, weights: Floats | None, form: str = "abm") -> dict[str, Tensor]:
    smallest = smallest_doubt(confidence)
    inside = np.clip(confidence, smallest, 1 - smallest)
    a, b, intercept = beta_maps(inside[None], correct[None], form, weights)[0]
    return {"smallest": _number(smallest), "a": _number(a), "b": _number(b), "intercept": _number(intercept)}


def _apply_beta(values: Values, confidence: Tensor) -> Tensor:
    smallest = float(values["smallest"])
    inside = confidence.clamp(smallest, 1 - smallest)
    return torch.sigmoid(values["a"] * inside.log() - values["b"] * torch.log1p(-inside) + values["intercept"])


def _apply_nodes(values: Values, confidence: Tensor) -> Tensor:
    return interpolated(values["nodes"], values["levels"], confidence).clamp(0.0, 1.0)


MAPS: dict[str, ConfidenceMap] = {
    "temperature": ConfidenceMap(_fit_temperature, lambda v, c: torch.sigmoid(log_odds(v, c) / v["temperature"]), 1),
    "platt": ConfidenceMap(_fit_platt, lambda v, c: torch.sigmoid(v["slope"] * log_odds(v, c) + v["intercept"]), 2),
    "beta": ConfidenceMap(_fit_beta, _apply_beta, 3),
    "isotonic": ConfidenceMap(_fit_isotonic, _apply_nodes, 10),
    "histogram": ConfidenceMap(_fit_histogram, lambda v, c: looked_up(v["levels"], inner_below(v["edges"], c)), 15),
    "spline": ConfidenceMap(_fit_spline, _apply_nodes, 6),
}


def confidence_words() -> tuple[str, ...]:
    """The calibrators that a confidence alone allows."""
    return tuple(word for word in MAPS if word in CALIBRATORS)


# The fit, and what it returns.

OF_CONFIDENCE = {"of": "confidence"}
"""What the record of a saved calibrator of a confidence says."""


@dataclass(frozen=True, eq=False)
class TwoClassMap(Calibrator):
    """The map of a confidence as a calibrator of the classes wrong and right, which groups and folds can use."""

    @property
    def keeps_argmax(self) -> bool:
        return False

    def calibrated(self, logits: Logits, evidence: Evidence | None = None) -> Logits:
        """Log-probabilities of wrong and right, `n 2`."""
        values = {name: value.to(logits.device) for name, value in self.values.items()}
        moved = MAPS[self.word].apply(values, torch.softmax(logits.double(), dim=1)[:, 1])
        both = torch.stack([1 - moved, moved], dim=1)
        return both.clamp_min(SMALLEST_PROBABILITY).log().to(logits.dtype)

    def state(self) -> FittedState:
        """Everything as plain data and tensors, for a file."""
        plain = super().state()
        return FittedState({**plain.record, **OF_CONFIDENCE}, plain.tensors)


@dataclass(frozen=True, eq=False)
class ConfidenceCalibrator(Calibrator):
    """A fitted calibrator of a confidence: called with predictions that hold no more, it moves their confidences."""

    inner: Calibrator = None  # type: ignore[assignment]  # given by every constructor call

    @classmethod
    def of(cls, inner: Calibrator) -> ConfidenceCalibrator:
        """Of a calibrator of wrong and right, by group or not."""
        return cls(inner.word, inner.values, inner.num_classes, inner.n, inner.options, inner.notes, inner=inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    @property
    def keeps_argmax(self) -> bool:
        return True

    def __call__(
        self,
        predictions: Predictions,
        features: Any = None,
        opinions: Mapping[str, Predictions] | None = None,
        *,
        prior: Any = None,
    ) -> Predictions:
        if prior is not None:
            raise InputError(f"this calibrator '{self.word}' moves confidences and knows no classes; leave out prior")
        if not predictions.outputs.only_confidence:
            raise InputError(
                f"this calibrator '{self.word}' was fitted on confidence and correctness alone, "
                f"got predictions with {predictions.outputs.words}; fit one on such predictions"
            )
        moved = self.inner(two_classes(predictions)).probabilities()[:, 1]
        dtype, device = predictions.facts.confidence.dtype, predictions.facts.confidence.device
        return predictions.replace(outputs=predictions.outputs.with_confidence(moved.to(device, dtype)))

    def module(self) -> nn.Module:
        """There is none: a confidence alone has no logits."""
        raise InputError(f"this calibrator '{self.word}' moves confidences and has no module of logits; call it")

    def state(self) -> FittedState:
        """Everything as plain data and tensors, for a file."""
        return self.inner.state()


def fit_map(word: str, predictions: Predictions, options: Options) -> TwoClassMap:
    """The map of that word on samples of wrong and right."""
    if word not in MAPS:
        raise InputError(
            f"calibrator '{word}' needs all probabilities, but these predictions hold only confidences; "
            f"of those choose one of {', '.join(confidence_words())}"
        )
    check_options(word, "calibrator of confidences", options, list(signature(MAPS[word].fit).parameters)[3:])
    confidence = predictions.probabilities()[:, 1].double().numpy()
    right = predictions.labels.numpy().astype(bool)
    values = MAPS[word].fit(confidence, right, predictions.relative_weights, **options)
    return TwoClassMap(word, values, 2, len(predictions), options, _notes(word, right))


def _notes(word: str, right: Flags) -> tuple[str, ...]:
    """What a person should know about the samples before trusting this fit."""
    notes, few = [], 10 * MAPS[word].parameters
    if len(right) < few:
        notes.append(
            f"{len(right)} validation samples are few for the {MAPS[word].parameters} parameters of '{word}' "
            f"(ten a parameter would be {few})"
        )
    if right.all() or not right.any():
        outcome = "right" if right.all() else "wrong"
        notes.append(f"every validation answer is {outcome}: how sure is too sure cannot be learned from them")
    return tuple(notes)
