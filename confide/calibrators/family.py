"""The family's door: fit a calibrator on held-out predictions, load one, name them all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from confide.calibrators import saving
from confide.calibrators.calibrator import BLOCK_ELEMENTS, CALIBRATORS, Calibrator, leaders
from confide.calibrators.groups import fit_groups, from_state, grouping
from confide.calibrators.threads import one_thread
from confide.core.door import InputError, check_finite, check_range
from confide.core.facts import SMALLEST_PROBABILITY
from confide.core.predictions import Predictions
from confide.core.registry import Method


def names() -> tuple[str, ...]:
    """All words."""
    return CALIBRATORS.names()


def fit(
    word: str,
    predictions: Predictions,
    *,
    by: str | None = None,
    bands: int | None = None,
    shrinkage: float | None = None,
    **options: Any,
) -> Calibrator:
    """Fit the calibrator of that word on held-out predictions; a split called `test` is refused.

    Args:
        by: a column of the predictions: every value of it gets its own fit, drawn towards the overall one.
        bands: cut the numbers of that column into so many bands of equal size, each with its own fit.
        shrinkage: the k of a group's weight n / (n + k); left out, chosen by cross-validation.
        options: those of the method.
    """
    method = CALIBRATORS.get(word)
    method.check_options(options)
    if by is not None:
        checked(word, predictions)
    groups = grouping(predictions, by, bands)
    if groups is None:
        return fit_one(method, predictions, options)
    if shrinkage is not None:
        check_range(shrinkage, "shrinkage", 0.0)
    return fit_groups(lambda part: fit_one(method, part, options), predictions, groups, shrinkage)


def fit_one(method: Method, predictions: Predictions, options: Mapping[str, Any]) -> Calibrator:
    """The method's fit on all of the predictions, with everything that should be noted about it."""
    logits, labels = checked(method.word, predictions)
    with one_thread():
        try:
            found = method.function(logits, labels, **options)
        except FloatingPointError:
            check_all_finite(logits)
            raise
        notes = (*set_notes(method, predictions), *found.notes)
        n, num_classes = len(predictions), predictions.num_classes
        return with_outcome(Calibrator(method.word, found.values, num_classes, n, options, notes), predictions)


def load(path: str | Path) -> Calibrator:
    """The calibrator that `save` wrote."""
    plain, tensors = saving.read(path)
    return from_state(plain, tensors, one_from_state) if "groups" in plain else one_from_state(plain, tensors)


def one_from_state(plain: dict[str, Any], values: dict[str, Tensor]) -> Calibrator:
    """The calibrator of a saved state without groups."""
    word = CALIBRATORS.get(plain["word"]).word
    return Calibrator(word, values, plain["num_classes"], plain["n"], plain["options"], tuple(plain["notes"]))


def checked(word: str, predictions: Predictions) -> tuple[Tensor, Tensor]:
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
    if not CALIBRATORS.get(word).facts.get("finds_nan", False):
        check_all_finite(logits)
    return logits.cpu(), predictions.labels.cpu()


def check_all_finite(logits: Tensor) -> None:
    """Refuse NaN and infinity, by row blocks; a sum is finite if all are, and cheaper than looking at each."""
    rows = max(1, BLOCK_ELEMENTS // logits.shape[1])
    for start in range(0, len(logits), rows):
        if not bool(torch.isfinite(logits[start : start + rows].sum())):
            check_finite(logits, "logits")


def set_notes(method: Method, predictions: Predictions) -> tuple[str, ...]:
    """What a person should know about the predictions before trusting this fit."""
    n, num_classes = len(predictions), predictions.num_classes
    notes = []
    seen = torch.bincount(predictions.labels.cpu(), minlength=num_classes)
    missing = (seen == 0).nonzero().flatten().tolist()
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        notes.append(f"{len(missing)} of {num_classes} classes have no validation sample ({shown})")
    if n < num_classes:
        notes.append(f"{n} validation samples are fewer than the {num_classes} classes")
    parameters = number_of_parameters(method, num_classes)
    if n < 10 * parameters:
        notes.append(
            f"{n} validation samples are few for the {parameters} parameters of '{method.word}' "
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


def number_of_parameters(method: Method, num_classes: int) -> int:
    """How many numbers the method fits: its fact `parameters` holds (alone, per class, per pair of classes)."""
    alone, per_class, per_pair = method.facts["parameters"]
    return int(alone + per_class * num_classes + per_pair * num_classes**2)


def all_correct(predictions: Predictions) -> bool:
    """Whether every prediction is right; stops at the first block with an error."""
    logits, labels = predictions.logits, predictions.labels
    rows = max(1, BLOCK_ELEMENTS // (4 * logits.shape[1]))
    return all(
        bool((leaders(logits[start : start + rows]) == labels[start : start + rows]).all())
        for start in range(0, len(labels), rows)
    )


def with_outcome(calibrator: Calibrator, predictions: Predictions) -> Calibrator:
    """The calibrator with a note where it changes predicted classes, and what that does to the accuracy."""
    if calibrator.keeps_argmax:
        return calibrator
    before = leaders(predictions.logits)
    after = torch.empty_like(before)
    for start, block in calibrator.calibrated_blocks(predictions.logits, torch.float64):
        after[start : start + len(block)] = leaders(block)
    changed = int((before != after).sum())
    if not changed:
        return calibrator
    gain = float((after == predictions.labels).double().mean() - (before == predictions.labels).double().mean())
    note = (
        f"the predicted class changes on {changed} of {len(predictions)} validation samples; "
        f"accuracy there {'rises' if gain > 0 else 'falls' if gain < 0 else 'stays'}"
        + (f" by {abs(gain):.4f}" if gain else "")
    )
    return replace(calibrator, notes=(*calibrator.notes, note))
