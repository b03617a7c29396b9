"""A confidence threshold whose selective risk is promised, from finite samples, with multiplicity control."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, check_choice, check_range, known_keywords
from confide.evaluation.evaluate import values_of_rows
from confide.evaluation.risks import candidates, promise_risks
from confide.metrics.influence import Influence, rate_interval, spread_of
from confide.metrics.view import Design, metric_samples, score_name, score_values
from confide.numerics.binomial import upper_bound, weighted_mean_p, weighted_upper_bound, wilson_interval
from confide.predictions import Predictions, label_doubt, need_predictions
from confide.results import ClassThreshold, ObservedPoint, OperatingPoint, Z
from confide.types import AnyArray, Flags, Floats


@dataclass(frozen=True)
class BoundedThreshold:
    """A threshold with what was seen at it: accepted samples, errors among them, and the bound on the risk."""

    threshold: float
    accepted: int
    errors: int
    bound: float


@known_keywords
def operating_point(
    predictions: Predictions,
    risk: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
    *,
    coverage: float | None = None,
    score: Any = "msp",
    method: str = "fixed_sequence",
    per_class: bool = False,
    losses: Mapping[str, AnyArray] | None = None,
    promise: str = "probability",
    weights: Any = None,
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
        weights: how much each sample counts, n numbers or the name of a column, where the predictions do not carry
            them. Weighted rates have no exact law: they are promised by a test of bounded means, which takes more
            samples and supposes that no sample weighs more than the heaviest of these.

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
    if doubt := label_doubt(predictions):
        warnings.warn(doubt, stacklevel=3)
    predictions = predictions.weighted(weights)
    if (rows := predictions.weighted_rows) is not None:
        n, predictions = len(predictions), predictions.take(rows)
        score, losses = (values_of_rows(values, rows, n) for values in (score, losses))
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
    relative = predictions.relative_weights
    of_largest = None if relative is None else relative / relative.max()
    outcomes = Outcomes(values, ~predictions.facts.correct.cpu().numpy(), of_largest)

    def search(rows: NDArray[np.bool_], delta: float) -> BoundedThreshold | None:
        part = outcomes.take(rows)
        if coverage is not None:
            return at_coverage(part, coverage, delta)
        assert risk is not None
        return SEARCHES[method](part, risk, delta)

    nothing = no_point(predictions, score, confidence, method if coverage is None else "coverage")
    nothing = replace(nothing, risk=risk)
    if per_class:
        return _per_class(predictions, values, search, nothing)
    best = search(np.ones(len(values), dtype=bool), 1 - confidence)
    if best is not None:
        return replace(nothing, coverage=outcomes.coverage(values >= best.threshold), **asdict(best))
    assert risk is not None  # at a coverage there always is a threshold
    return replace(nothing, note=why_nothing(outcomes, risk, 1 - confidence, method))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Scores of the samples, which are wrong, and weights over the largest there may be (None: all count alike)."""

    values: Floats
    wrong: Flags
    weights: Floats | None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.bool_]) -> Outcomes:
        """Some of the samples."""
        return Outcomes(self.values[rows], self.wrong[rows], None if self.weights is None else self.weights[rows])

    def coverage(self, inside: NDArray[np.bool_]) -> float:
        """The share of the samples inside."""
        return float(np.average(inside, weights=self.weights))

    def at(self, threshold: float, delta: float) -> BoundedThreshold:
        """A threshold with what is seen at it, and the bound on its risk; ties are never split."""
        inside = self.values >= threshold
        accepted, errors = int(inside.sum()), int(self.wrong[inside].sum())
        if self.weights is None:
            bound = upper_bound(errors, accepted, delta)
        else:
            bound = weighted_upper_bound(self.wrong[inside].astype(np.float64), self.weights[inside], delta)
        return BoundedThreshold(threshold, accepted, errors, bound)

    def could_pass(self, threshold: float, risk: float, delta: float) -> bool:
        """Whether the samples from a threshold on would show so low a risk if none were wrong."""
        inside = self.values >= threshold
        accepted = int(inside.sum())
        if self.weights is None:
            return accepted >= math.log(delta) / math.log1p(-risk)
        return weighted_mean_p(np.zeros(accepted), self.weights[inside], risk) <= delta


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
        largest_weight=None if predictions.relative_weights is None else float(predictions.relative_weights.max()),
    )


def why_nothing(outcomes: Outcomes, risk: float, delta: float, method: str) -> str:
    """Why a search found no threshold, and which other searches would have."""
    weighted = "" if outcomes.weights is None else "weighted "
    note = (
        f"no threshold can promise a risk of {risk:g} with confidence {1 - delta:g} from {len(outcomes)} "
        f"{weighted}samples"
    )
    able = [t for t in candidates(outcomes.values) if outcomes.could_pass(t, risk, delta)]
    if not able:
        least = math.ceil(math.log(delta) / math.log1p(-risk))
        more = f"{least} accepted samples" if not weighted else f"more than {least} accepted samples of such weights"
        return f"{note}: even without errors it takes {more}"
    tested = [outcomes.at(threshold, delta) for threshold in able]
    lowest = min(tested, key=lambda tried: tried.bound)
    if lowest.bound > risk:
        return f"{note}: of {len(tested)} coverages none shows so low a risk, the best has {counts_text(lowest)}"
    others = {word: search(outcomes, risk, delta) for word, search in SEARCHES.items() if word != method}
    better = [
        f"'{word}' would accept {outcomes.coverage(outcomes.values >= best.threshold):.1%}"
        for word, best in others.items()
        if best
    ]
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
    values: Floats,
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
    limits = np.array([math.inf if (own := classes[str(k)].threshold) is None else own for k in present])
    inside = values >= limits[np.searchsorted(present, predicted)]
    return replace(
        nothing,
        coverage=float(np.average(inside, weights=predictions.weights)),
        bound=max(bounds) if bounds else None,
        accepted=accepted,
        errors=sum(own.errors for own in classes.values()),
        classes=classes,
        note=f"no threshold can promise it for predicted classes {', '.join(empty)}" if empty else "",
    )


