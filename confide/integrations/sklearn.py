"""scikit-learn: classifiers that are calibrated, that abstain, or that give sets, around any classifier; and a
calibrator as a transformer of outputs, fitted with scikit-learn's fit or made of one fitted before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide import calibrators, sets
from confide.calibrators import Calibrator
from confide.checks import InputError, MissingExtra, check_choice, check_range
from confide.evaluation.operating_points import apply_operating_point, operating_point
from confide.predictions import Predictions
from confide.types import Options

try:
    from sklearn import get_config
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin, clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import check_cv, train_test_split
    from sklearn.utils import _safe_indexing as rows_at, get_tags, indexable
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        column_or_1d,
        has_fit_parameter,
        validate_data,
    )
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "the scikit-learn classifiers") from None

PREFIT = "prefit"


# Classifiers around a classifier.


class _WrappedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifiers share: the inner one, its outputs as predictions, tags and routing of metadata."""

    estimator: Any

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities `n c` of the inner classifier."""
        probs: NDArray[np.float64] = self._predictions(X).probabilities().double().numpy()
        return probs

    def _predictions(self, X: Any) -> Predictions:
        check_is_fitted(self, "estimator_")
        return outputs_of(self.estimator_, X, self.classes_)

    def _begin(self, X: Any, y: Any) -> tuple[Any, Any, Any, NDArray[np.int64]]:
        """The inner classifier, the data, and the labels as positions in `classes_`."""
        inner = LogisticRegression() if self.estimator is None else self.estimator
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if self._prefit:
            check_is_fitted(inner)
            self.classes_ = inner.classes_
            _, codes = _encoded(y, self.classes_)
        else:
            self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs samples of at least 2 classes, got 1 class; add others")
        return inner, X, y, codes.astype(np.int64)

    @property
    def _prefit(self) -> bool:
        return False

    def _fitted(self, inner: Any, X: Any, y: Any, rows: Any, metadata: Options) -> Any:
        """A copy of the inner classifier fitted on these rows, with their part of weights and the like."""
        part = {name: rows_at(values, rows) for name, values in metadata.items()}
        return clone(inner).fit(rows_at(X, rows), rows_at(y, rows), **part)

    def _metadata(self, inner: Any, y: Any, sample_weight: Any, fit_params: Options) -> Options:
        """What the inner fit is given beside samples and labels: what was routed, or weights where it takes them."""
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, y)
            if len(np.unique(y[sample_weight != 0])) < 2:
                raise ValueError("sample_weight must leave at least 2 classes, but all others have weights of zero")
        if get_config()["enable_metadata_routing"]:
            params = dict(process_routing(self, "fit", sample_weight=sample_weight, **fit_params).estimator.fit)
        elif sample_weight is not None and not has_fit_parameter(inner, "sample_weight"):
            raise ValueError(f"{type(inner).__name__} takes no sample_weight; leave it out")
        else:
            params = {**fit_params, "sample_weight": sample_weight}
        return {name: values for name, values in params.items() if values is not None}

    def _adopt(self, fitted: Any) -> None:
        self.estimator_ = fitted
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def get_metadata_routing(self) -> Any:
        """Weights and other metadata of `fit` go to the inner classifier's `fit`."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=type(self).__name__)
            .add_self_request(self)
            .add(estimator=LogisticRegression() if self.estimator is None else self.estimator, method_mapping=mapping)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags


def outputs_of(estimator: Any, X: Any, classes: NDArray[Any], labels: Any = None) -> Predictions:
    """What a classifier gives for these samples, as what it is: probabilities, or the scores of `decision_function`.

    Args:
        estimator: a fitted classifier.
        X: the samples.
        classes: all of them, in the order of the outputs; a class that the classifier has not seen has probability 0.
        labels: positions in `classes`, where known.

    Returns:
        The predictions.

    Raises:
        InputError: scores of fewer classes than there are.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from confide.integrations.sklearn import outputs_of
        >>> fitted = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 1, 1])
        >>> outputs_of(fitted, [[0.0], [2.0]], np.array([0, 1]))
        <Predictions: 2 samples, 2 classes, probabilities, no labels>
    """
    if hasattr(estimator, "predict_proba"):
        probs = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        if probs.shape[1] != len(classes):
            whole = np.zeros((len(probs), len(classes)))
            whole[:, np.searchsorted(classes, estimator.classes_)] = probs
            probs = whole
        return Predictions.from_probs(probs, labels)
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if scores.ndim == 1:
        return Predictions.from_binary_logits(scores, labels)
    if scores.shape[1] != len(classes):
        raise InputError(
            f"decision_function must give a score for each of {len(classes)} classes, got {scores.shape[1]}; "
            "leave out the rarest class or take fewer folds"
        )
    return Predictions(scores, labels)


