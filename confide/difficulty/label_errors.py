"""Hard or mislabelled? How well each label fits the features, damaged inputs, and one verdict per sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import minimize_scalar
from torch import Tensor

from confide.checks import InputError, check_range
from confide.difficulty.base import check_features
from confide.numerics.gaussians import Gaussians, class_shares, distance_tables, fit_gaussians
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Ids, Scores
from confide.types import ClassIndices, Floats

# Does the label fit? Every sample judged by the Gaussians of all the others: posterior, suspicion, better label.

CALIBRATION_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class LabelFit:
    """Columns of length n. Posteriors are tempered so that they fit the labels as a whole."""

    self_confidence: Floats  # posterior of the label
    suspicion: Floats  # log odds of the best other class against the label; above 0 the other one fits better
    suggested: ClassIndices  # class of largest posterior
    second: ClassIndices  # runner-up
    top: Floats  # posterior of the suggested class
    runner_up: Floats
    distance: Floats  # MD to the suggested class's Gaussian
    wrong: NDArray[np.bool_]  # the label looks wrong by confident learning's rule
    temperature: float


def label_fit(
    values: Any, labels: ClassIndices, *, rounds: int = 3, shrinkage: Any = "ledoit_wolf", member_log_probs: Any = None
) -> LabelFit:
    """Posterior of every class for every sample, leave-one-out, after dropping suspects from the fit.

    Args:
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: as in `rmd`. Ledoit-Wolf by default: a posterior must hold up where samples barely outnumber columns.
        member_log_probs: out-of-fold log-probabilities `n c` of a model; averaged with the Gaussians' ones.
    """
    num_classes = int(labels.max()) + 1
    clean = np.ones(len(labels), dtype=bool)
    for _ in range(rounds):
        rows = values if clean.all() else _MaskedRows(values, clean)
        gaussians = fit_gaussians(rows, labels[clean], num_classes, shrinkage=shrinkage)
        judged = _judge(gaussians, values, labels, clean, member_log_probs)
        clean = ~judged.wrong
        # A class must not lose all its samples: without a Gaussian nothing could fit it.
        bare = np.bincount(labels[clean], minlength=num_classes) < 2
        clean |= bare[labels]
    return judged


class _MaskedRows:
    """The rows of a mask, as blocks of a fit see them."""

    def __init__(self, values: Any, mask: NDArray[np.bool_]) -> None:
        self.values, self.index = values, np.flatnonzero(mask)
        self.shape, self.dtype = (len(self.index), int(values.shape[1])), values.dtype

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.index[rows]
        return self.values[torch.as_tensor(chosen) if isinstance(self.values, Tensor) else chosen]


def _judge(gaussians: Gaussians, values: Any, labels: ClassIndices, clean: NDArray[np.bool_], model: Any) -> LabelFit:
    temperature = _temperature(gaussians, values, labels, clean)
    # Confident learning's threshold of a class: the mean posterior of it among its own samples.
    sums = np.zeros(gaussians.num_classes)
    for own, log_posterior, _ in _posteriors(gaussians, values, labels, clean, temperature, model):
        np.add.at(sums, own, np.exp(log_posterior.cpu().numpy()[np.arange(len(own)), own]))
    thresholds = sums / np.maximum(np.bincount(labels, minlength=len(sums)), 1)
    blocks = _posteriors(gaussians, values, labels, clean, temperature, model)
    parts = [_columns(log_posterior, distance, own, thresholds) for own, log_posterior, distance in blocks]
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return LabelFit(*[*columns, temperature])


def _columns(
    log_posterior: Tensor, distance: Tensor, labels: ClassIndices, thresholds: Floats
) -> tuple[NDArray[Any], ...]:
    own = torch.as_tensor(labels, device=log_posterior.device)[:, None]
    of_label = log_posterior.gather(1, own).squeeze(1)
    others = log_posterior.scatter(1, own, -torch.inf)
    top, place = log_posterior.topk(2, dim=1)
    # Confident learning: a class is a candidate where its posterior reaches its average among its own samples.
    enough = others.exp() >= torch.as_tensor(thresholds, device=others.device).to(others)
    best_other = others.max(dim=1).values
    wrong = enough.gather(1, others.argmax(dim=1, keepdim=True)).squeeze(1) & (best_other > of_label)
    chosen = distance.gather(1, place[:, :1]).squeeze(1)
    numbers = (of_label.exp(), best_other - of_label, top[:, 0].exp(), top[:, 1].exp(), chosen)
    own_posterior, suspicion, first, runner_up, nearest = (c.cpu().numpy().astype(np.float64) for c in numbers)
    suggested, second = place.cpu().numpy().T
    return own_posterior, suspicion, suggested, second, first, runner_up, nearest, wrong.cpu().numpy()


def _posteriors(
    gaussians: Gaussians, values: Any, labels: ClassIndices, clean: NDArray[np.bool_], temperature: float, model: Any
) -> Iterator[tuple[ClassIndices, Tensor, Tensor]]:
    """Labels, log-posteriors and distances by blocks: a row of the fit is left out of it, a dropped one never in it."""
    prior = torch.log(torch.as_tensor(class_shares(gaussians)))
    plain = None if clean.all() else distance_tables(gaussians, values)
    for start, table, _ in distance_tables(gaussians, values, fitted_labels=labels):
        part = slice(start, start + len(table))
        if plain is not None:
            dropped = torch.as_tensor(~clean[part], device=table.device)
            table = torch.where(dropped[:, None], next(plain)[1], table)
        raw = prior.to(table) - table.to(torch.float64) / 2
        log_posterior = torch.log_softmax(raw / temperature, dim=1)
        if model is not None:
            log_probs = torch.as_tensor(model[part], device=table.device).to(log_posterior)
            log_posterior = torch.log_softmax((log_posterior + log_probs) / 2, dim=1)
        # A posterior of exactly zero has no log odds; the floor is far below anything that matters.
        yield labels[part], log_posterior.clamp_min(-1e4), table


def _temperature(gaussians: Gaussians, values: Any, labels: ClassIndices, clean: NDArray[np.bool_]) -> float:
    """The temperature at which the left-out posteriors explain the labels best: Gaussians in many dimensions boast."""
    chosen = np.flatnonzero(clean)
    chosen = chosen[:: max(1, len(chosen) // CALIBRATION_ROWS)]
    mask = np.zeros(len(labels), dtype=bool)
    mask[chosen] = True
    distances = distance_tables(gaussians, _MaskedRows(values, mask), fitted_labels=labels[mask])
    table = torch.cat([-block.to(torch.float64).cpu() / 2 for _, block, _ in distances])
    table += torch.log(torch.as_tensor(class_shares(gaussians)))
    own = torch.as_tensor(labels[mask])
    usable = torch.isfinite(table.gather(1, own[:, None]).squeeze(1))
    if not bool(usable.any()):
        return 1.0
    table, own = table[usable].clamp_min(-1e12), own[usable]

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(table / np.exp(log_temperature), own))

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 7.0), method="bounded").x))


# Inputs that look damaged: pictures without contrast, blurred, noisy, dark or bright; texts without words.

OUTLIER = 5.0
"""Robust deviations from the median of all pictures beyond which sharpness is not of this data."""


def quality_flags(inputs: Any, n: int) -> NDArray[np.str_]:
    """A word per input: "" where nothing is wrong, else constant, blurred, noisy, dark, bright or empty."""
    flags = np.full(n, "", dtype="<U8")
    contrast, sharpness, level = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    with Progress("quality", n) as progress:
        for row in range(n):
            item = inputs[row]
            if isinstance(item, str):
                flags[row] = "" if len("".join(ch for ch in item if ch.isalnum())) > 1 else "empty"
            elif (grey := _grey(item)) is not None:
                contrast[row], sharpness[row], level[row] = _statistics(grey)
            progress.step()
    known = np.isfinite(contrast)
    if known.any():
        flags[known] = _picture_flags(contrast[known], sharpness[known], level[known])
    return flags


def _grey(item: Any) -> NDArray[np.float32] | None:
    if isinstance(item, Image.Image):
        return np.asarray(item.convert("L"), dtype=np.float32)
    array = np.asarray(item)
    if array.ndim == 3 and array.dtype == np.uint8:
        axis = 0 if array.shape[0] in (1, 3) else 2
        return np.asarray(array.mean(axis=axis, dtype=np.float32))
    return array.astype(np.float32) if array.ndim == 2 and array.dtype == np.uint8 else None


def _statistics(grey: NDArray[np.float32]) -> tuple[float, float, float]:
    """Contrast, sharpness (how much of the contrast is between neighbouring pixels) and mean level."""
    contrast = float(grey.std())
    steps = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean() if min(grey.shape) > 1 else 0.0
    return contrast, float(steps) / (contrast + 1e-6), float(grey.mean())


def _picture_flags(contrast: Floats, sharpness: Floats, level: Floats) -> NDArray[np.str_]:
    flags = np.full(len(contrast), "", dtype="<U8")
    logs = np.log(sharpness + 1e-6)
    middle = np.median(logs)
    spread = 1.4826 * np.median(np.abs(logs - middle)) + 1e-3
    flags[logs > middle + OUTLIER * spread] = "noisy"
    flags[logs < middle - OUTLIER * spread] = "blurred"
    # Black or white nearly everywhere, compared with what this data shows: sketches on white are not damaged.
    low, high = np.quantile(level, (0.01, 0.99))
    faint = contrast < 0.1 * np.median(contrast)
    flags[faint & (level <= low)] = "dark"
    flags[faint & (level >= high)] = "bright"
    flags[contrast < 2.0] = "constant"
    return flags


# Hard or mislabelled? What each sample looks like: wrong label, ambiguous, atypical, low quality, hard or typical.

VERDICTS = ("wrong label", "ambiguous", "atypical", "low quality", "hard", "typical")
ATYPICAL = 3.5
"""Robust deviations of the distance to the best class from its median beyond which no class fits."""
AMBIGUOUS = 0.25
"""Posterior of the runner-up from which two classes fit."""


@dataclass(frozen=True, eq=False)
class Verdicts:
    """One verdict per sample, with what it rests on."""

    ids: Ids
    labels: NDArray[np.int64]
    verdict: NDArray[np.str_]
    fit: LabelFit
    quality: NDArray[np.str_]
    typicality: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray[Any]]:
        """As columns of a table of scores."""
        return {
            "verdict": self.verdict,
            "suspicion": self.fit.suspicion,
            "suggested": self.fit.suggested,
            "runner_up": self.fit.second,
            "self_confidence": self.fit.self_confidence,
            "distance_deviation": self.typicality,
            "quality": self.quality,
        }

    def suspects(self) -> NDArray[np.intp]:
        """Rows whose label looks wrong, most suspicious first."""
        rows = np.flatnonzero(self.verdict == "wrong label")
        return rows[np.argsort(-self.fit.suspicion[rows], kind="stable")]


def verdicts(
    features: Any,
    labels: Any = None,
    *,
    scores: Scores | None = None,
    predictions: Predictions | None = None,
    inputs: Any = None,
    hardest: float = 0.2,
    rounds: int = 3,
    shrinkage: Any = "ledoit_wolf",
) -> Verdicts:
    """What every sample looks like, each judged by the class Gaussians of all the others.

    Args:
        features: a `Features` record, an array or a tensor `n d`.
        labels: class indices to judge; a record brings its own.
        scores: difficulty; the hardest share without another verdict is called hard.
        predictions: out-of-fold predictions of a model on these samples; averaged with the Gaussians' posteriors.
        inputs: the pictures or texts themselves, looked at for damage.
        hardest: share of samples that counts as hard.
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: of the covariance, as in `rmd`.

    Returns:
        `Verdicts`: one word per sample, the label that fits better, and how sure that is.

    Raises:
        InputError: samples of one class alone.

    Example:
        >>> import numpy as np
        >>> true = np.arange(60) % 2
        >>> rows = 8 * np.eye(2, 3)[true] + np.random.default_rng(0).normal(size=(60, 3))
        >>> labels = true.copy()
        >>> labels[5] = 1 - labels[5]  # a wrong label
        >>> verdicts = confide.difficulty.verdicts(rows, labels)
        >>> verdicts.suspects().tolist()
        [5]
    """
    check_range(hardest, "hardest", 0, 1)
    check_range(rounds, "rounds", 1)
    rows = check_features(features, labels)
    if not isinstance(rows.labels, np.ndarray):
        raise InputError("verdicts need the labels to judge, class indices")
    if len(np.unique(rows.labels)) < 2:
        raise InputError("verdicts need samples of two classes or more, got one; there is no other label to suggest")
    log_probs = None if predictions is None else _log_probs(predictions, rows.ids, int(rows.labels.max()) + 1)
    judged = label_fit(rows.values, rows.labels, rounds=rounds, shrinkage=shrinkage, member_log_probs=log_probs)
    quality = quality_flags(inputs, len(rows.labels)) if inputs is not None else np.full(len(rows.labels), "")
    deviation = _deviation(np.sqrt(judged.distance))
    hard = np.zeros(len(rows.labels), dtype=bool)
    if scores is not None:
        values = scores.of(rows.ids)
        hard = values > np.quantile(values, 1 - hardest)
    own_in_two = (judged.suggested == rows.labels) | (judged.second == rows.labels)
    verdict = np.select(
        [quality != "", deviation > ATYPICAL, judged.wrong, (judged.runner_up >= AMBIGUOUS) & own_in_two, hard],
        ["low quality", "atypical", "wrong label", "ambiguous", "hard"],
        "typical",
    )
    return Verdicts(rows.ids, rows.labels, verdict, judged, quality, deviation)


def _deviation(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = np.median(distance)
    spread = 1.4826 * float(np.median(np.abs(distance - middle)))
    return np.asarray((distance - middle) / max(spread, 1e-12))


def _log_probs(predictions: Predictions, ids: Ids, num_classes: int) -> NDArray[np.float64]:
    logits = predictions.align(ids).logits
    if logits.shape[1] < num_classes:
        raise InputError(f"predictions must have a logit for each of the {num_classes} classes, got {logits.shape[1]}")
    return np.asarray(torch.log_softmax(logits[:, :num_classes].double(), dim=1).cpu().numpy())


def with_verdicts(scores: Scores, verdicts: Verdicts) -> Scores:
    """Scores with the verdicts as further columns.

    Args:
        scores: of the same samples, in the same order.
        verdicts: theirs.

    Returns:
        The scores with the verdicts' columns, which `save` writes beside them.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> scores = confide.difficulty.score("rmd", rows, labels)
        >>> verdicts = confide.difficulty.verdicts(rows, labels, scores=scores)
        >>> sorted(confide.difficulty.with_verdicts(scores, verdicts).columns)
        ['distance_deviation', 'quality', 'runner_up', 'self_confidence', 'suggested', 'suspicion', 'verdict']
    """
    return replace(scores, columns={**scores.columns, **verdicts.columns()})