def fixed_sequence(outcomes: Outcomes, risk: float, delta: float) -> BoundedThreshold | None:
    """Test each candidate at the full level, the most confident first, until one fails; keep the last success."""
    best = None
    for threshold in candidates(outcomes.values):
        if not outcomes.could_pass(threshold, risk, delta):
            continue  # no outcome could certify so few, so nothing is tested here
        tried = outcomes.at(threshold, delta)
        if tried.bound > risk:
            break
        best = tried
    return best


def fallback(outcomes: Outcomes, risk: float, delta: float) -> BoundedThreshold | None:
    """Share the level over the candidates; a success hands its level on. Keep the largest success."""
    thresholds = candidates(outcomes.values)
    best, level = None, 0.0
    for threshold in thresholds:
        level += delta / len(thresholds)
        tried = outcomes.at(threshold, level)
        if tried.bound <= risk:
            best = tried
        else:
            level = 0.0
    return best


def sgr(outcomes: Outcomes, risk: float, delta: float) -> BoundedThreshold | None:
    """Binary search over how many to accept, with ceil(log2 m) bounds, each at delta / ceil(log2 m)."""
    falling = np.sort(outcomes.values)[::-1]
    rounds = max(1, math.ceil(math.log2(len(falling))))
    low, high, best = 1, len(falling), None
    for _ in range(rounds):
        middle = math.ceil((low + high) / 2)
        tried = outcomes.at(float(falling[middle - 1]), delta / rounds)
        if tried.bound <= risk:
            low, best = middle, tried
        else:
            high = middle
    return best


def at_coverage(outcomes: Outcomes, coverage: float, delta: float) -> BoundedThreshold:
    """The threshold that accepts that share, chosen without the labels, with the bound on its risk."""
    order = np.argsort(-outcomes.values, kind="stable")
    weights = np.ones(len(order)) if outcomes.weights is None else outcomes.weights[order]
    reached = np.cumsum(weights)
    place = int(np.searchsorted(reached, coverage * reached[-1] * (1 - 1e-12) - 1e-9))
    return outcomes.at(float(outcomes.values[order][place]), delta)


SEARCHES: dict[str, Callable[[Outcomes, float, float], BoundedThreshold | None]] = {
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
        InputError: the point was made for other classes, or on a score given as values, and none is given here.

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> point = confide.operating_point(p, risk=0.1)
        >>> int(confide.apply_operating_point(point, p).sum())
        60
    """
    if point.score == "given" and score is None:
        raise InputError("this operating point was made on a score given as values; pass the same score= here")
    need_predictions(predictions, "an operating point")
    if point.num_classes and (point.classes or predictions.outputs.all_classes):
        predictions.need_classes("this operating point", point.num_classes, point.class_names)
    values = torch.as_tensor(score_values(predictions, point.score if score is None else score).astype(np.float64))
    device = predictions.facts.confidence.device
    # No value is at least NaN: without a threshold nothing is accepted.
    if not point.classes:
        return (values >= (math.nan if point.threshold is None else float(point.threshold))).to(device)
    limits = torch.full((max(predictions.num_classes, point.num_classes),), math.nan, dtype=torch.float64)
    for k, own in point.classes.items():
        if own.threshold is not None:
            limits[int(k)] = float(own.threshold)
    return (values >= limits[predictions.facts.prediction.cpu()]).to(device)


def observed(point: OperatingPoint, predictions: Predictions, score: Any = None) -> ObservedPoint:
    """What a point does on labelled samples: the share it accepts, and the error rate among those.

    Args:
        point: made by `operating_point`, or loaded.
        predictions: labelled, such as those of the test split.
        score: the values that rank these samples, where the point was made on values.

    Returns:
        An `ObservedPoint` with coverage, risk (NaN where nothing is accepted), both by weight, the number accepted and
        Wilson's 95 % interval of the risk.

    Example:
        >>> p = confide.Predictions([[3.0, 0.0]] * 60 + [[0.2, 0.0]] * 40, [0] * 80 + [1] * 20)
        >>> seen = confide.evaluation.observed(confide.operating_point(p, risk=0.1), p)
        >>> seen.coverage, seen.risk, seen.accepted, round(seen.high, 3)
        (0.6, 0.0, 60, 0.06)
    """
    accepted = apply_operating_point(point, predictions, score).cpu().numpy()
    weights = np.ones(len(predictions)) if predictions.weights is None else predictions.weights
    accepted &= weights > 0
    if not accepted.any():
        return ObservedPoint(0.0, math.nan, 0)
    wrong = ~predictions.facts.correct.cpu().numpy()[accepted]
    own, count = weights[accepted], int(accepted.sum())
    risk = float(np.average(wrong, weights=own))
    # Wilson's interval of as many draws as have this variance.
    spread = spread_of(Influence(wrong - risk), Design(None if predictions.relative_weights is None else own))
    draws = count if predictions.relative_weights is None else float(own.sum() ** 2 / (own @ own))
    bounds = wilson_interval(risk, count, Z) if draws == count else rate_interval(risk, spread, draws)
    return ObservedPoint(float(own.sum() / weights.sum()), risk, count, *bounds)
