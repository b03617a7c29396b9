"""Hard or mislabelled? What each sample looks like: wrong label, ambiguous, atypical, low quality, hard or typical."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.door import InputError, check_range
from confide.core.predictions import Predictions
from confide.core.records import Ids, Scores
from confide.difficulty.family import open_door
from confide.difficulty.label_fit import LabelFit, label_fit
from confide.difficulty.quality import quality_flags

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
        scores: difficulty; the hardest share without another verdict is called hard.
        predictions: out-of-fold predictions of a model on these samples; averaged with the Gaussians' posteriors.
        inputs: the pictures or texts themselves, looked at for damage.
        hardest: share of samples that counts as hard.
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: of the covariance, as in `rmd`.
    """
    check_range(hardest, "hardest", 0, 1)
    check_range(rounds, "rounds", 1)
    rows = open_door(features, labels)
    if not isinstance(rows.labels, np.ndarray):
        raise InputError("verdicts need the labels to judge, class indices")
    if len(np.unique(rows.labels)) < 2:
        raise InputError("verdicts need samples of two classes or more, got one; there is no other label to suggest")
    said = None if predictions is None else _log_probs(predictions, rows.ids, int(rows.labels.max()) + 1)
    found = label_fit(rows.values, rows.labels, rounds=rounds, shrinkage=shrinkage, member_log_probs=said)
    quality = quality_flags(inputs, len(rows.labels)) if inputs is not None else np.full(len(rows.labels), "")
    deviation = _deviation(np.sqrt(found.distance))
    hard = np.zeros(len(rows.labels), dtype=bool)
    if scores is not None:
        values = scores.of(rows.ids)
        hard = values > np.quantile(values, 1 - hardest)
    own_in_two = (found.suggested == rows.labels) | (found.second == rows.labels)
    verdict = np.select(
        [quality != "", deviation > ATYPICAL, found.wrong, (found.runner_up >= AMBIGUOUS) & own_in_two, hard],
        ["low quality", "atypical", "wrong label", "ambiguous", "hard"],
        "typical",
    )
    return Verdicts(rows.ids, rows.labels, verdict, found, quality, deviation)


def _deviation(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = np.median(distance)
    spread = 1.4826 * float(np.median(np.abs(distance - middle)))
    result: NDArray[np.float64] = (distance - middle) / max(spread, 1e-12)
    return result


def _log_probs(predictions: Predictions, ids: Ids, num_classes: int) -> NDArray[np.float64]:
    logits = predictions.align(ids).logits
    if logits.shape[1] < num_classes:
        raise InputError(f"predictions must have a logit for each of the {num_classes} classes, got {logits.shape[1]}")
    result: NDArray[np.float64] = torch.log_softmax(logits[:, :num_classes].double(), dim=1).cpu().numpy()
    return result


def with_verdicts(scores: Scores, found: Verdicts) -> Scores:
    """Scores with the verdicts as further columns."""
    return replace(scores, columns={**scores.columns, **found.columns()})
