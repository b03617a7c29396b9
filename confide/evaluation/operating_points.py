"""A confidence threshold whose selective risk is promised, from finite samples, with multiplicity control."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, check_choice, check_range
from confide.evaluation.risks import candidates, promise_risks
from confide.metrics.view import metric_samples, score_name, score_values
from confide.numerics.binomial import upper_bound, wilson_interval
from confide.predictions import Predictions
from confide.results import ClassThreshold, ObservedPoint, OperatingPoint, Z
from confide.types import Floating


@dataclass(frozen=True)
class BoundedThreshold:
    """A threshold with what was seen at it: accepted samples, errors among them, and the bound on the risk."""

    threshold: float
    accepted: int
    errors: int
    bound: float


def operating_point(
    predictions: Predictions,
    risk: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
    *,
    coverage: float | None = None,
    score: Any = "msp",
    method: str = "fixed_sequence",
    per_class: bool = False,
    losses: Mapping[str, Any] | None = None,
    promise: str = "probability",
) -> OperatingPoint:
    """The threshold with the largest coverage whose selective risk is at most `risk` with that confidence.

    Valid for samples of the same distribution, if these were not used to train, calibrate or fit the score.

    Args:
        predictions: labelled, kept apart for this.
        risk: the error rate allowed among accepted samples; or several risks that must hold together, by name:
            `error`, `accepted_error` (accepted and wrong, of all), and by class `precision`, `recall` (at least so
            much), `fpr`, `fnr`, such as {"error": 0.02, "recall[cat]": 0.9}; without a class of every class, of two
            classes of class 1; and the names of `losses`.
        confidence: how sure the promise must be: over repeated calibration sets it is kept this often.
        coverage: instead of a risk: the share to accept; the risk that can be promised there is `bound`.
        score: what ranks the samples, high = safe: a word, `trust`, or n values.
        method: `fixed_sequence` tests coverages 5 %, 10 %, ... from the most confident on until one fails; `fallback`
            survives a bad head; `sgr` is the binary search of Geifman & El-Yaniv, 2017.
        per_class: one threshold per predicted class; all promises hold together (the error 1 - confidence is shared).
        losses: further losses by name, n values in [0, 1] each, whose mean among accepted samples is promised.
        promise: `probability`: kept with that confidence; or `expectation`: kept on average over calibration sets
            (conformal risk control), for risks that only rise or only fall with the threshold.

    Returns:
        An `OperatingPoint`; its `threshold` is None where nothing can be promised, and `note` then says why.

    Raises:
        InputError: neither or both of risk and coverage are given, or one lies outside (0, 1).

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> point = confide.operating_point(p, risk=0.1)
        >>> f"accept from {point.threshold:.3f}: {point.coverage:.0%}, {point.errors} errors, risk <= {point.risk:.0%}"
        'accept from 0.953: 60%, 0 errors, risk <= 10%'
    """
    metric_samples(predictions)
    predictions.need_drawn_singly("an operating point")
    if (risk is None) == (coverage is None):
        raise InputError("operating_point needs either risk= or coverage=; give one of them")
    check_range(confidence, "confidence", 0, 1, low_open=True, high_open=True)
    check_choice(method, ("fixed_sequence", "fallback", "sgr"), "method")
    check_choice(promise, ("probability", "expectation"), "promise")
    if isinstance(risk, Mapping):
        nothing = no_point(predictions, score, confidence, method if promise == "probability" else promise)
        values = score_values(predictions, score).astype(np.float64)
        return promise_risks(predictions, values, risk, replace(nothing, promise=promise), losses or {}, per_class)
    if losses or promise != "probability":
        raise InputError("losses= and promise= are of risks by name, such as risk={'fpr': 0.02}; name the risks")
    if risk is not None:
        check_range(risk, "risk", 0, 1, low_open=True, high_open=True)
    if coverage is not None:
        check_range(coverage, "coverage", 0, 1, low_open=True)
    values = score_values(predictions, score).astype(np.float64)
    wrong = ~predictions.facts.correct.cpu().numpy()

    def search(rows: NDArray[np.bool_], delta: float) -> BoundedThreshold | None:
        part, errors = values[rows], wrong[rows]
        if coverage is not None:
            return at_coverage(part, errors, coverage, delta)
        assert risk is not None
        return SEARCHES[method](part, errors, risk, delta)

    nothing = no_point(predictions, score, confidence, method if coverage is None else "coverage")
    nothing = replace(nothing, risk=risk)
    if per_class:
        return _per_class(predictions, search, nothing)
    best = search(np.ones(len(values), dtype=bool), 1 - confidence)
    if best is not None:
        return replace(nothing, coverage=best.accepted / nothing.n, **asdict(best))
    assert risk is not None  # at a coverage there always is a threshold
    return replace(nothing, note=why_nothing(values, wrong, risk, 1 - confidence, method))


def no_point(predictions: Predictions, score: Any, confidence: float, method: str) -> OperatingPoint:
    """The point of these samples before a threshold is found."""
    return OperatingPoint(
        score=score_name(score),
        threshold=None,
        coverage=0.0,
        confidence=confidence,
        n=len(predictions),
        method=method,
        num_classes=predictions.num_classes,
        class_names=predictions.class_names,
    )


def why_nothing(values: Floating, wrong: NDArray[np.bool_], risk: float, delta: float, method: str) -> str:
    """Why a search found no threshold, and which other searches would have."""
    note = f"no threshold can promise a risk of {risk:g} with confidence {1 - delta:g} from {len(values)} samples"
    least = math.ceil(math.log(delta) / math.log1p(-risk))
    if len(values) < least:
        return f"{note}: even without errors it takes {least} accepted samples"
    tested = [bounded(values, wrong, threshold, delta) for threshold in candidates(values)]
    tested = [tried for tried in tested if tried.accepted >= least]
    lowest = min(tested, key=lambda tried: tried.bound)
    if lowest.bound > risk:
        return f"{note}: of {len(tested)} coverages none shows so low a risk, the best has {counts_text(lowest)}"
    others = {word: search(values, wrong, risk, delta) for word, search in SEARCHES.items() if word != method}
    better = [f"'{word}' would accept {best.accepted / len(values):.1%}" for word, best in others.items() if best]
    if method == "fixed_sequence":
        why = f"its tests stop at the first that fails, the most confident part, with {counts_text(tested[0])}"
    else:
        why = "it shares the allowed error among its tests, and none passes with its part"
    hint = f"; {' and '.join(better)}: choose the method for other samples than these" if better else ""
    return f"{note} by '{method}': {why}{hint}"


def counts_text(tried: BoundedThreshold) -> str:
    """What was counted at a threshold, in words."""
    return f"{tried.errors} errors among {tried.accepted} accepted (risk at most {tried.bound:.3g})"


def _per_class(
    predictions: Predictions,
    search: Callable[[NDArray[np.bool_], float], BoundedThreshold | None],
    nothing: OperatingPoint,
) -> OperatingPoint:
    predicted = predictions.facts.prediction.cpu().numpy()
    present = np.unique(predicted)
    delta = (1 - nothing.confidence) / len(present)
    classes = {}
    for k in present:
        rows = predicted == k
        best, n = search(rows, delta), int(rows.sum())
        classes[str(k)] = ClassThreshold(**asdict(best), n=n) if best else ClassThreshold(None, 0, 0, None, n)
    bounds = [own.bound for own in classes.values() if own.bound is not None]
    empty = [k for k, own in classes.items() if own.threshold is None]
    accepted = sum(own.accepted for own in classes.values())
    return replace(
        nothing,
        coverage=accepted / nothing.n,
        bound=max(bounds) if bounds else None,
        accepted=accepted,
        errors=sum(own.errors for own in classes.values()),
        classes=classes,
        note=f"no threshold can promise it for predicted classes {', '.join(empty)}" if empty else "",
    )


def bounded(values: Floating, wrong: NDArray[np.bool_], threshold: float, delta: float) -> BoundedThreshold:
    """A threshold with what is seen at it, and the bound on its risk; ties are never split."""
    inside = values >= threshold
    accepted, errors = int(inside.sum()), int(wrong[inside].sum())
    return BoundedThreshold(threshold, accepted, errors, upper_bound(errors, accepted, delta))


def fixed_sequence(values: Floating, wrong: NDArray[np.bool_], risk: float, delta: float) -> BoundedThreshold | None:
    """Test each candidate at the full level, the most confident first, until one fails; keep the last success."""
    least = math.log(delta) / math.log1p(-risk)
    best = None
    for threshold in candidates(values):
        tried = bounded(values, wrong, threshold, delta)
        if tried.accepted < least:
            continue  # no outcome could certify so few, so nothing is tested here
        if tried.bound > risk:
            break
        best = tried
    return best


def fallback(values: Floating, wrong: NDArray[np.bool_], risk: float, delta: float) -> BoundedThreshold | None:
    """Share the level over the candidates; a success hands its level on. Keep the largest success."""
    thresholds = candidates(values)
    best, level = None, 0.0
    for threshold in thresholds:
        level += delta / len(thresholds)
        tried = bounded(values, wrong, threshold, level)
        if tried.bound <= risk:
            best = tried
        else:
            level = 0.0
    return best


def sgr(values: Floating, wrong: NDArray[np.bool_], risk: float, delta: float) -> BoundedThreshold | None:
    """Binary search over how many to accept, with ceil(log2 m) bounds, each at delta / ceil(log2 m)."""
    falling = np.sort(values)[::-1]
    rounds = max(1, math.ceil(math.log2(len(values))))
    low, high, best = 1, len(values), None
    for _ in range(rounds):
        middle = math.ceil((low + high) / 2)
        tried = bounded(values, wrong, float(falling[middle - 1]), delta / rounds)
        if tried.bound <= risk:
            low, best = middle, tried
        else:
            high = middle
    return best


def at_coverage(values: Floating, wrong: NDArray[np.bool_], coverage: float, delta: float) -> BoundedThreshold:
    """The threshold that accepts that share, chosen without the labels, with the bound on its risk."""
    accepted = max(math.ceil(coverage * len(values) * (1 - 1e-12) - 1e-9), 1)
    return bounded(values, wrong, float(np.sort(values)[::-1][accepted - 1]), delta)


SEARCHES: dict[str, Callable[[Floating, NDArray[np.bool_], float, float], BoundedThreshold | None]] = {
    "fixed_sequence": fixed_sequence,
    "fallback": fallback,
    "sgr": sgr,
}


def apply_operating_point(point: OperatingPoint, predictions: Predictions, score: Any = None) -> Tensor:
    """Which predictions a point accepts: score >= threshold, by predicted class where it has one for each.

    Args:
        point: made by `operating_point`, or loaded.
        predictions: of any samples, also unlabelled ones.
        score: the values that rank these samples, where the point was made on values.

    Returns:
        n booleans, on the device of the predictions.

    Raises:
        InputError: the point was made on a score given as values, and none is given here.

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> point = confide.operating_point(p, risk=0.1)
        >>> int(confide.apply_operating_point(point, p).sum())
        60
    """
    if point.score == "given" and score is None:
        raise InputError("this operating point was made on a score given as values; pass the same score= here")
    values = torch.as_tensor(score_values(predictions, point.score if score is None else score).astype(np.float64))
    device = predictions.facts.confidence.device
    # No value is at least NaN: without a threshold nothing is accepted.
    if not point.classes:
        return (values >= (math.nan if point.threshold is None else point.threshold)).to(device)
    limits = torch.full((max(predictions.num_classes, point.num_classes),), math.nan, dtype=torch.float64)
    for k, own in point.classes.items():
        if own.threshold is not None:
            limits[int(k)] = own.threshold
    return (values >= limits[predictions.facts.prediction.cpu()]).to(device)


def observed(point: OperatingPoint, predictions: Predictions, score: Any = None) -> ObservedPoint:
    """What a point does on labelled samples: the share it accepts, and the error rate among those.

    Args:
        point: made by `operating_point`, or loaded.
        predictions: labelled, such as those of the test split.
        score: the values that rank these samples, where the point was made on values.

    Returns:
        An `ObservedPoint` with coverage, risk (NaN where nothing is accepted), the number accepted and Wilson's 95 %
        interval of the risk.

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> seen = confide.evaluation.observed(confide.operating_point(p, risk=0.1), p)
        >>> seen.coverage, seen.risk, seen.accepted, round(seen.high, 3)
        (0.6, 0.0, 60, 0.06)
    """
    accepted = apply_operating_point(point, predictions, score)
    count = int(accepted.sum())
    wrong = int((accepted & ~predictions.facts.correct).sum())
    if not count:
        return ObservedPoint(0.0, math.nan, 0)
    return ObservedPoint(count / len(predictions), wrong / count, count, *wilson_interval(wrong / count, count, Z))
