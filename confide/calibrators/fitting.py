"""Fit a calibrator on held-out predictions, load one, and choose among them by a cross-validated proper score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from confide.block_sizes import CACHED_FLOAT64, rows_in
from confide.calibrators.base import CALIBRATORS, Calibrator, CalibratorSpec, predicted_classes
from confide.calibrators.confidence import (
    MAPS,
    ConfidenceCalibrator,
    TwoClassMap,
    confidence_words,
    fit_map,
    two_classes,
)
from confide.calibrators.evidence import Evidence, log_posterior, reference_of
from confide.calibrators.groups import (
    GROUPED,
    SHRINKAGE_FOLDS,
    calibrator_from_state,
    fit_groups,
    grouping,
    label_folds,
)
from confide.checks import InputError, check_choice, check_finite, check_options, check_range
from confide.facts import SMALLEST_PROBABILITY
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted
from confide.metrics.influence import Influence, spread_of
from confide.metrics.view import Design
from confide.numerics.blocks import one_thread
from confide.predictions import Predictions, feature_rows, label_doubt, need_predictions
from confide.progress import Progress
from confide.records import FeatureSource
from confide.registry import Method
from confide.results import LEVEL
from confide.types import Floats, Indices, Logits, Options


def names() -> tuple[str, ...]:
    """All words.

    Returns:
        Every word that `fit`, `choose` and `confide calibrate` take.

    Example:
        >>> "temperature" in confide.calibrators.names()
        True
    """
    return CALIBRATORS.names()


def fit(
    word: str,
    predictions: Predictions,
    *,
    features: Any = None,
    fitted: Any = None,
    opinions: Mapping[str, Predictions] | None = None,
    by: str | None = None,
    bands: int | None = None,
    shrinkage: float | None = None,
    weights: Any = None,
    prior: Any = None,
    **options: Any,
) -> Calibrator:
    """Fit the calibrator of that word on held-out predictions; a split called `test` is refused.

    Args:
        word: the method, such as `temperature`; `names()` lists them.
        predictions: of a split that was not trained on: with logits or probabilities, or confidence and correctness
            alone, of which the confidence is calibrated.
        features: of the same samples, a `Features` record or `n d` rows, for a method that looks at them.
        fitted: training samples in the space of these features: a fitted difficulty (`rmd`), `Features` of the training
            split, or a trust predictor that holds them (`trust_score`, `knn`).
        opinions: predictions of other models on the same samples, by name, for `second_opinion`.
        by: a column of the predictions: every value of it gets its own fit, drawn towards the overall one.
        bands: cut the numbers of that column into so many bands of equal size, each with its own fit.
        shrinkage: the k of a group's weight n / (n + k); left out, chosen by cross-validation.
        weights: how much each sample counts in the fit, n numbers of 0 or more or the name of a column, where the
            predictions do not carry them; only ratios matter.
        prior: shares of the classes where the calibrator will be used, where these samples were drawn by class: c
            numbers in their order or {name: number}. Every class then counts by prior / its share here. A later
            `calibrator(predictions, prior=...)` corrects from these shares to others by Bayes' formula.
        options: those of the method.

    Returns:
        A `Calibrator`: called with predictions it gives the same samples with calibrated logits; it has `save`,
        `module()` for a torch.nn.Module, and `notes` with warnings. A `GroupCalibrator` where `by` is given.

    Raises:
        InputError: predictions of the test split, without logits, without samples, or with numbers that are not finite;
            a method that looks at features, without them.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("temperature", val)
        >>> round(calibrator.temperature, 3)
        1.924
        >>> round(float(calibrator(val).facts.confidence.mean()), 3)
        0.8
    """
    method = CALIBRATORS.get(word)
    check_options(word, method.family, options, method.options)
    options = method.checked(options)
    if shrinkage is not None:
        check_range(shrinkage, "shrinkage", 0.0)
    predictions, features = counted_samples(predictions, weights, features, prior)
    if isinstance(predictions, Predictions) and predictions.outputs.only_confidence:
        return _fit_confidence(word, predictions, options, by, bands, shrinkage)
    if by is not None:
        checked_inputs(word, predictions)
    groups = grouping(predictions, by, bands)
    if groups is None:
        evidence = fit_evidence(method, predictions, features, fitted, opinions or {})
        return fit_one(method, predictions, options, evidence)
    if method.spec.wants != "nothing":
        raise InputError(
            f"calibrator '{word}' looks at {method.spec.wants} and cannot be fitted by group; leave out by"
        )
    return fit_groups(lambda part: fit_one(method, part, options), predictions, groups, shrinkage)


def counted_samples(predictions: Any, weights: Any, features: Any, prior: Any) -> tuple[Any, Any]:
    """Predictions with these weights and class shares, and their features, without the samples of weight 0."""
    if not isinstance(predictions, Predictions):
        return predictions, features  # refused where inputs are checked
    predictions = predictions.weighted(weights).weighted_by_class(prior)
    rows = predictions.weighted_rows
    if rows is None:
        return predictions, features
    if features is not None:
        features = feature_rows(predictions, features)[torch.from_numpy(rows)]
    return predictions.take(rows), features


def _fit_confidence(
    word: str,
    predictions: Predictions,
    options: Options,
    by: str | None,
    bands: int | None,
    shrinkage: float | None,
) -> ConfidenceCalibrator:
    """The fit on confidence and correctness alone."""
    predictions.need_not_test(f"calibrator '{word}'")
    predictions.facts.need("correct")
    pairs = two_classes(predictions)
    groups = grouping(pairs, by, bands)
    if groups is None:
        return ConfidenceCalibrator.of(fit_map(word, pairs, options))
    return ConfidenceCalibrator.of(fit_groups(lambda part: fit_map(word, part, options), pairs, groups, shrinkage))


def fit_one(
    method: Method[CalibratorSpec],
    predictions: Predictions,
    options: Options,
    evidence: Evidence | None = None,
    *,
    noted: bool = True,
) -> Calibrator:
    """The method's fit on all of the predictions, with everything that should be noted about it.

    Without notes where nobody reads them: in a part of a cross-validation.
    """
    logits, labels = checked_inputs(method.word, predictions)
    beside: Options = {} if evidence is None else {"evidence": evidence}
    if (weights := predictions.relative_weights) is not None:
        if "weights" not in signature(method.function).parameters:
            predictions.need_unweighted(f"calibrator '{method.word}'")
        beside["weights"] = weights
    with one_thread(), np.errstate(all="ignore"):  # what overflows is told below
        try:
            fitted = method.function(logits, labels, **beside, **options)
        except (ArithmeticError, torch.linalg.LinAlgError) as error:
            check_all_finite(logits)
            raise _out_of_range(method.word, logits, str(error)) from None
        notes = (*set_notes(method, predictions), *fitted.notes) if noted else ()
        n, num_classes = len(predictions), predictions.num_classes
        shares = tuple(predictions.class_shares().tolist())
        calibrator = Calibrator(method.word, fitted.values, num_classes, n, options, notes, prior=shares)
        if evidence is not None:
            calibrator = replace(
                calibrator,
                feature_dim=None if evidence.features is None else int(evidence.features.shape[1]),
                opinions=tuple(evidence.opinions),
                source=FeatureSource() if evidence.reference is None else evidence.reference.source,
            )
        if evidence is None and not bool(torch.isfinite(calibrator.calibrated(logits[:TRIED_ROWS])).all()):
            raise _out_of_range(method.word, logits, "calibrated logits are not finite")
        return with_argmax_note(calibrator, predictions, evidence) if noted else calibrator


TRIED_ROWS = 256
"""Rows that a fitted calibrator is tried on."""


def _out_of_range(word: str, logits: Tensor, cause: str) -> InputError:
    """One line for logits that are numbers, but too far apart to calculate with."""
    largest = float(logits.abs().max())
    cause = cause.splitlines()[0][:120]
    return InputError(
        f"calibrator '{word}' must have logits that can be multiplied and added, got values up to {largest:.3g} "
        f"({cause}); divide them all by one number"
    )


SHIFT = "shift"
"""The column that names what was done to a sample, empty where nothing was."""
FOLD_ELEMENTS = 1 << 20
"""From so many logits on, strengths are chosen on a share of the samples: what a choice needs does not grow with n."""


def fit_evidence(
    method: Method[CalibratorSpec],
    predictions: Predictions,
    features: Any,
    fitted: Any,
    opinions: Mapping[str, Predictions],
) -> Evidence | None:
    """What the method looks at beside the logits, checked; None where that is nothing."""
    wants, word = method.spec.wants, method.word
    if wants == "nothing":
        return None
    checked_inputs(word, predictions)
    if (features is None) != (fitted is None):
        missing, use = ("features", "of these samples") if features is None else ("fitted", "on the training split")
        raise InputError(f"calibrator '{word}' needs features= and fitted= together; pass {missing} {use} too")
    if wants == "features" and features is None:
        raise InputError(f"calibrator '{word}' needs features of the samples; pass features= and fitted=")
    share = max(1, -(-predictions.logits.numel() // FOLD_ELEMENTS))
    rows = None if features is None else feature_rows(predictions, features).cpu()
    return Evidence(
        rows,
        {name: log_posterior(name, other, predictions).cpu() for name, other in opinions.items()},
        None if fitted is None else reference_of(word, fitted, predictions.num_classes),
        label_folds(predictions, min(SHRINKAGE_FOLDS * share, max(2, len(predictions))), 0, renamed_alike=True),
        predictions.columns[SHIFT].astype(np.str_) if SHIFT in predictions.columns else None,
    )


def load(path: str | Path) -> Calibrator:
    """The calibrator that `save` wrote.

    Args:
        path: a .json or .safetensors file.

    Returns:
        The `Calibrator`, or the `GroupCalibrator`, as it was fitted.

    Raises:
        InputError: the file is missing, damaged, no calibrator, or of a newer confide.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> confide.calibrators.fit("temperature", val).save("calibrator.json")
        >>> round(confide.calibrators.load("calibrator.json").temperature, 3)
        1.924
    """
    return load_fitted(path, formats.CALIBRATOR, _restored)


def _restored(state: FittedState) -> Calibrator:
    # A safetensors file of version 1 has the whole record under one name.
    record = state.record.get("calibrator", state.record)
    calibrator = calibrator_from_state(FittedState(record, state.tensors))
    return ConfidenceCalibrator.of(calibrator) if record.get("of") else calibrator


def checked_inputs(word: str, predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Logits and labels on the CPU, or one clear line about what is wrong with them."""
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"calibrator '{word}' is fitted on Predictions, got {type(predictions).__name__}; "
            "wrap logits and labels: Predictions(logits, labels, split='val')"
        )
    predictions.need_not_test(f"calibrator '{word}'")
    logits = predictions.need_logits(f"calibrator '{word}'")
    if not len(predictions):
        raise InputError(f"calibrator '{word}' needs at least one prediction, got none; pass those on 'val'")
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if not CALIBRATORS.get(word).spec.finds_nan:
        check_all_finite(logits)
    return logits.cpu(), predictions.labels.cpu()


