"""What a calibrator may look at beside the logits: feature rows of the same samples, training samples to compare them
with, and the predictions of other models.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import difficulty
from confide.checks import InputError
from confide.difficulty import FittedDifficulty
from confide.difficulty.from_features import GaussianDifficulty
from confide.predictions import Predictions, feature_rows
from confide.records import Features, FeatureSource
from confide.trust import Trust
from confide.trust.distances import NeighbourDistance, TrustScore
from confide.types import ClassIndices, Logits

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Reference:
    """Training samples in feature space as a fit holds them: rows, labels, or the Gaussians of their classes."""

    word: str
    num_classes: int
    rows: NDArray[Any] | None = None
    labels: ClassIndices | None = None
    fitted: FittedDifficulty | None = None
    source: FeatureSource = field(default_factory=FeatureSource)
    fits: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, key: Hashable, fit: Callable[[], T]) -> T:
        """What a fit on these samples gives, made once for all folds of a choice and all models of a run."""
        key = (key, self.num_classes)
        if key not in self.fits:
            self.fits[key] = fit()
        fitted: T = self.fits[key]
        return fitted

    @cached_property
    def gaussians(self) -> GaussianDifficulty:
        """Of the classes: the difficulty fit's own, or fitted on the rows as `rmd` does."""
        fitted = self.fitted
        if fitted is None:
            fitted = self.once("rmd", lambda: difficulty.fit("rmd", *self.labelled_rows))
        if not isinstance(fitted.model, GaussianDifficulty):
            raise InputError(f"{self._needs('class Gaussians')}, got a fitted '{fitted.method}'; fit rmd")
        if fitted.num_classes != self.num_classes:
            raise InputError(
                f"fitted must know the {self.num_classes} classes of the predictions, got {fitted.num_classes}; "
                "fit it on the training split"
            )
        return fitted.model

    @property
    def training_rows(self) -> NDArray[Any]:
        """Feature rows of the training samples."""
        if self.rows is None:
            assert self.fitted is not None
            raise InputError(f"{self._needs('training features')}, got a fitted '{self.fitted.method}'; pass them")
        return self.rows

    @property
    def labelled_rows(self) -> tuple[NDArray[Any], ClassIndices]:
        """The same with their labels."""
        rows = self.training_rows
        if self.labels is None or not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.num_classes:
            raise InputError(f"{self._needs(f'labels of the {self.num_classes} classes with its training features')}")
        return rows, self.labels

    def _needs(self, what: str) -> str:
        return f"calibrator '{self.word}' needs {what} as `fitted`"


def reference_of(word: str, fitted: Any, num_classes: int) -> Reference:
    """The training samples that a difficulty fit, a trust predictor or a record of features holds."""
    if isinstance(fitted, FittedDifficulty):
        return Reference(word, num_classes, fitted=fitted, source=fitted.source)
    if isinstance(fitted, Features):
        if fitted.split == "test":
            raise InputError(f"calibrator '{word}' must not compare with the test split; pass the features of 'train'")
        rows, labels = np.asarray(fitted.values[:]), np.asarray(fitted.labels)
        return Reference(word, num_classes, rows, labels, source=fitted.source, fits=fitted.fits)
    if isinstance(fitted, Trust) and isinstance(fitted.scorer, (TrustScore, NeighbourDistance)):
        scorer, source = fitted.scorer, FeatureSource(fitted.about.extractor)
        if isinstance(scorer, NeighbourDistance):
            return Reference(word, num_classes, scorer.points.numpy(), source=source)
        labels = np.repeat(np.arange(len(scorer.bounds) - 1), np.diff(scorer.bounds))
        return Reference(word, num_classes, scorer.points + scorer.centre[labels], labels, source=source)
    raise InputError(
        f"fitted of calibrator '{word}' must be a fitted difficulty, Features of the training split, or a trust "
        f"predictor 'trust_score' or 'knn', got {type(fitted).__name__}"
    )


@dataclass(frozen=True, eq=False)
class Evidence:
    """Row by row what stands beside the logits; `reference`, the samples' `folds` and `shifts` only in a fit."""

    features: Tensor | None = None
    opinions: Mapping[str, Logits] = field(default_factory=dict)
    reference: Reference | None = None
    folds: NDArray[np.int64] | None = None
    shifts: NDArray[np.str_] | None = None

    def take(self, rows: slice | NDArray[np.intp]) -> Evidence:
        """The evidence of some rows."""
        return replace(
            self,
            features=None if self.features is None else self.features[rows],
            opinions={name: part[rows] for name, part in self.opinions.items()},
            folds=None if self.folds is None else self.folds[rows],
            shifts=None if self.shifts is None else self.shifts[rows],
        )

    @property
    def need_features(self) -> Tensor:
        if self.features is None:
            raise InputError("this calibrator looks at features of the samples, but there are none; pass features=")
        return self.features

    @property
    def need_reference(self) -> Reference:
        assert self.reference is not None
        return self.reference


def evidence_for(
    word: str,
    predictions: Predictions,
    features: Any,
    opinions: Mapping[str, Predictions],
    feature_dim: int | None,
    names: tuple[str, ...],
) -> Evidence:
    """What a fitted calibrator needs, checked: so many features a sample, and the opinions of these names."""
    rows = None
    if feature_dim is not None:
        if features is None:
            raise InputError(
                f"calibrator '{word}' was fitted with features ({feature_dim} a sample) and needs them here too; "
                "pass features="
            )
        rows = feature_rows(predictions, features)
        if rows.shape[1] != feature_dim:
            raise InputError(
                f"calibrator '{word}' was fitted on {feature_dim} features a sample, got {rows.shape[1]}; "
                "use the same extractor"
            )
        rows = rows.to(predictions.logits.device)
    missing = [name for name in names if name not in opinions]
    if missing:
        raise InputError(
            f"calibrator '{word}' was fitted with the predictions of {', '.join(names)} and needs them here too, "
            f"but {', '.join(missing)} is missing; pass opinions={{name: predictions}}"
        )
    return Evidence(rows, {name: log_posterior(name, opinions[name], predictions) for name in names})


def log_posterior(name: str, other: Predictions, predictions: Predictions) -> Logits:
    """Log-probabilities of another model for the same samples, in their order."""
    if not isinstance(other, Predictions):
        raise InputError(f"opinion '{name}' must be Predictions of the same samples, got {type(other).__name__}")
    if len(other) != len(predictions) or not np.array_equal(other.ids, predictions.ids):
        other = other.align(predictions.ids)
    if other.num_classes != predictions.num_classes:
        raise InputError(
            f"opinion '{name}' must have the {predictions.num_classes} classes of the predictions, "
            f"got {other.num_classes}"
        )
    logits = other.need_logits(f"opinion '{name}'").to(predictions.logits.device)
    return torch.log_softmax(logits.double(), dim=1)
