"""Which calibrator, if any: cross-validated on the validation predictions by a proper score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from confide.calibrators.calibrator import CALIBRATORS, Calibrator
from confide.calibrators.family import fit, number_of_parameters
from confide.calibrators.groups import folds_of, grouping
from confide.core.door import InputError, check_choice, check_range
from confide.core.predictions import Predictions
from confide.core.progress import Progress

USUAL = ("temperature", "ensemble_temperature", "vector", "dirichlet", "beta", "isotonic", "spline")
"""Tried unless words are given: not those that need n well above c^2 (matrix) or refuse to answer (Meta-Cal)."""
LEVEL = 0.05
Vector = NDArray[np.float64]


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
    """The best candidate by held-out score, its fit on all validation samples, and what a person should know."""

    score: str
    candidates: tuple[Candidate, ...]
    word: str
    calibrator: Calibrator | None
    warnings: tuple[str, ...]
    failed: Mapping[str, str]
    n: int

    def candidate(self, word: str) -> Candidate:
        """The candidate of that word."""
        return next(c for c in self.candidates if c.word == word)


def choose(
    predictions: Predictions,
    words: Sequence[str] = USUAL,
    *,
    score: str = "nll",
    folds: int = 5,
    seed: int = 0,
    by: str | None = None,
    bands: int | None = None,
    may_decline: bool = True,
) -> Choice:
    """The calibrator with the best cross-validated score, `none` among them.

    Args:
        score: `nll` or `brier`, both proper.
        folds: parts of the cross-validation, balanced within labels.
        seed: of the parts.
        by: column for calibration by group.
        bands: cut that column's numbers into so many bands.
        may_decline: whether `none` may be the choice; if not, the best calibrator is taken and a warning says so.
    """
    check_choice(score, ("nll", "brier"), "score")
    check_range(folds, "folds", 2)
    for word in words:
        CALIBRATORS.get(word)
    predictions.need_not_test("a calibrator")
    predictions.need_logits("a calibrator")
    grouping(predictions, by, bands)
    if len(predictions) < 2 * folds:
        raise InputError(
            f"{folds}-fold cross-validation needs at least {2 * folds} predictions, got {len(predictions)}"
        )
    plain = Held.of(predictions, score)
    candidates, failed = [plain.candidate("none", plain)], {}
    with Progress("calibrate", len(words) * folds) as progress:
        for word in dict.fromkeys(words):
            try:
                held = held_out(word, predictions, folds, seed, {"by": by, "bands": bands}, score, progress)
            except InputError as error:
                failed[word] = str(error)
                continue
            candidates.append(held.candidate(word, plain))
    allowed = candidates if may_decline else candidates[1:]
    if not allowed:
        raise InputError(f"no calibrator could be fitted: {'; '.join(failed.values())}")
    best = min(allowed, key=lambda c: c.score)
    calibrator = None if best.word == "none" else fit(best.word, predictions, by=by, bands=bands)
    warnings = (*choice_warnings(best, predictions, score), *(calibrator.notes if calibrator else ()))
    return Choice(
        score, tuple(candidates), best.word, calibrator, tuple(dict.fromkeys(warnings)), failed, len(predictions)
    )


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out scores, correctness and order of classes of every sample."""

    scores: Vector
    correct: NDArray[np.bool_]
    first: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, predictions: Predictions, score: str) -> Held:
        facts = predictions.facts
        order = predictions.logits.argsort(dim=1, descending=True, stable=True).cpu().numpy()
        return cls(
            facts.need(score).double().cpu().numpy(),
            facts.correct.cpu().numpy(),
            facts.prediction.cpu().numpy(),
            # A short sum stands for the whole order: keeping n x c for every fold would not fit.
            (order * np.arange(1, order.shape[1] + 1)).sum(axis=1),
        )

    def candidate(self, word: str, plain: Held) -> Candidate:
        """The row of the table."""
        difference = self.scores - plain.scores
        mean, n = float(difference.mean()), len(difference)
        error = float(difference.std(ddof=1)) / np.sqrt(n)
        p_value = 1.0 if error == 0 else float(2 * stats.t.sf(abs(mean) / error, n - 1))
        width = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
        changed = self.first != plain.first
        reordered = int(((self.order != plain.order) & ~changed).sum())
        accuracy = float(self.correct.mean())
        return Candidate(
            word,
            float(self.scores.mean()),
            mean,
            mean - width,
            mean + width,
            p_value,
            accuracy,
            int(changed.sum()),
            reordered,
        )


def held_out(
    word: str,
    predictions: Predictions,
    folds: int,
    seed: int,
    groups: Mapping[str, Any],
    score: str,
    progress: Progress,
) -> Held:
    """What the calibrator gives to samples that it was not fitted on."""
    fold = folds_of(predictions, folds, seed)
    parts: list[tuple[NDArray[np.int64], Held]] = []
    for k in range(folds):
        rows = np.flatnonzero(fold == k)
        calibrator = fit(word, predictions.take(fold != k), **groups)
        parts.append((rows, Held.of(calibrator(predictions.take(rows)), score)))
        progress.step(1, word)
    back = np.argsort(np.concatenate([rows for rows, _ in parts]))

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for _, part in parts])[back]

    return Held(joined("scores"), joined("correct"), joined("first"), joined("order"))


def choice_warnings(best: Candidate, predictions: Predictions, score: str) -> tuple[str, ...]:
    """When not to trust the choice: no better than none, too few samples, other classes or another order."""
    if best.word == "none":
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
    parameters = number_of_parameters(CALIBRATORS.get(best.word), predictions.num_classes)
    if n < 10 * parameters:
        warnings.append(f"{n} validation samples are few for the {parameters} parameters of '{best.word}'")
    return tuple(warnings)