def check_all_finite(logits: Tensor) -> None:
    """Refuse NaN and infinity, by row blocks; a sum is finite if all are, and cheaper than looking at each."""
    for block in torch.split(logits, rows_in(CACHED_FLOAT64, logits.shape[1])):
        if not bool(torch.isfinite(block.sum())):
            check_finite(logits, "logits")


def set_notes(method: Method[CalibratorSpec], predictions: Predictions) -> tuple[str, ...]:
    """What a person should know about the predictions before trusting this fit."""
    n, num_classes = len(predictions), predictions.num_classes
    notes = []
    seen = torch.bincount(predictions.labels.cpu(), minlength=num_classes)
    missing = (seen == 0).nonzero().flatten().tolist()
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        notes.append(f"{len(missing)} of {num_classes} classes have no validation sample ({shown})")
    if doubt := label_doubt(predictions):
        notes.append(doubt)
    if n < num_classes:
        notes.append(f"{n} validation samples are fewer than the {num_classes} classes")
    parameters = number_of_parameters(method, num_classes)
    worth = effective_number(predictions)
    if worth < 10 * parameters:
        weighted = "" if predictions.relative_weights is None else f", worth {worth:.0f} of equal weight,"
        notes.append(
            f"{n} validation samples{weighted} are few for the {parameters} parameters of '{method.word}' "
            f"(ten a parameter would be {10 * parameters})"
        )
    if all_correct(predictions):
        notes.append("every validation prediction is right: how sure is too sure cannot be learned from them")
    if predictions.from_probabilities:
        zeros = int((predictions.logits <= math.log(SMALLEST_PROBABILITY) + 1e-4).any(dim=1).sum())
        if zeros:
            notes.append(
                f"{zeros} of {n} validation samples hold probabilities of 0, taken as {SMALLEST_PROBABILITY:g}; "
                "the fit depends on that number, so pass logits where you can"
            )
    return tuple(notes)


