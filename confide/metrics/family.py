"""The family's registry and door: a metric is written once, as a number of a `View`, and gains its interval here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.registry import Method, Registry
from confide.core.results import Measurement
from confide.metrics.resampling import RESAMPLES, Null, interval_of, nulls, whole_null
from confide.metrics.scores import score_name
from confide.metrics.view import Base, View, base_of

METRICS = Registry("metric")

CORE = (
    "accuracy",
    "confidence_gap",
    "nll",
    "brier",
    "ece",
    "ece_mass",
    "classwise_ece",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "aupr_success",
    "aupr_error",
    "fpr95",
    "halving_rejection",
)


class Metric(Protocol):
    """What every metric word is: `(predictions, *, options) -> Measurement`."""

    def __call__(self, predictions: Predictions, **options: Any) -> Measurement: ...


def metric(
    word: str,
    *,
    paper: str,
    better: str,
    range: tuple[float, float],
    meaning: str,
    kind: str,
    corners: tuple[dict[str, Any], ...] = (),
    **facts: Any,
) -> Callable[[Callable[..., float]], Metric]:
    """Decorator: makes `(view, *, options) -> float` the public metric of that word and registers it.

    Args:
        better: "higher", "lower", or "neither" where a value alone is neither good nor bad.
        range: the smallest and largest value it can take.
        meaning: one plain sentence.
        kind: "mean", "calibration" (bias-corrected interval, chance level, test), "ranking" or "separation".
    """

    def wrap(function: Callable[..., float]) -> Metric:
        def measured(predictions: Predictions, *rest: Any, **options: Any) -> Measurement:
            if rest:
                raise InputError(
                    f"{word} takes one record: confide.metrics.{word}(confide.Predictions(logits, labels))"
                )
            return measure(METRICS.get(word), predictions, options)

        signature = inspect.signature(function)
        first = inspect.Parameter("predictions", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest = list(signature.parameters.values())[1:]
        measured.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[first, *rest], return_annotation=Measurement
        )
        measured.__name__ = measured.__qualname__ = word
        measured.__doc__, measured.__module__ = function.__doc__, function.__module__
        known = {"better": better, "range": range, "meaning": meaning, "kind": kind, "value": function, **facts}
        METRICS.add(word, paper=paper, corners=corners, **known)(measured)
        return measured

    return wrap


def names() -> tuple[str, ...]:
    """All words of the family."""
    return METRICS.names()


def parse(word: str) -> tuple[Method, dict[str, Any]]:
    """A word of the table as a metric and its options: `ece_mass` is `ece` with binning="mass"."""
    if word.endswith("_mass") and word not in METRICS and word[: -len("_mass")] in METRICS:
        return METRICS.get(word[: -len("_mass")]), {"binning": "mass"}
    return METRICS.get(word), {}


def label_of(method: Method, options: dict[str, Any]) -> str:
    """The name of a measurement: the word, with `_mass` for equal-mass bins where the default is equal width."""
    default = method.options.get("binning")
    chosen = options.get("binning", default)
    return f"{method.word}_{chosen}" if chosen != default else method.word


def value_of(method: Method, view: View, options: dict[str, Any]) -> float:
    """The number of a metric on weighted samples."""
    return float(method.facts["value"](view, **options))


def measure(method: Method, predictions: Predictions, options: dict[str, Any]) -> Measurement:
    """A metric's measurement; interval and chance level are computed when they are first asked for."""
    method.check_options(options)
    missing = [name for name in method.needs if name not in options]
    if missing:
        raise InputError(f"metric '{method.word}' needs {missing[0]}=; give it")
    base = base_of(predictions)
    value = value_of(method, View(base), options)
    return Measurement(
        metric=label_of(method, options),
        value=value,
        n=len(predictions),
        split=predictions.split,
        score=score_name(options.get("score", method.options["score"])) if "score" in method.options else None,
        note=note_of(method, options, len(predictions)),
        interval=lambda: interval_of(method, predictions, options, value),
    )


def note_of(method: Method, options: dict[str, Any], n: int) -> str | None:
    """Options that differ from the defaults and what was resampled only in part, in words, for the table."""
    told = {k: v for k, v in options.items() if k != "score" and v != method.options.get(k)}
    told.pop("binning", None)
    words = [f"{k} {v}" for k, v in told.items()]
    most = method.facts.get("resampled_rows", n)
    if n > most:
        words.append(f"interval from resamples of {most:,} of {n:,} rows")
    return ", ".join(words) or None


def calibration_test(
    predictions: Predictions, metric: str = "ece_mass", *, resamples: int = RESAMPLES, seed: int = 0, **options: Any
) -> Null:
    """What a perfectly calibrated model with these confidences would show, and the p-value of being one.

    Args:
        metric: the calibration error to test with.
        resamples: draws of correctness from the confidences; the smallest p-value is 1 / (resamples + 1). Class-wise
            and kernel errors draw labels 200 and 99 times.
    """
    method, extra = parse(metric)
    if method.facts["kind"] != "calibration":
        raise InputError(f"metric '{metric}' is no calibration error, so it has no calibration test")
    options = {**extra, **options}
    method.check_options(options)
    base = Base(predictions)
    if not method.facts.get("whole"):
        return nulls(base, [(method, options)], resamples=resamples, seed=seed)[0]
    found = whole_null(method, predictions, options, value_of(method, View(base), options), seed)
    if found is None:
        raise InputError(f"the calibration test of '{metric}' needs all probabilities in memory")
    return found
