"""Several risks promised at once by one threshold, or one a predicted class: with probability 1 - delta, or on average.

A prediction is accepted if its score is at least the threshold. Error and precision are rates among the accepted, false
positives among the samples of other classes, recall and misses among those of the class, so each is binomial given its
denominator and has an exact test. A threshold is safe where all tests reject at delta (intersection-union). Risks that
fall as the threshold rises are tested from the most confident on; recall and misses, which rise, from accepting all on.
Rates of weighted samples are ratios of means, tested by a bound on means of bounded losses, which takes more samples.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError, as_tensor, check_choice, check_range, did_you_mean
from confide.numerics.binomial import (
    binomial_p,
    hoeffding_bentkus_p,
    mean_upper_bound,
    upper_bound,
    weighted_mean_p,
    weighted_upper_bound,
)
from confide.predictions import Predictions, class_words
from confide.results import ClassThreshold, OperatingPoint, PromisedRisk
from confide.types import AnyArray, Flags, Floats


@dataclass(frozen=True)
class RiskKind:
    """A rate that can be promised: `at_least` or at most, whether it `rises` with the threshold, `of_class` or not, and
    whether it is a `ratio`, whose denominator changes with the threshold.
    """

    at_least: bool = False
    rises: bool = False
    of_class: bool = False
    ratio: bool = False


KINDS = {
    "error": RiskKind(ratio=True),
    "accepted_error": RiskKind(),
    "precision": RiskKind(at_least=True, of_class=True, ratio=True),
    "recall": RiskKind(at_least=True, rises=True, of_class=True),
    "fnr": RiskKind(rises=True, of_class=True),
    "fpr": RiskKind(of_class=True),
}
"""error: wrong among accepted · accepted_error: accepted and wrong among all · precision: right among those accepted as
the class · recall, fnr: accepted as the class, or not, among its samples · fpr: accepted as it among the others."""
LOSS = RiskKind(ratio=True)
"""A loss in [0, 1] that the user gives: its mean among accepted."""


@dataclass(frozen=True)
class Counts:
    """Events or summed losses, and how many samples count; both by weight where there are weights."""

    events: float
    n: int


@dataclass(frozen=True, eq=False)
class Risk(ABC):
    """A risk on calibration samples: what it is called, which it is, and the limit that is asked for."""

    label: str
    kind: RiskKind
    limit: float

    @property
    def rate(self) -> float:
        """The rate of events that must not be exceeded."""
        return float(1 - Fraction(str(self.limit))) if self.kind.at_least else self.limit

    @abstractmethod
    def counts(self, threshold: float) -> Counts:
        """What is seen at a threshold."""

    @abstractmethod
    def p_value(self, threshold: float) -> float:
        """Of "the risk is above its limit"."""

    @abstractmethod
    def testable(self, threshold: float, delta: float) -> bool:
        """Whether any outcome could pass, at so many samples."""

    @abstractmethod
    def bound(self, threshold: float, delta: float) -> float:
        """The largest rate of events that is not refuted."""

    def on_average(self, threshold: float) -> bool:
        """Conformal risk control: (events + 1) / (n + 1) at most the limit, in exact arithmetic."""
        seen = self.counts(threshold)
        limit = Fraction(str(self.limit))
        return int(seen.events) + 1 <= (1 - limit if self.kind.at_least else limit) * (seen.n + 1)

    def promised(self, threshold: float, delta: float | None) -> PromisedRisk:
        """What was seen at a threshold, and the bound there; no bound for a promise on average."""
        seen, bound = self.counts(threshold), None
        if delta is not None:
            high = self.bound(threshold, delta)
            bound = 1 - high if self.kind.at_least else high
        return PromisedRisk(self.label, self.limit, self.kind.at_least, seen.events, seen.n, bound)


@dataclass(frozen=True, eq=False)
class CountedRisk(Risk):
    """A risk of samples that count alike: what counts as an event at every threshold, and among how many."""

    marks: Floats
    """Scores of the samples that are events where accepted (of a risk that rises: that are none), rising."""
    base: Floats | None
    """Scores of the samples that count where accepted, rising; None where `n` samples count always."""
    n: int
    losses: Floats | None = None
    """Summed losses of the marks, from the highest score on, for a loss that is no event."""

    def counts(self, threshold: float) -> Counts:
        above = len(self.marks) - int(np.searchsorted(self.marks, threshold))
        n = self.n if self.base is None else len(self.base) - int(np.searchsorted(self.base, threshold))
        if self.losses is not None:
            return Counts(float(self.losses[above]), n)
        return Counts(float(n - above if self.kind.rises else above), n)

    def p_value(self, threshold: float) -> float:
        seen = self.counts(threshold)
        if self.losses is not None:
            return hoeffding_bentkus_p(seen.events, seen.n, self.rate)
        return binomial_p(int(seen.events), seen.n, self.rate)

    def testable(self, threshold: float, delta: float) -> bool:
        return (1 - self.rate) ** self.counts(threshold).n <= delta

    def bound(self, threshold: float, delta: float) -> float:
        seen = self.counts(threshold)
        if self.losses is not None:
            return mean_upper_bound(seen.events, seen.n, delta)
        return upper_bound(int(seen.events), seen.n, delta)


@dataclass(frozen=True, eq=False)
class WeightedRisk(Risk):
    """A risk of weighted samples: scores of those that count, what each loses where accepted, and its weight over the
    largest weight there may be. A ratio of means has no exact law, so it is tested by `weighted_mean_p`.
    """

    scores: Floats
    losses: Floats
    weights: Floats

    def at(self, threshold: float) -> tuple[Floats, Floats]:
        """Losses and weights of the samples that count at a threshold."""
        accepted = self.scores >= threshold
        if self.kind.ratio:
            return self.losses[accepted], self.weights[accepted]
        lost = accepted * self.losses
        return 1 - lost if self.kind.rises else lost, self.weights

    def counts(self, threshold: float) -> Counts:
        losses, weights = self.at(threshold)
        share = float(np.average(losses, weights=weights)) if len(losses) else 0.0
        return Counts(share * len(losses), len(losses))

    def p_value(self, threshold: float) -> float:
        return weighted_mean_p(*self.at(threshold), self.rate)

    def testable(self, threshold: float, delta: float) -> bool:
        losses, weights = self.at(threshold)
        return weighted_mean_p(0 * losses, weights, self.rate) <= delta

    def bound(self, threshold: float, delta: float) -> float:
        return weighted_upper_bound(*self.at(threshold), delta)


# The risks that were asked for, counted on predictions.


def counted_risks(
    predictions: Predictions,
    values: Floats,
    risks: Mapping[str, float],
    losses: Mapping[str, AnyArray],
    only: int | None = None,
) -> list[Risk]:
    """The risks as counts by threshold; `only` takes those of one predicted class, whose samples alone are accepted."""
    counted = []
    for text, limit in risks.items():
        name, kind, of = _risk_of(text, predictions, losses)
        check_range(limit, f"risk '{text}'", 0, 1, low_open=True, high_open=True)
        if only is not None and (of is not None or name == "accepted_error"):
            raise InputError(f"thresholds by class promise risks of their own class, got '{text}'; name the risk alone")
        if name in losses:
            counted.append(_loss(predictions, values, name, limit, losses[name], only))
        elif not kind.of_class:
            counted.append(_of_all(predictions, values, name, limit, only))
        else:
            # Of two classes the second is the one to find; of more every class keeps the promise.
            every = [only] if only is not None else [of] if of is not None else range(predictions.num_classes)
            if only is None and of is None and predictions.num_classes == 2:
                every = [1]
            counted += [_of_class(predictions, values, name, limit, k) for k in every]
    return counted


def _risk_of(text: str, predictions: Predictions, losses: Mapping[str, AnyArray]) -> tuple[str, RiskKind, int | None]:
    """Name, kind and class of "precision[cat]"."""
    parts = re.fullmatch(r"\s*(\w+)\s*(?:\[(.+)\])?\s*", str(text))
    name, of = parts.groups() if parts else (str(text), None)
    if name in losses:
        return name, LOSS, None
    if name not in KINDS:
        raise InputError(f"no risk named '{name}'; {did_you_mean(name, [*KINDS, *losses])}")
    kind = KINDS[name]
    if of is None:
        return name, kind, None
    words = class_words(predictions)
    if not kind.of_class:
        raise InputError(f"the risk '{name}' is of all classes, got '{text}'; leave the class out")
    if of not in words and not (of.isdecimal() and int(of) < len(words)):
        raise InputError(f"no class named '{of}'; {did_you_mean(of, words)}")
    return name, kind, words.index(of) if of in words else int(of)


def _of_all(predictions: Predictions, values: Floats, name: str, limit: float, only: int | None) -> Risk:
    wrong = ~predictions.facts.correct.cpu().numpy()
    may = np.ones(len(values), bool) if only is None else predictions.facts.prediction.cpu().numpy() == only
    label = name if only is None else f"{name}[{class_words(predictions)[only]}]"
    among = may if KINDS[name].ratio else np.ones(len(values), bool)
    return _counted(predictions, values, label, KINDS[name], limit, wrong & may, among)


def _of_class(predictions: Predictions, values: Floats, name: str, limit: float, k: int) -> Risk:
    labels = predictions.need_labels(f"the risk '{name}'").cpu().numpy()
    own, predicted = labels == k, predictions.facts.prediction.cpu().numpy() == k
    marks = {"precision": predicted & ~own, "fpr": predicted & ~own}.get(name, predicted & own)
    among = {"precision": predicted, "fpr": ~own}.get(name, own)
    label = f"{name}[{class_words(predictions)[k]}]"
    return _counted(predictions, values, label, KINDS[name], limit, marks, among)


def _counted(
    predictions: Predictions,
    values: Floats,
    label: str,
    kind: RiskKind,
    limit: float,
    marks: Flags,
    among: Flags,
    losses: Floats | None = None,
) -> Risk:
    """The risk of samples that are events, or have losses, where accepted; among those that count."""
    weights = predictions.relative_weights
    if weights is not None:
        lost = marks.astype(np.float64) if losses is None else marks * losses
        return WeightedRisk(label, kind, limit, values[among], lost[among], weights[among] / weights.max())
    order = np.argsort(values[marks], kind="stable")
    sums = None if losses is None else np.append(0.0, np.cumsum(losses[marks][order][::-1]))
    base = np.sort(values[among]) if kind.ratio else None
    return CountedRisk(label, kind, limit, values[marks][order], base, int(among.sum()), sums)


def _loss(predictions: Predictions, values: Floats, name: str, limit: float, losses: Any, only: int | None) -> Risk:
    each: Floats = as_tensor(losses, name).double().cpu().numpy()
    if each.shape != values.shape or not ((each >= 0) & (each <= 1)).all():
        raise InputError(f"the loss '{name}' must be {len(values)} numbers in [0, 1]; scale them by their bound")
    may = np.ones(len(values), bool) if only is None else predictions.facts.prediction.cpu().numpy() == only
    label = name if only is None else f"{name}[{class_words(predictions)[only]}]"
    return _counted(predictions, values, label, LOSS, limit, may, may, each)


# Which thresholds are safe.

STEPS = 20  # candidate coverages 5 %, 10 %, ..., 100 %


def candidates(values: NDArray[np.floating]) -> list[float]:
    """The different thresholds at coverages 5 %, 10 %, ..., the highest first."""
    falling = np.sort(values)[::-1]
    places = (max(math.ceil(j * len(values) / STEPS - 1e-9), 1) - 1 for j in range(1, STEPS + 1))
    return list(dict.fromkeys(float(falling[k]) for k in places))


def fixed_sequence(passes: Sequence[float], testable: Sequence[bool], delta: float) -> list[int]:
    """Test in order, each at the full level, until one fails; those that no outcome could pass are not tested."""
    safe = []
    for k, p_value in enumerate(passes):
        if not testable[k]:
            continue
        if p_value > delta:
            break
        safe.append(k)
    return safe


def fallback(passes: Sequence[float], testable: Sequence[bool], delta: float) -> list[int]:
    """Share the level over all; a success hands its level on."""
    safe, level = [], 0.0
    for k, p_value in enumerate(passes):
        level += delta / len(passes)
        if p_value <= level:
            safe.append(k)
        else:
            level = 0.0
    return safe


METHODS: dict[str, Callable[[Sequence[float], Sequence[bool], float], list[int]]] = {
    "fixed_sequence": fixed_sequence,
    "fallback": fallback,
}


def _breaks(risks: Sequence[Risk], threshold: float) -> bool:
    """Whether a threshold breaks one of the promises on average."""
    return not all(risk.on_average(threshold) for risk in risks)


def safe_threshold(values: Floats, risks: Sequence[Risk], delta: float | None, method: str) -> float | None:
    """The threshold that keeps every promise: the one that accepts most, or least where only recall is promised.

    Args:
        delta: how often all promises together may fail; None for a promise on average.
    """
    groups = [group for group in ([r for r in risks if not r.kind.rises], [r for r in risks if r.kind.rises]) if group]
    thresholds: list[float] = np.unique(values)[::-1].tolist() if delta is None else candidates(values)
    safe = set(thresholds)
    for group in groups:
        order = thresholds[::-1] if group[0].kind.rises else thresholds
        if delta is None:
            # Monotone: those that hold come first, and halving finds how many.
            held = bisect_left(order, True, key=partial(_breaks, group))
            safe.intersection_update(order[:held])
            continue
        # Both directions share delta; within one a threshold is safe if all its tests reject.
        level = delta / len(groups)
        passes = [max(risk.p_value(t) for risk in group) for t in order]
        testable = [all(risk.testable(t, level) for risk in group) for t in order]
        safe &= {order[k] for k in METHODS[method](passes, testable, level)}
    if not safe:
        return None
    return max(safe) if all(risk.kind.rises for risk in risks) else min(safe)


# The operating point.


def promise_risks(
    predictions: Predictions,
    values: Floats,
    risks: Mapping[str, float],
    nothing: OperatingPoint,
    losses: Mapping[str, AnyArray],
    per_class: bool,
) -> OperatingPoint:
    """The point whose threshold, or thresholds by predicted class, keep all promises; `nothing` says the rest."""
    nothing = replace(nothing, risk=risks.get("error"))
    if not risks:
        raise InputError("risk= must name at least one risk, such as {'error': 0.01}; got none")
    average = nothing.promise == "expectation"
    if average:
        predictions.need_unweighted("a promise on average")
    else:
        check_choice(nothing.method, tuple(METHODS), "method of several risks")
    delta = None if average else 1 - nothing.confidence

    def find(only: int | None, share: int) -> tuple[list[Risk], float | None]:
        counted = counted_risks(predictions, values, risks, losses, only)
        if average and (ratios := [risk.label for risk in counted if risk.kind.ratio]):
            raise InputError(
                f"a promise on average needs a risk that only falls or only rises with the threshold, but {ratios[0]} "
                "is a rate among the accepted, which does both; promise it with a probability"
            )
        may = values if only is None else values[predictions.facts.prediction.cpu().numpy() == only]
        return counted, safe_threshold(may, counted, None if delta is None else delta / share, nothing.method)

    if not per_class:
        counted, threshold = find(None, 1)
        if threshold is None:
            return replace(nothing, note=_why(values, counted, delta, nothing))
        accepted, promised = values >= threshold, tuple(risk.promised(threshold, delta) for risk in counted)
        errors = int((accepted & ~predictions.facts.correct.cpu().numpy()).sum())
        return replace(
            nothing,
            threshold=threshold,
            coverage=float(np.average(accepted, weights=predictions.weights)),
            accepted=int(accepted.sum()),
            errors=errors,
            bound=next((risk.bound for risk in promised if risk.label == "error"), None),
            risks=promised,
        )
    predicted, wrong = predictions.facts.prediction.cpu().numpy(), ~predictions.facts.correct.cpu().numpy()
    classes, by_class, empty = {}, [], []
    present = np.unique(predicted)
    for k in present.tolist():
        counted, threshold = find(k, len(present))
        n = int((predicted == k).sum())
        if threshold is None:
            classes[str(k)] = ClassThreshold(None, 0, 0, None, n)
            empty.append(class_words(predictions)[k])
            continue
        inside = (predicted == k) & (values >= threshold)
        classes[str(k)] = ClassThreshold(threshold, int(inside.sum()), int(wrong[inside].sum()), None, n)
        by_class += [risk.promised(threshold, None if delta is None else delta / len(present)) for risk in counted]
    accepted_number = sum(own.accepted for own in classes.values())
    limits = np.array([math.inf if (own := classes[str(k)].threshold) is None else own for k in present.tolist()])
    inside = values >= limits[np.searchsorted(present, predicted)]
    return replace(
        nothing,
        coverage=float(np.average(inside, weights=predictions.weights)),
        accepted=accepted_number,
        errors=sum(own.errors for own in classes.values()),
        classes=classes,
        risks=tuple(by_class),
        note=f"no threshold can promise it for predicted classes {', '.join(empty)}" if empty else "",
    )


def _why(values: Floats, counted: Sequence[Risk], delta: float | None, nothing: OperatingPoint) -> str:
    """Why there is no threshold: which risks cannot be promised even alone."""
    listed = ", ".join(risk_text(risk.label, risk.limit, risk.kind.at_least) for risk in counted[:4])
    sure = "on average" if delta is None else f"with confidence {nothing.confidence:g}"
    note = f"no threshold can promise {listed}{', ...' if len(counted) > 4 else ''} {sure} from {nothing.n} samples"
    alone = [risk.label for risk in counted if safe_threshold(values, [risk], delta, nothing.method) is None]
    if alone:
        return f"{note}: not even alone {', '.join(alone[:4])}"
    return f"{note}: each can be promised alone, but not together"


def risk_text(label: str, limit: float, at_least: bool) -> str:
    """`fpr[cat] at most 0.02`."""
    return f"{label} at {'least' if at_least else 'most'} {limit:g}"


def observed_risks(
    point: OperatingPoint, predictions: Predictions, score: Any = None, *, losses: Mapping[str, AnyArray] | None = None
) -> tuple[PromisedRisk, ...]:
    """What the promised risks are on other labelled samples.

    Args:
        point: made by `operating_point(p, risk={...})`, or loaded.
        predictions: labelled, such as those of the test split.
        score: the values that rank these samples, where the point was made on values.
        losses: the losses of these samples, where a promise was made about some.

    Returns:
        One `PromisedRisk` for each promise, with what was counted here and no bound.

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> point = confide.operating_point(p, risk={"error": 0.1, "accepted_error": 0.1})
        >>> [(risk.label, risk.rate) for risk in confide.evaluation.observed_risks(point, p)]
        [('error', 0.0), ('accepted_error', 0.0)]
    """
    from confide.metrics.view import score_values

    values = score_values(predictions, point.score if score is None else score).astype(np.float64)
    seen = []
    for risk in point.risks:
        name, _, of = risk.label.rstrip("]").partition("[")
        only = class_words(predictions).index(of) if point.classes and of else None
        limits = {name if only is not None else risk.label: risk.limit}
        (counted,) = counted_risks(predictions, values, limits, losses or {}, only)
        threshold = point.threshold if only is None else point.classes[str(only)].threshold
        seen.append(counted.promised(math.inf if threshold is None else threshold, None))
    return tuple(seen)