def number_of_parameters(method: Method[CalibratorSpec], num_classes: int) -> int:
    """How many numbers the method fits: its fact `parameters` holds (alone, per class, per pair of classes)."""
    alone, per_class, per_pair = method.spec.parameters
    return int(alone + per_class * num_classes + per_pair * num_classes**2)


def effective_number(predictions: Predictions) -> float:
    """How many samples of equal weight the predictions are worth."""
    weights = predictions.relative_weights
    return float(len(predictions) if weights is None else weights.sum() ** 2 / (weights @ weights))


def all_correct(predictions: Predictions) -> bool:
    """Whether every prediction is right; stops at the first block with an error."""
    rows = rows_in(CACHED_FLOAT64, 4 * predictions.num_classes)
    blocks = zip(predictions.logits.split(rows), predictions.labels.split(rows), strict=True)
    return all(bool((predicted_classes(logits) == labels).all()) for logits, labels in blocks)


def with_argmax_note(calibrator: Calibrator, predictions: Predictions, evidence: Evidence | None = None) -> Calibrator:
    """The calibrator with a note where it changes predicted classes, and what that does to the accuracy."""
    if calibrator.keeps_argmax:
        return calibrator
    before = predicted_classes(predictions.logits.cpu())
    after = torch.empty_like(before)
    if evidence is not None:
        evidence = replace(evidence, reference=None)
    for start, block in calibrator.calibrated_blocks(predictions.logits.cpu(), torch.float64, evidence):
        after[start : start + len(block)] = predicted_classes(block)
    changed = int((before != after).sum())
    if not changed:
        return calibrator
    labels = predictions.labels.cpu()
    gain = float(np.average((after == labels).double() - (before == labels).double(), weights=predictions.weights))
    note = (
        f"the predicted class changes on {changed} of {len(predictions)} validation samples; "
        f"accuracy there {'rises' if gain > 0 else 'falls' if gain < 0 else 'stays'}"
        + (f" by {100 * abs(gain):.2f} points" if gain else "")
    )
    return replace(calibrator, notes=(*calibrator.notes, note))


