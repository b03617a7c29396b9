"""A calibrated probability of being right from several signals, with the contribution of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from confide.core.door import InputError, check_choice, check_range
from confide.core.predictions import Predictions
from confide.core.records import Features
from confide.core.shapes import FeatureRows, PerSample
from confide.trust.boosting import Boosted, fit_boosted
from confide.trust.family import TRUST, State
from confide.trust.folds import Folds, stratified_folds
from confide.trust.logistic import Flags, Logistic, fit_logistic
from confide.trust.overlap import shared_samples
from confide.trust.signals import FACTS, RESTORE, SECOND, Signals, learn_signals

Float64 = NDArray[np.float64]
Regression = Logistic | Boosted
FITS: dict[str, Callable[..., Regression]] = {"logistic": fit_logistic, "boosted": fit_boosted}
RESTORED: dict[str, Callable[[dict[str, Float64]], Regression]] = {
    "logistic": Logistic.restored,
    "boosted": Boosted.restored,
}
ORACLES = ("steep_slope", "tcp", "binary_cross_entropy", "binary_focal", "class_balanced", "none")


@dataclass(frozen=True, eq=False)
class Combined:
    """Signals, and the regression over them. `loss` holds the out-of-fold NLL with all signals and without each."""

    signals: Signals
    regression: Regression
    model: str
    loss: dict[str, float]
    out_of_fold: Tensor | None = field(default=None, repr=False)

    def __call__(self, predictions: Predictions, features: Tensor | None, second: Tensor | None = None) -> PerSample:
        parts, base = self.regression.contributions(self.signals(predictions, features, second))
        return torch.from_numpy(expit(parts.sum(axis=1) + base))

    def contributions(
        self, predictions: Predictions, features: Tensor | None, second: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What every signal adds to the logit of the probability of being right, sample by sample."""
        parts, base = self.regression.contributions(self.signals(predictions, features, second))
        columns = {name: torch.from_numpy(parts[:, j].copy()) for j, name in enumerate(self.signals.names)}
        return {**columns, "base": torch.full((len(parts),), base, dtype=torch.float64)}

    def state(self) -> State:
        numbers: dict[str, Any] = {
            "model": self.model,
            "facts": list(self.signals.facts),
            "columns": list(self.signals.columns),
            "loss": self.loss,
            "learned": {},
        }
        tensors = {f"regression.{k}": torch.from_numpy(v) for k, v in self.regression.state().items()}
        for name, scorer in self.signals.learned.items():
            numbers["learned"][name], own = scorer.state()
            tensors |= {f"{name}.{k}": v for k, v in own.items()}
        return numbers, tensors


def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> Combined:
    """The predictor of a saved state."""

    def under(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}

    for name in numbers["facts"]:
        check_choice(name, FACTS, "facts of a combined predictor")
    learned = {name: RESTORE[name.removeprefix(SECOND)](own, under(name)) for name, own in numbers["learned"].items()}
    signals = Signals(tuple(numbers["facts"]), learned, tuple(numbers["columns"]))
    arrays = {k: v.numpy() for k, v in under("regression").items()}
    return Combined(signals, RESTORED[numbers["model"]](arrays), numbers["model"], numbers["loss"])


