"""Known or out of distribution (OOD): how well scores tell samples of known classes from those of classes the model
has never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError
from confide.evaluation.evaluate import evaluate
from confide.predictions import Predictions
from confide.records import Features
from confide.results import Curve, Evaluation, group_of
from confide.types import Floats

UNTRAINED = {"msp": "mcp", "energy": "energy", "max_logit": "max_logit", "entropy": "entropy", "margin": "margin"}
REAL_LOGITS = ("energy", "max_logit")
NAMES = {"auroc": "auroc", "aupr_success": "aupr_in", "aupr_error": "aupr_out", "fpr95": "fpr95"}
NEIGHBOUR = 50
MOST_POINTS = 200
BINS = 30

Score = Callable[[Predictions, Any], Any]
"""(predictions, features or None) -> one value per sample, high = known; a fitted trust predictor is one."""


@dataclass(frozen=True, eq=False)
class Side:
    """What the model said of one of the two sets, and features of the samples where scores need them."""

    predictions: Predictions
    features: Any = None


def ood(
    known: Side | Predictions,
    ood_set: Side | Predictions,
    *,
    name: str = "others",
    reference: Features | None = None,
    trust_predictors: Mapping[str, Score] | None = None,
    model: str = "model",
    stage: str = "raw",
    intervals: bool = True,
    seed: int = 0,
) -> Evaluation:
    """AUROC, AUPR-in (known is positive), AUPR-out (OOD is positive) and FPR95 of every score, with intervals.

    Scores: msp, energy, max_logit, entropy, margin; with features of both sides and of the training samples also
    rmd and md (to the nearest class) and knn (50th neighbour, rows of length 1); and trust predictors.

    Args:
        known: the test set; with `Side` features can be given.
        ood_set: samples of other classes; their labels do not matter.
        name: of the OOD set; measurements and curves have the group `ood=<name>`.
        reference: features and labels of the training split.
        trust_predictors: further scores by name, high = safe.
        model: the model's name in every row.
        stage: "raw", or the word of the calibrator applied.
        intervals: False for the values alone.
        seed: of the resamples.

    Returns:
        An Evaluation with the measurements, histograms and ROC curves of every score.

    Raises:
        InputError: the sets share ids or come from models with different numbers of classes.

    Example:
        >>> known = confide.Predictions([[4.0, 0.0], [0.0, 5.0], [0.0, 0.5]], [0, 1, 1], ids=["a", "b", "c"])
        >>> ood_set = confide.Predictions([[1.0, 0.0], [0.0, 2.0]], [0, 0], ids=["x", "y"])
        >>> evaluation = confide.evaluation.ood(known, ood_set, name="digits", intervals=False)
        >>> round(evaluation.value("auroc", score="msp", group="ood=digits"), 3)
        0.667
    """
    sides = tuple(side if isinstance(side, Side) else Side(side) for side in (known, ood_set))
    check_apart(sides[0].predictions, sides[1].predictions, name)
    values = all_scores(sides[0], sides[1], reference, trust_predictors or {})
    n = len(sides[0].predictions)
    is_known = torch.zeros(n + len(sides[1].predictions), dtype=torch.int64)
    is_known[:n] = 1
    # Right = known: the metrics of error detection are then those of telling OOD samples.
    ones = torch.ones_like(is_known)
    detection = Predictions.from_top1(is_known, ones, ones.double(), split=sides[0].predictions.split)
    evaluation = evaluate(detection, list(NAMES), intervals, score=values, model=model, stage=stage, seed=seed)
    group = group_of("ood", name)
    rows = [replace(m, metric=NAMES[m.metric], group=group) for m in evaluation.measurements if m.metric in NAMES]
    split = sides[0].predictions.split
    curves = [
        Curve.of(kind, columns(score[:n], score[n:]), model=model, stage=stage, split=split, group=group, score=word)
        for kind, columns in (("ood_histogram", _histogram), ("ood_roc", _roc))
        for word, score in values.items()
    ]
    return Evaluation(tuple(r for r in rows if r.score is not None), tuple(curves))


def check_apart(known: Predictions, ood_set: Predictions, name: str) -> None:
    """A sample cannot be known and out of distribution, and neither side may be empty."""
    for side, what in ((known, "test set"), (ood_set, f"OOD set '{name}'")):
        if not len(side):
            raise InputError(f"the {what} must have samples, got none")
    if known.num_classes != ood_set.num_classes:
        raise InputError(
            f"both sets must be predicted by one model, got {known.num_classes} and {ood_set.num_classes} classes"
        )
    shared = np.intersect1d(known.ids.astype(np.str_), ood_set.ids.astype(np.str_))
    if len(shared):
        raise InputError(
            f"OOD set '{name}' must not share ids with the test set, but {len(shared)} do, first {shared[0].item()!r}; "
            "drop these samples, or give the sets ids of their own"
        )


def all_scores(
    known: Side, ood_set: Side, reference: Features | None, predictors: Mapping[str, Score]
) -> dict[str, Floats]:
    """Every score that can be had, of known then OOD samples, high = known."""
    from confide import difficulty, trust

    sides = (known, ood_set)
    clipped = any(side.predictions.from_probabilities for side in sides)
    scores: dict[str, Floats] = {}
    for name, word in UNTRAINED.items():
        if not (clipped and name in REAL_LOGITS):
            fitted = trust.fit(word)
            scores[name] = _joined([fitted(side.predictions) for side in sides])
    if reference is not None:
        if any(side.features is None for side in sides):
            raise InputError("rmd, md and knn need features of both sets; give them as Side(predictions, features)")
        rows = [_rows(side.features) for side in sides]
        for word in ("rmd", "md"):
            fitted_difficulty = difficulty.fit(word, reference)
            scores[word] = _joined([-fitted_difficulty.score(part, "min").values for part in rows])
        scores["knn"] = _joined([_neighbour_distance(part, reference) for part in rows])
    for name, score in predictors.items():
        word = name if name.startswith("trust:") else f"trust:{name}"
        scores[word] = _joined([score(side.predictions, side.features) for side in sides])
    first = [word for word in ("msp", "energy", "rmd", "knn") if word in scores]
    return {word: scores[word] for word in (*first, *(w for w in scores if w not in first))}


def _rows(features: Any) -> NDArray[Any]:
    return np.asarray(features.values if isinstance(features, Features) else features)


def _joined(parts: list[Any]) -> Floats:
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])


def _neighbour_distance(rows: NDArray[Any], reference: Features) -> Floats:
    """Minus the distance to the k-th nearest training sample, all rows scaled to length 1 (Sun et al., 2022)."""
    from confide.numerics.neighbours import nearest_neighbours

    def scaled(values: NDArray[Any]) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.from_numpy(np.array(values, dtype=np.float32)), dim=1)

    points = scaled(np.asarray(reference.values))
    distances, _ = nearest_neighbours(scaled(rows), points, min(NEIGHBOUR, len(points)))
    return -np.asarray(distances[:, -1], dtype=np.float64)


def _histogram(known: Floats, unknown: Floats) -> dict[str, Floats]:
    both = np.concatenate([known, unknown])
    low, high = np.quantile(both, (0.001, 0.999))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    counts = [np.histogram(part.clip(edges[0], edges[-1]), bins=edges)[0] for part in (known, unknown)]
    return {"low": edges[:-1], "high": edges[1:], "known": counts[0], "unknown": counts[1]}


def _roc(known: Floats, unknown: Floats) -> dict[str, Floats]:
    """OOD samples let in against known ones kept, as the threshold falls; at most 200 points."""
    thresholds = np.unique(np.concatenate([known, unknown]))[::-1]
    if len(thresholds) > MOST_POINTS:
        thresholds = thresholds[np.linspace(0, len(thresholds) - 1, MOST_POINTS).round().astype(int)]
    accepted, let_in = (
        1 - np.searchsorted(np.sort(part), thresholds, side="left") / len(part) for part in (known, unknown)
    )
    return {"false_positive": np.append(0.0, let_in), "true_positive": np.append(0.0, accepted)}