# Which calibrator, if any: cross-validated on the validation predictions by a proper score.

DEFAULT_CANDIDATES = ("temperature", "ensemble_temperature", "vector", "dirichlet", "beta", "isotonic", "spline")
"""Tried unless words are given: not those that need n well above c^2 (matrix) or refuse to answer (Meta-Cal)."""
NONE = "none"
"""The candidate that calibrates nothing."""


@dataclass(frozen=True)
class Candidate:
    """A calibrator's held-out score; `difference` is to no calibration, negative is better, `p_value` two-sided."""

    word: str
    score: float
    difference: float
    low: float
    high: float
    p_value: float
    accuracy: float
    changed: int
    """Held-out samples whose predicted class it changes."""
    reordered: int
    """Held-out samples whose order of classes it changes below the first."""


@dataclass(frozen=True)
class Choice:
    """The best candidate by held-out score, its fit on all validation samples, and what a person should know.

    Called with predictions it calibrates them; where `word` is `none` they come back as they are, and `calibrator` is
    a temperature of 1.
    """

    score: str
    candidates: tuple[Candidate, ...]
    word: str
    calibrator: Calibrator
    warnings: tuple[str, ...]
    failed: Mapping[str, str]
    n: int

    def __call__(
        self,
        predictions: Predictions,
        features: Any = None,
        opinions: Mapping[str, Predictions] | None = None,
        *,
        prior: Any = None,
    ) -> Predictions:
        if self.word == NONE and prior is None:
            return predictions
        return self.calibrator(predictions, features, opinions, prior=prior)

    def candidate(self, word: str) -> Candidate:
        """The candidate of that word."""
        return next(c for c in self.candidates if c.word == word)