@TRUST.add(
    "combined",
    paper="Platt, 1999; stacking: Wolpert, 1992, doi:10.1016/S0893-6080(05)80023-1",
    corners=({"model": "boosted"}, {"oracle": "none"}, {"penalty": 100.0}),
    trained=True,
    wants="features if given",
    scale="probability",
    threshold=0.5,
    learns_errors=True,
    restore=restore,
)
def combined(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    model: str = "logistic",
    oracle: str = "steep_slope",
    penalty: float = 1.0,
    folds: int = 5,
    seed: int = 0,
    columns: str = "",
    reference: Features | None = None,
    second: Any = None,
    second_reference: Features | None = None,
) -> Combined:
    """Probability of being right, sigmoid(w . s + b), s: confidence, entropy, margin, energy, oracle, RMD, neighbours.

    Args:
        model: `logistic` regression, or `boosted` trees, which need more errors to learn from.
        oracle: the trained oracle among the signals, or `none`.
        penalty: pseudo-counts against large weights (logistic) or leaf values (boosted).
        folds: parts for cross-fitting: no signal or weight is fitted with the fold it scores.
        seed: of the folds and the oracle.
        columns: names, with commas, of columns of the predictions that are high where a sample is hard.
        reference: features and labels of the training split for RMD, TrustScore and neighbours; without it they are
            fitted on these predictions' own features, fold by fold.
        second: features of the same samples by another extractor, one that never saw the task: RMD and TrustScore of
            the predicted class in that space join the signals as `second_rmd` and `second_trust_score`.
        second_reference: that extractor's features and labels of the training split, as `reference` is.
    """
    check_choice(model, FITS, "model")
    check_choice(oracle, ORACLES, "oracle")
    check_range(penalty, "penalty", 0, low_open=True)
    _check_reference(reference, features, predictions)
    _check_reference(second_reference, second, predictions, "second_reference", "second features")
    fold = stratified_folds(predictions, folds, seed)
    signals, values = learn_signals(
        predictions,
        features,
        fold,
        oracle_word=oracle,
        oracle_options={"folds": folds, "seed": seed},
        reference=reference,
        second=second,
        second_reference=second_reference,
        columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
    )
    correct = predictions.facts.correct.cpu().numpy()
    honest = cross_fitted(values, correct, fold, model, penalty)
    loss = _losses(values, correct, fold, (model, penalty), honest, signals.names)
    regression = FITS[model](values, correct, penalty)
    return Combined(signals, regression, model, loss, torch.from_numpy(honest))


def cross_fitted(values: Float64, correct: Flags, folds: Folds, model: str, penalty: float) -> Float64:
    """Probability of being right of every sample, by a regression fitted without its fold."""
    honest = np.empty(len(values))
    for fold in np.unique(folds):
        inside = folds == fold
        parts, base = FITS[model](values[~inside], correct[~inside], penalty).contributions(values[inside])
        honest[inside] = expit(parts.sum(axis=1) + base)
    return honest


def negative_log_likelihood(probability: Float64, correct: Flags) -> float:
    """Mean -log of the probability given to what happened."""
    return float(-np.log(np.maximum(np.where(correct, probability, 1 - probability), 1e-300)).mean())


def _losses(
    values: Float64, correct: Flags, folds: Folds, how: tuple[str, float], honest: Float64, names: tuple[str, ...]
) -> dict[str, float]:
    """Out-of-fold NLL with all signals, and without each: what a signal is worth beside the others."""
    losses = {"all": negative_log_likelihood(honest, correct)}
    if len(names) > 1:
        for j, name in enumerate(names):
            others = np.delete(values, j, axis=1)
            losses[name] = negative_log_likelihood(cross_fitted(others, correct, folds, *how), correct)
    return losses


def _check_reference(
    reference: Features | None,
    features: Tensor | None,
    predictions: Predictions,
    name: str = "reference",
    beside: str = "features",
) -> None:
    if reference is None:
        return
    if not isinstance(reference, Features):
        raise InputError(f"{name} must be a Features record with labels, got {type(reference).__name__}")
    if features is None or reference.dim != features.shape[1]:
        got = f"no {beside}" if features is None else f"{features.shape[1]} {beside}"
        raise InputError(f"{name} has {reference.dim} features a sample, but the predictions come with {got}")
    if reference.split == "test":
        raise InputError(f"{name} must not be the test split; pass the features of 'train'")
    labels, num_classes = np.asarray(reference.labels), predictions.num_classes
    shared = shared_samples(predictions.ids, features.cpu().numpy(), reference.ids, reference.values)
    if shared:
        # A sample lies at distance 0 of itself, in the class of its label: that would give the answer away.
        raise InputError(
            f"{name} must hold other samples than the predictions, but {shared} are in both; pass the training split, "
            "or leave it out: then each fold is scored by the others"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        wrong = int(labels.min() if labels.min() < 0 else labels.max())
        raise InputError(f"{name} has label {wrong}, but there are {num_classes} classes")
