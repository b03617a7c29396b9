"""Calibrators of other libraries: (predictions) -> a function that fits and gives probabilities of the same samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from confide import Predictions


def sklearn_temperature(predictions: Predictions) -> Callable[[], Any]:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class FixedModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> FixedModel:
            self.classes_ = np.arange(X.shape[1])
            return self

        def decision_function(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    logits, labels = predictions.logits.numpy(), predictions.labels.numpy()
    frozen = FrozenEstimator(FixedModel().fit(logits, labels))
    return lambda: CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels).predict_proba(logits)


def netcal_temperature(predictions: Predictions) -> Callable[[], Any]:
    from netcal.scaling import TemperatureScaling

    # float64: with float32 input it returns T = 1.
    probs, labels = torch.softmax(predictions.logits.double(), dim=1).numpy(), predictions.labels.numpy()

    def work() -> Any:
        scaler = TemperatureScaling()
        scaler.fit(probs, labels)
        return scaler.transform(probs)

    return work


def probmetrics_method(name: str, **options: Any) -> Callable[[Predictions], Callable[[], Any]]:
    def prepare(predictions: Predictions) -> Callable[[], Any]:
        import warnings

        from probmetrics.calibrators import get_calibrator
        from probmetrics.distributions import CategoricalLogits

        warnings.simplefilter("ignore")
        logits, labels = CategoricalLogits(predictions.logits.double()), predictions.labels

        def work() -> Any:
            fitted = get_calibrator(name, **options).fit_torch(logits, labels)
            return fitted.predict_proba_torch(logits).get_probs().numpy()

        return work

    return prepare


def scipy_ensemble(predictions: Predictions) -> Callable[[], Any]:
    """The released algorithm: T by L-BFGS-B on the squared error of dense one-hots, then SLSQP for the weights."""
    logits = predictions.logits.double().numpy()
    onehot = np.eye(logits.shape[1])[predictions.labels.numpy()]

    def softmax(scale: float) -> Any:
        return torch.softmax(torch.from_numpy(logits * scale), dim=1).numpy()

    def work() -> Any:
        minimum = minimize(lambda t: ((softmax(1 / t[0]) - onehot) ** 2).mean(), [1.0], bounds=[(0.05, 5.0)], tol=1e-12)
        parts = [softmax(1 / minimum.x[0]), softmax(1.0), np.full_like(logits, 1 / logits.shape[1])]
        weights = minimize(
            lambda w: ((sum(a * p for a, p in zip(w, parts, strict=True)) - onehot) ** 2).mean(),
            [1.0, 0.0, 0.0],
            method="SLSQP",
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            tol=1e-12,
        ).x
        return sum(a * p for a, p in zip(weights, parts, strict=True))

    return work


def torch_vector(predictions: Predictions) -> Callable[[], Any]:
    """The common recipe: torch.optim.LBFGS with a line search over autograd."""
    logits, labels = predictions.logits, predictions.labels

    def work() -> Any:
        weight = torch.ones(logits.shape[1], requires_grad=True)
        bias = torch.zeros(logits.shape[1], requires_grad=True)
        optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> Any:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(logits * weight + bias, labels)
            loss.backward()
            return loss

        optimiser.step(closure)
        return torch.softmax((logits * weight + bias).detach(), dim=1).numpy()

    return work


def sklearn_dirichlet(predictions: Predictions) -> Callable[[], Any]:
    """Multinomial logistic regression on log p with the same pull on the weights."""
    from sklearn.linear_model import LogisticRegression

    log_probs, labels = torch.log_softmax(predictions.logits, dim=1).numpy(), predictions.labels.numpy()
    n = len(labels)
    return lambda: (
        LogisticRegression(C=1 / (2 * PULL * n), max_iter=1000, tol=1e-6)
        .fit(log_probs, labels)
        .predict_proba(log_probs)
    )


PULL = 1e-3
ZERO = {"svs_lambda_intercept": 0.0, "svs_lambda_diagonal": 0.0, "svs_print_init_info": False}
PEERS: dict[str, tuple[dict[str, Any], dict[str, Callable[[Predictions], Callable[[], Any]]]]] = {
    "temperature": (
        {},
        {
            "scikit-learn": sklearn_temperature,
            "netcal (float64)": netcal_temperature,
            "probmetrics ts-mix": probmetrics_method("ts-mix"),
        },
    ),
    "ensemble_temperature": ({}, {"released algorithm, scipy": scipy_ensemble}),
    "vector": ({}, {"probmetrics svs, no pull": probmetrics_method("svs", **ZERO), "torch LBFGS": torch_vector}),
    "matrix": ({}, {"probmetrics sms": probmetrics_method("sms")}),
    "dirichlet": (
        {"reg_lambda": PULL, "reference_row": False},
        {"scikit-learn multinomial": sklearn_dirichlet},
    ),
}