def choose(
    predictions: Predictions,
    words: Sequence[str] | None = None,
    *,
    score: str = "nll",
    folds: int = 5,
    seed: int = 0,
    by: str | None = None,
    bands: int | None = None,
    may_decline: bool = True,
    features: Any = None,
    fitted: Any = None,
    opinions: Mapping[str, Predictions] | None = None,
    weights: Any = None,
    prior: Any = None,
    options: Mapping[str, Options] | None = None,
) -> Choice:
    """The calibrator with the best cross-validated score, `none` among them.

    Args:
        predictions: held-out ones, as for `fit`; every candidate is fitted on the other folds and scored on its own.
        words: the candidates; by default the methods that do well at most sizes, or, for confidence and correctness
            alone, those that map a confidence.
        score: `nll` or `brier`, both proper; of the confidence where no more is known.
        folds: parts of the cross-validation, balanced within labels. The strength of a Dirichlet pull is searched once,
            on all samples, not once for every part.
        seed: of the parts.
        by: column for calibration by group.
        bands: cut that column's numbers into so many bands.
        may_decline: whether `none` may be the choice; if not, the best calibrator is taken and a warning says so.
        features: of the same samples, for candidates that look at them; as in `fit`.
        fitted: training samples in their space; as in `fit`.
        opinions: predictions of other models on the same samples; as in `fit`.
        weights: how much each sample counts, in fits and scores; as in `fit`.
        prior: shares of the classes where the calibrator will be used; as in `fit`.
        options: of a candidate, by its word.

    Returns:
        A `Choice`: `word`, the `calibrator` fitted on all samples (a temperature of 1 where `none` is best), and
        every candidate with its score. Called with predictions it calibrates them.

    Raises:
        InputError: too few predictions for the folds, or what `fit` refuses.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> choice = confide.calibrators.choose(val, ["temperature", "vector"])
        >>> choice.word
        'temperature'
        >>> [(c.word, round(c.score, 2)) for c in choice.candidates]
        [('none', 0.84), ('temperature', 0.7), ('vector', 0.73)]
    """
    check_choice(score, ("nll", "brier"), "score")
    check_range(folds, "folds", 2)
    need_predictions(predictions, "choosing a calibrator")
    predictions, features = counted_samples(predictions, weights, features, prior)
    only_confidence = predictions.outputs.only_confidence
    if words is None:
        words = confidence_words() if only_confidence else DEFAULT_CANDIDATES
    for word in words:
        CALIBRATORS.get(word)
    predictions.need_not_test("a calibrator")
    if not only_confidence:
        predictions.need_logits("a calibrator")
    grouping(predictions, by, bands)
    if len(predictions) < 2 * folds:
        raise InputError(
            f"{folds}-fold cross-validation needs at least {2 * folds} predictions, got {len(predictions)}"
        )
    if predictions.clusters is not None and not predictions.clusters.any():
        raise InputError(
            f"cross-validation leaves out what was drawn as one, but all {len(predictions):,} predictions lie in one "
            f"'{predictions.unit}'; give several, or fit one method"
        )
    plain = HeldOutScores.of(predictions, score, None)
    order = None if only_confidence else class_orders(predictions.logits)
    candidates, failed, whole = [plain.candidate(NONE, plain)], {}, {}
    common = {"by": by, "bands": bands, "features": features, "fitted": fitted, "opinions": opinions}
    with Progress("calibrate", len(words) * folds) as progress:
        for word in dict.fromkeys(words):
            try:
                own = {**common, **(options or {}).get(word, {})}
                if CALIBRATORS.get(word).spec.settled is not None and by is None and not only_confidence:
                    whole[word] = fit(word, predictions, **own)
                refit = _refit(word, predictions, own, whole.get(word))
                held = held_out_scores(refit, predictions, folds, seed, score, progress, order)
            except InputError as error:
                failed[word] = str(error)
                continue
            candidates.append(held.candidate(word, plain))
    allowed = candidates if may_decline else candidates[1:]
    if not allowed:
        raise InputError(f"no calibrator could be fitted: {'; '.join(failed.values())}")
    best = min(allowed, key=lambda c: c.score)
    warnings = choice_warnings(best, predictions, score)
    if best.word == NONE:
        calibrator = identity(predictions, warnings)
    else:
        own = {**common, **(options or {}).get(best.word, {})}
        calibrator = whole.get(best.word) or fit(best.word, predictions, **own)
    warnings = (*warnings, *calibrator.notes)
    return Choice(
        score, tuple(candidates), best.word, calibrator, tuple(dict.fromkeys(warnings)), failed, len(predictions)
    )


