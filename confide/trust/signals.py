"""The signals of the combined predictor: one column each, high = safe, with what had to be learned for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Features
from confide.trust.family import TRUST, Scorer
from confide.trust.folds import Folds
from confide.trust.knn import NeighbourDistance
from confide.trust.knn import restore as restore_neighbours
from confide.trust.oracle import restore as restore_oracle
from confide.trust.representation import energy_of, logit_of_confidence
from confide.trust.rmd import relative_mahalanobis
from confide.trust.rmd import restore as restore_rmd
from confide.trust.trust_score import class_index
from confide.trust.trust_score import restore as restore_trust_score

Float64 = NDArray[np.float64]
NEIGHBOURS = 10
FACTS = ("confidence", "entropy", "margin", "energy")
SECOND = "second_"
"""Names of signals of the second opinion, in the space of another extractor, begin so."""
RESTORE: dict[str, Callable[[dict[str, Any], dict[str, Tensor]], Scorer]] = {
    "oracle": restore_oracle,
    "rmd": restore_rmd,
    "trust_score": restore_trust_score,
    "neighbours": restore_neighbours,
}


@dataclass(frozen=True, eq=False)
class Signals:
    """Which columns there are: facts of the softmax, learned scorers by name, and columns of the predictions."""

    facts: tuple[str, ...]
    learned: dict[str, Scorer] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.facts, *self.learned, *self.columns)

    def __call__(self, predictions: Predictions, features: Tensor | None, second: Tensor | None) -> Float64:
        """All signals of some samples, `n j`."""
        parts = [fact_signal(name, predictions) for name in self.facts]
        for name, scorer in self.learned.items():
            parts.append(learned_signal(name, scorer(predictions, second if name.startswith(SECOND) else features)))
        parts += [column_signal(name, predictions) for name in self.columns]
        return checked(np.stack(parts, axis=1), self.names)


def fact_names(predictions: Predictions) -> tuple[str, ...]:
    """Facts that these predictions can give: energy only from real logits, all but the first only from all classes."""
    if predictions.top1 is not None:
        return FACTS[:1]
    return FACTS[:3] if predictions.from_probabilities else FACTS


def fact_signal(name: str, predictions: Predictions) -> Float64:
    """A fact of the softmax as a signal; the confidence enters as its logit."""
    if name == "confidence":
        return logit_of_confidence(predictions).cpu().numpy()
    if name == "energy":
        return energy_of(predictions).to(torch.float64).cpu().numpy()
    values = predictions.facts.need(name).to(torch.float64).cpu().numpy()
    return -values if name == "entropy" else values


def learned_signal(name: str, values: Tensor) -> Float64:
    """A learned score as a signal: TrustScore, a ratio, enters as its logarithm."""
    column = values.to(torch.float64).cpu().numpy()
    # Ratios beyond e^10 say no more than "on top of a training sample".
    return np.clip(np.log(np.maximum(column, 1e-12)), -10, 10) if name.removeprefix(SECOND) == "trust_score" else column


def column_signal(name: str, predictions: Predictions) -> Float64:
    """A column of the predictions that is high where a sample is hard, turned round."""
    if name not in predictions.columns:
        raise InputError(f"the combined predictor needs the column '{name}'; add it to the predictions")
    return -np.asarray(predictions.columns[name], dtype=np.float64)


def checked(values: Float64, names: tuple[str, ...]) -> Float64:
    """Refuse NaN and infinity, naming the signal."""
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"signal '{names[column]}' must be finite, got {values[row, column]} at sample {row}; leave it out"
        )
    return values


def reference_scorers(rows: Tensor, labels: NDArray[np.int64], num_classes: int, prefix: str) -> dict[str, Scorer]:
    """RMD of the predicted class, TrustScore and, of the classifier's own space, distance to neighbours."""
    found: dict[str, Scorer] = {
        f"{prefix}rmd": relative_mahalanobis(rows, labels, num_classes),
        f"{prefix}trust_score": class_index(rows.numpy(), labels, num_classes),
    }
    return found if prefix else {**found, "neighbours": NeighbourDistance(rows, min(NEIGHBOURS, len(rows)))}


def learn_signals(
    predictions: Predictions,
    features: Tensor | None,
    folds: Folds,
    *,
    oracle_word: str,
    oracle_options: dict[str, Any],
    reference: Features | None,
    second: Tensor | None,
    second_reference: Features | None,
    columns: tuple[str, ...],
) -> tuple[Signals, Float64]:
    """Signals fitted on everything, and their honest values here: none was fitted with the fold it scores."""
    learned: dict[str, Scorer] = {}
    honest: dict[str, Float64] = {}
    if oracle_word != "none":
        # An oracle's member m was trained without fold m, and nothing was selected: its values there are honest.
        fitted = TRUST.get(oracle_word).function(predictions, features, **oracle_options)
        learned["oracle"], honest["oracle"] = fitted, learned_signal("oracle", fitted.out_of_fold)
    for rows, labelled, prefix in ((features, reference, ""), (second, second_reference, SECOND)):
        if rows is not None:
            scorers, values = _near_signals(predictions, rows.cpu(), folds, labelled, prefix)
            learned |= scorers
            honest |= values
    signals = Signals(fact_names(predictions), learned, columns)
    parts = [fact_signal(name, predictions) for name in signals.facts]
    parts += [honest[name] for name in learned]
    parts += [column_signal(name, predictions) for name in columns]
    return signals, checked(np.stack(parts, axis=1), signals.names)


def _near_signals(
    predictions: Predictions, features: Tensor, folds: Folds, reference: Features | None, prefix: str
) -> tuple[dict[str, Scorer], dict[str, Float64]]:
    classes, labels = predictions.num_classes, predictions.labels.cpu().numpy()
    if reference is not None:
        # The reference holds other samples, so that nothing here was fitted with what it scores.
        rows = torch.as_tensor(np.asarray(reference.values[:]), dtype=features.dtype)
        scorers = reference_scorers(rows, np.asarray(reference.labels), classes, prefix)
        return scorers, {name: learned_signal(name, s(predictions, features)) for name, s in scorers.items()}
    honest: dict[str, Float64] = {}
    for fold in np.unique(folds):
        outside, inside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        parts = reference_scorers(features[outside], labels[outside], classes, prefix)
        for name, scorer in parts.items():
            column = honest.setdefault(name, np.empty(len(labels)))
            column[inside] = learned_signal(name, scorer(predictions.take(inside), features[inside]))
    return reference_scorers(features, labels, classes, prefix), honest
