"""A calibrator as a scikit-learn transformer: fitted with scikit-learn's fit, or made of a calibrator fitted before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import calibrators
from confide.calibrators import Calibrator
from confide.checks import InputError, MissingExtra, check_choice
from confide.predictions import Predictions

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "the scikit-learn transformer") from None


class CalibratorTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a classifier's outputs into calibrated probabilities: `fit(outputs, labels)`, `transform(outputs)`.

    Fit it on held-out outputs, never on those of the classifier's training data or of the test set.

    Args:
        word: which calibrator (see `confide list calibrators`).
        inputs: what the columns are, `logits` (any scores that a softmax turns into probabilities) or `probs`.
        options: of the calibrator, or None.
    """

    def __init__(
        self, word: str = "temperature", inputs: str = "logits", options: dict[str, Any] | None = None
    ) -> None:
        self.word = word
        self.inputs = inputs
        self.options = options

    def fit(self, X: Any, y: Any) -> CalibratorTransformer:
        """Fit on outputs `n c` and labels `n`; labels may be any c values, in sorted order of the columns."""
        check_choice(self.inputs, ("logits", "probs"), "inputs")
        outputs = np.asarray(X)
        self.classes_, labels = _encoded(np.asarray(y), outputs.shape[-1])
        self.calibrator_ = calibrators.fit(self.word, self._predictions(outputs, labels), **(self.options or {}))
        self.n_features_in_ = outputs.shape[-1]
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities `n c`."""
        check_is_fitted(self, "calibrator_")
        outputs = np.asarray(X)
        record = self._predictions(outputs, np.zeros(len(outputs), np.int64))
        probs: NDArray[np.float64] = self.calibrator_(record).logits.double().softmax(dim=1).numpy()
        return probs

    predict_proba = transform

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest calibrated probability."""
        predicted: NDArray[Any] = self.classes_[self.transform(X).argmax(axis=1)]
        return predicted

    def _predictions(self, outputs: NDArray[Any], labels: NDArray[np.int64]) -> Predictions:
        if self.inputs == "probs":
            return Predictions.from_probs(outputs, labels)
        return Predictions(outputs, labels)


def _encoded(labels: NDArray[Any], num_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of the classes in the order of the columns, and every label's column."""
    seen, codes = np.unique(labels, return_inverse=True)
    if seen.dtype.kind in "iu" and len(seen) and seen[0] >= 0 and seen[-1] < num_classes:
        return np.arange(num_classes), labels.astype(np.int64)
    if len(seen) != num_classes:
        raise InputError(
            f"labels must be column numbers below {num_classes} or take {num_classes} values, one per column, "
            f"got {len(seen)} values; give column numbers where a class is missing"
        )
    return seen, codes.astype(np.int64)


def as_transformer(calibrator: Calibrator, inputs: str = "logits") -> CalibratorTransformer:
    """A calibrator fitted before as a fitted transformer.

    Args:
        calibrator: what `confide.calibrators.fit` or `load` returned.
        inputs: what the columns are, `logits` or `probs`.

    Returns:
        A transformer that gives calibrated probabilities.

    Example:
        >>> import torch
        >>> from confide.integrations.sklearn import as_transformer
        >>> val = confide.Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1]))
        >>> transformer = as_transformer(confide.calibrators.fit("temperature", val))
        >>> transformer.transform([[2.0, 0.0]]).shape
        (1, 2)
    """
    transformer = CalibratorTransformer(calibrator.word, inputs, dict(calibrator.options))
    transformer.calibrator_ = calibrator
    transformer.classes_ = np.arange(calibrator.num_classes)
    transformer.n_features_in_ = calibrator.num_classes
    return transformer