def identity(predictions: Predictions, notes: tuple[str, ...]) -> Calibrator:
    """The calibrator that changes nothing: a temperature of 1."""
    values = {"temperature": torch.tensor(1.0, dtype=torch.float64)}
    if predictions.outputs.only_confidence:
        values["smallest"] = torch.tensor(SMALLEST_PROBABILITY, dtype=torch.float64)
        return ConfidenceCalibrator.of(TwoClassMap("temperature", values, 2, len(predictions), {}, notes))
    shares = tuple(predictions.class_shares().tolist())
    return Calibrator("temperature", values, predictions.num_classes, len(predictions), {}, notes, prior=shares)


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Held-out scores and correctness of every sample, its predicted class, and whether its classes stay in order;
    how the samples were drawn.
    """

    scores: Floats
    correct: NDArray[np.bool_]
    first: NDArray[np.int64]
    in_order: NDArray[np.bool_]
    design: Design

    @classmethod
    def of(cls, predictions: Predictions, score: str, order: Tensor | None) -> HeldOutScores:
        """Args:
        order: the classes of every sample from the likeliest on, before calibration; None where none are known.
        """
        facts, n = predictions.facts, len(predictions)
        design = Design(predictions.weights, clusters=predictions.clusters)
        if predictions.outputs.only_confidence:
            # No class can change, nor an order of classes.
            scores = facts.need(f"confidence_{score}").double().cpu().numpy()
            return cls(scores, facts.correct.cpu().numpy(), np.zeros(n, np.int64), np.ones(n, bool), design)
        return cls(
            facts.need(score).double().cpu().numpy(),
            facts.correct.cpu().numpy(),
            facts.prediction.cpu().numpy(),
            np.ones(n, bool) if order is None else stays_in_order(predictions.logits.cpu(), order),
            design,
        )

    def candidate(self, word: str, plain: HeldOutScores) -> Candidate:
        """The row of the table."""
        difference, weights = self.scores - plain.scores, self.design.weights
        mean = float(np.average(difference, weights=weights))
        spread = spread_of(Influence(difference - mean), self.design)
        error, freedom = math.sqrt(spread.variance), spread.freedom
        p_value = 1.0 if error == 0 else float(2 * stats.t.sf(abs(mean) / error, freedom))
        width = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
        changed = self.first != plain.first
        reordered = int((~self.in_order & ~changed).sum())
        accuracy = float(np.average(self.correct, weights=weights))
        return Candidate(
            word,
            float(np.average(self.scores, weights=weights)),
            mean,
            mean - width,
            mean + width,
            p_value,
            accuracy,
            int(changed.sum()),
            reordered,
        )


def class_orders(logits: Logits) -> Tensor:
    """The classes of every row from the likeliest on, equal ones by their number, in as few bits as hold them."""
    order: Tensor = logits.cpu().argsort(dim=1, descending=True, stable=True)
    return order.to(torch.int16 if logits.shape[1] < 1 << 15 else torch.int32)


def stays_in_order(logits: Logits, order: Tensor) -> NDArray[np.bool_]:
    """Whether each row's classes are still in that order: sorting them anew would take many times as long."""
    falling = logits.gather(1, order.long())
    after, before = falling[:, 1:], falling[:, :-1]
    in_order: Tensor = ((after < before) | ((after == before) & (order[:, 1:] > order[:, :-1]))).all(dim=1)
    return np.asarray(in_order.numpy())