def _weighted(predictions: Predictions, rows: NDArray[np.int64], sample_weight: Any) -> Predictions:
    """Outputs of these rows that count as much as their samples do; one number for all weighs none."""
    weights = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
    return predictions.replace(weights=weights[rows]) if weights.ndim else predictions


class ConfideClassifier(_WrappedClassifier):
    """A classifier with calibrated probabilities, like CalibratedClassifierCV, with any calibrator of confide.

    The calibrator is fitted on out-of-fold outputs, then the classifier on all samples. `calibrator_` is the fit,
    with its `notes`; `estimator_` the classifier.

    Args:
        estimator: any classifier with predict_proba or decision_function; logistic regression by default.
        calibrator: a word (see `confide list calibrators`), or "choose" for the best by cross-validation.
        cv: folds, a splitter, or "prefit": the classifier is fitted already and `fit` is given other samples.
        options: of the calibrator, or None.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from confide.integrations.sklearn import ConfideClassifier
        >>> X, y = make_classification(200, random_state=0)
        >>> ConfideClassifier(calibrator="temperature", cv=3).fit(X, y).predict_proba(X).shape
        (200, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        calibrator: str = "temperature",
        cv: Any = 5,
        options: Options | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv
        self.options = options

    @property
    def _prefit(self) -> bool:
        return isinstance(self.cv, str) and self.cv == PREFIT

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> ConfideClassifier:
        """Fit calibrator and classifier; both weigh the samples so."""
        inner, X, y, codes = self._begin(X, y)
        metadata = self._metadata(inner, y, sample_weight, fit_params)
        if self._prefit:
            held_out, rows, fitted = outputs_of(inner, X, self.classes_, codes), np.arange(len(codes)), inner
        else:
            held_out, rows = self._out_of_fold(inner, X, y, codes, metadata)
            fitted = self._fitted(inner, X, y, np.arange(len(codes)), metadata)
        held_out = _weighted(held_out, rows, sample_weight)
        if self.calibrator == "choose":
            self.calibrator_ = calibrators.choose(held_out).calibrator
        else:
            self.calibrator_ = calibrators.fit(self.calibrator, held_out, **(self.options or {}))
        self._adopt(fitted)
        return self

    def _out_of_fold(
        self, inner: Any, X: Any, y: Any, codes: NDArray[np.int64], metadata: Options
    ) -> tuple[Predictions, NDArray[np.int64]]:
        """Outputs of classifiers that have not seen the sample, and the row of each."""
        folds = self.cv
        if isinstance(folds, (int, np.integer)) and np.bincount(codes).min() < folds:
            raise ValueError(f"{folds}-fold calibration needs at least {folds} samples of each class; take fewer folds")
        splitter = check_cv(folds, y, classifier=True)
        parts, order = [], []
        for train, held in splitter.split(X, y):
            fitted = self._fitted(inner, X, y, train, metadata)
            parts.append(outputs_of(fitted, rows_at(X, held), self.classes_))
            order.append(held)
        held = np.concatenate(order)
        if parts[0].from_probabilities:
            probs = torch.cat([part.probabilities() for part in parts])
            return Predictions.from_probs(probs, codes[held], held), held
        return Predictions(torch.cat([part.logits for part in parts]), codes[held], held), held

    def _predictions(self, X: Any) -> Predictions:
        plain = super()._predictions(X)
        return self.calibrator_(plain)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest calibrated probability."""
        best = self._predictions(X).facts.prediction.numpy()
        return np.asarray(self.classes_[best])