Refit = Callable[[Indices, Indices], Predictions]
"""(rows to fit on, rows to calibrate) -> the latter, calibrated."""


def _refit(word: str, predictions: Predictions, options: Options, whole: Calibrator | None = None) -> Refit:
    """How a method is fitted on some rows and applied to others; what it looks at beside logits is matched once, and
    what it searches for is that of the fit on the whole: one number for thousands of samples.
    """
    method = CALIBRATORS.get(word)
    names = ("features", "fitted", "opinions")
    beside, own = {n: options[n] for n in names}, {k: v for k, v in options.items() if k not in names}
    evidence = fit_evidence(method, predictions, beside["features"], beside["fitted"], beside["opinions"] or {})
    if own["by"] is not None or predictions.outputs.only_confidence:
        return lambda train, held: fit(word, predictions.take(train), **own)(predictions.take(held))
    own = {k: v for k, v in own.items() if k not in GROUPED}
    if evidence is None:
        settled = None if whole is None or method.spec.settled is None else partial(method.spec.settled, whole.values)

        def refit_logits(train: Indices, held: Indices) -> Predictions:
            settings = method.checked({**({} if settled is None else settled(len(train))), **own})
            return fit_one(method, predictions.take(train), settings, noted=False)(predictions.take(held))

        return refit_logits
    known = evidence
    settings = method.checked(own)

    def refit(train: Indices, held: Indices) -> Predictions:
        calibrator = fit_one(method, predictions.take(train), settings, known.take(train), noted=False)
        part = predictions.take(held)
        return part.with_logits(calibrator.calibrated(part.logits, known.take(held)), real=False)

    return refit


def held_out_scores(
    refit: Refit,
    predictions: Predictions,
    folds: int,
    seed: int,
    score: str,
    progress: Progress,
    order: Tensor | None,
) -> HeldOutScores:
    """What the calibrator gives to samples that it was not fitted on."""
    fold = label_folds(predictions, folds, seed)
    parts: list[tuple[Indices, HeldOutScores]] = []
    for k in range(folds):
        rows = np.flatnonzero(fold == k)
        own = None if order is None else order[torch.from_numpy(rows)]
        parts.append((rows, HeldOutScores.of(refit(np.flatnonzero(fold != k), rows), score, own)))
        progress.step(1)
    back = np.argsort(np.concatenate([rows for rows, _ in parts]))

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for _, part in parts])[back]

    parts_of = {name: joined(name) for name in ("scores", "correct", "first", "in_order")}
    return HeldOutScores(**parts_of, design=Design(predictions.weights, clusters=predictions.clusters))


def choice_warnings(best: Candidate, predictions: Predictions, score: str) -> tuple[str, ...]:
    """When not to trust the choice: no better than none, too few samples, other classes or another order."""
    if best.word == NONE:
        return (f"no calibrator improves the held-out {score}: the predictions stay as they are",)
    n, warnings = len(predictions), []
    if best.p_value >= LEVEL or best.difference >= 0:
        warnings.append(
            f"calibration does not help for certain: '{best.word}' changes the held-out {score} by "
            f"{best.difference:+.4g} (95 % {best.low:+.4g} to {best.high:+.4g}, p = {best.p_value:.2g})"
        )
    if best.changed:
        warnings.append(f"'{best.word}' changes the predicted class of {best.changed} of {n} held-out samples")
    if best.reordered:
        warnings.append(
            f"'{best.word}' changes the order of classes behind the first in {best.reordered} of {n} held-out samples"
        )
    if predictions.outputs.only_confidence:
        parameters = MAPS[best.word].parameters
    else:
        parameters = number_of_parameters(CALIBRATORS.get(best.word), predictions.num_classes)
    if effective_number(predictions) < 10 * parameters:
        warnings.append(f"{n} validation samples are few for the {parameters} parameters of '{best.word}'")
    return tuple(warnings)