class _HoldoutClassifier(_WrappedClassifier):
    """A classifier fitted on a part of the samples, with something promised from the rest, which it has not seen."""

    holdout: Any
    random_state: Any

    @property
    def _prefit(self) -> bool:
        return isinstance(self.holdout, str) and self.holdout == PREFIT

    def _held_out(
        self, X: Any, y: Any, sample_weight: Any, fit_params: Options
    ) -> tuple[Predictions, NDArray[np.int64]]:
        """Outputs for the samples kept apart, and the row of each."""
        inner, X, y, codes = self._begin(X, y)
        metadata = self._metadata(inner, y, sample_weight, fit_params)
        if self._prefit:
            self._adopt(inner)
            return outputs_of(inner, X, self.classes_, codes), np.arange(len(codes))
        check_range(self.holdout, "holdout", 0, 1, low_open=True, high_open=True)
        enough = np.bincount(codes).min() >= 2
        train, held = train_test_split(
            np.arange(len(codes)),
            test_size=self.holdout,
            random_state=self.random_state,
            stratify=codes if enough else None,
        )
        self._adopt(self._fitted(inner, X, y, train, metadata))
        return outputs_of(self.estimator_, rows_at(X, held), self.classes_, codes[held]), held


class SelectiveClassifier(_HoldoutClassifier):
    """A classifier that abstains, so that with the stated confidence at most `risk` of its answers are wrong.

    The threshold comes from samples that the classifier is not fitted on (`holdout`); it holds for samples like
    these. Where nothing can be promised it abstains always, and `operating_point_.note` says why.

    Args:
        estimator: any classifier with predict_proba or decision_function; logistic regression by default.
        risk: the error rate allowed among answers.
        confidence: how sure the promise must be.
        holdout: share of the samples kept for the threshold, or "prefit": the classifier is fitted already and `fit`
            is given other samples.
        abstain: what `predict` says instead of a class: by default -1, or "abstain" where classes are words.
        ranked_by: what ranks the samples: `msp`, `entropy`, `margin`.
        random_state: of the holdout.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from confide.integrations.sklearn import SelectiveClassifier
        >>> X, y = make_classification(1000, class_sep=2.0, flip_y=0.2, random_state=0)
        >>> fitted = SelectiveClassifier(risk=0.15, random_state=0).fit(X, y)
        >>> set(fitted.predict(X).tolist()) <= {-1, 0, 1}
        True
    """

    def __init__(
        self,
        estimator: Any = None,
        risk: float = 0.01,
        confidence: float = 0.95,
        holdout: Any = 0.25,
        abstain: Any = None,
        ranked_by: str = "msp",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.risk = risk
        self.confidence = confidence
        self.holdout = holdout
        self.abstain = abstain
        self.ranked_by = ranked_by
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> SelectiveClassifier:
        """Fit the classifier on a part, the threshold on the rest; both weigh the samples so."""
        held_out = _weighted(*self._held_out(X, y, sample_weight, fit_params), sample_weight)
        self.operating_point_ = operating_point(held_out, self.risk, self.confidence, score=self.ranked_by)
        return self

    def accept(self, X: Any) -> NDArray[np.bool_]:
        """Which samples are answered."""
        predictions = self._predictions(X)
        accepted: NDArray[np.bool_] = apply_operating_point(self.operating_point_, predictions).numpy()
        return accepted

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class, or `abstain`."""
        predictions = self._predictions(X)
        words = self.classes_.dtype.kind in "USO"
        instead = ("abstain" if words else -1) if self.abstain is None else self.abstain
        accepted = apply_operating_point(self.operating_point_, predictions).numpy()
        answers: NDArray[Any] = self.classes_[predictions.facts.prediction.numpy()]
        if words:
            answers = answers.astype(object)
        return np.where(accepted, answers, instead)


class SetClassifier(_HoldoutClassifier):
    """A classifier that gives sets of classes which hold the true one with probability `coverage`.

    The sets come from samples that the classifier is not fitted on (`holdout`); the promise is for samples like these.

    Args:
        estimator: any classifier with predict_proba or decision_function; logistic regression by default.
        coverage: how often the true class must be in the set.
        method: the score of the sets, such as `lac` (small sets) or `aps` (adaptive ones).
        holdout: share of the samples kept for the sets, or "prefit".
        random_state: of the holdout.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from confide.integrations.sklearn import SetClassifier
        >>> X, y = make_classification(400, n_informative=5, n_classes=3, random_state=0)
        >>> SetClassifier(coverage=0.8, random_state=0).fit(X, y).predict_set(X).shape
        (400, 3)
    """

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        method: str = "lac",
        holdout: Any = 0.25,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.method = method
        self.holdout = holdout
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> SetClassifier:
        """Fit the classifier on a part, the sets on the rest; weights go to the classifier: sets promise for samples
        that count alike.
        """
        held_out, _ = self._held_out(X, y, sample_weight, fit_params)
        self.sets_ = sets.fit(self.method, held_out, self.coverage)
        return self

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Which classes are in the set of each sample, `n c` in the order of `classes_`."""
        predictions = self._predictions(X)
        members: NDArray[np.bool_] = np.asarray(self.sets_(predictions))
        return members

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class."""
        best = self._predictions(X).facts.prediction.numpy()
        return np.asarray(self.classes_[best])


# A calibrator as a transformer of outputs.


class CalibratorTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a classifier's outputs into calibrated probabilities: `fit(outputs, labels)`, `transform(outputs)`.

    Fit it on held-out outputs, never on those of the classifier's training data or of the test set.

    Args:
        word: which calibrator (see `confide list calibrators`).
        inputs: what the columns are: `probs`, as `predict_proba` gives them, or `logits` (any scores that a softmax
            turns into probabilities); the one given as the other is refused or warned of.
        options: of the calibrator, or None.
    """

    def __init__(self, word: str = "temperature", inputs: str = "probs", options: Options | None = None) -> None:
        self.word = word
        self.inputs = inputs
        self.options = options

    def fit(self, X: Any, y: Any) -> CalibratorTransformer:
        """Fit on outputs `n c` and labels `n`; labels may be any c values, in sorted order of the columns."""
        check_choice(self.inputs, ("logits", "probs"), "inputs")
        outputs, targets = validate_data(self, X, y)
        check_classification_targets(targets)
        self.classes_, labels = _encoded_columns(targets, outputs.shape[-1])
        self.calibrator_ = calibrators.fit(self.word, self._predictions(outputs, labels), **(self.options or {}))
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities `n c`."""
        check_is_fitted(self, "calibrator_")
        outputs = validate_data(self, X, reset=False)
        record = self._predictions(outputs, np.zeros(len(outputs), np.int64))
        probs: NDArray[np.float64] = self.calibrator_(record).logits.double().softmax(dim=1).numpy()
        return probs

    predict_proba = transform

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns that `transform` gives, for `set_output`."""
        check_is_fitted(self, "calibrator_")
        return np.array([f"prob_{name}" for name in self.classes_.tolist()], dtype=object)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest calibrated probability."""
        place = np.asarray(self.transform(X)).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[place]
        return predicted

    def _predictions(self, outputs: NDArray[Any], labels: NDArray[np.int64]) -> Predictions:
        if self.inputs == "probs":
            try:
                return Predictions.from_probs(outputs, labels)
            except InputError as error:
                raise InputError(f'{error}; if so, CalibratorTransformer(inputs="logits")') from None
        return Predictions(outputs, labels)


def _encoded(labels: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes and every label's place among them."""
    place = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
    if not (classes[place] == labels).all():
        bad = int((classes[place] != labels).argmax())
        raise InputError(f"labels must be among the classes of the fitted classifier, got '{labels[bad]}'; check them")
    return classes, place.astype(np.int64)


def _encoded_columns(labels: NDArray[Any], num_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
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


def as_transformer(calibrator: Calibrator, inputs: str = "probs") -> CalibratorTransformer:
    """A calibrator fitted before as a fitted transformer.

    Args:
        calibrator: what `confide.calibrators.fit` or `load` returned.
        inputs: what the columns are, `probs` or `logits`.

    Returns:
        A transformer that gives calibrated probabilities.

    Example:
        >>> import torch
        >>> from confide.integrations.sklearn import as_transformer
        >>> val = confide.Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1]))
        >>> transformer = as_transformer(confide.calibrators.fit("temperature", val))
        >>> transformer.transform([[0.9, 0.1]]).shape
        (1, 2)
    """
    transformer = CalibratorTransformer(calibrator.word, inputs, dict(calibrator.options))
    transformer.calibrator_ = calibrator
    transformer.classes_ = np.arange(calibrator.num_classes)
    transformer.n_features_in_ = calibrator.num_classes
    return transformer
