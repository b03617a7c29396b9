"""Fit prediction sets on held-out predictions: for all samples, by class, by cluster of classes, by group, weighted.

What is chosen by looking at scores (options that are None, clusters, band edges that are not given) is chosen on a
fifth of the samples, and the threshold on the rest: so the promise is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import random
from confide.calibrators.groups import DIFFICULTY, Grouping, column_of, grouping
from confide.checks import InputError, as_tensor, check_range
from confide.files import formats
from confide.files.fitted import load_fitted
from confide.numerics.blocks import one_thread
from confide.numerics.minimise import lbfgs
from confide.predictions import Predictions, class_values, class_words, label_doubt
from confide.registry import Method
from confide.sets.base import (
    BANDS,
    PURPOSE,
    SETS,
    PredictionSets,
    SetGroup,
    SetScore,
    SetSpec,
    checked_weights,
    fewest_samples,
    label_scores,
    quantile_rank,
    sets_from_state,
    summed_sizes,
    threshold_of,
)
from confide.types import Floats, Options

TUNING_FOLDS = 5
"""One of so many parts is for choosing, the others for the threshold."""
CLUSTER_QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9)


def names() -> tuple[str, ...]:
    """All words.

    Returns:
        Every word that `fit` and `confide sets` take.

    Example:
        >>> confide.sets.names()
        ('aps', 'lac', 'raps', 'saps', 'top_k')
    """
    return SETS.names()


def fit(
    word: str,
    predictions: Predictions,
    coverage: float = 0.9,
    *,
    by: str | None = None,
    bands: int | None = None,
    edges: Sequence[float] | None = None,
    clusters: int | None = None,
    weights: Any = None,
    allow_empty: bool = False,
    seed: int = 0,
    **options: Any,
) -> PredictionSets:
    """Sets that hold the true class with probability `coverage`, whatever the model is.

    Valid for samples of the same distribution, if these were not used to train or calibrate: then on average over
    calibration sets the coverage is at least the promise, and at most 1 / (n + 1) above it where no scores are equal
    and empty sets are allowed.

    Args:
        word: the score, such as `lac` (small sets) or `aps` (adaptive ones); `names()` lists them.
        predictions: labelled, of a split that was not trained on, with all probabilities.
        coverage: the promise, between 0 and 1.
        by: keep the promise within each class (`class`), each cluster of classes (`cluster`, for many classes), each
            band of the column `difficulty`, or each value of another column that is known without the label.
        bands: cut the numbers of that column into so many bands; 5 for `difficulty`.
        edges: where the bands are cut, such as quantiles of the training samples' difficulty; without them a fifth of
            the predictions is set aside to choose them.
        clusters: how many; by default half as many as a class has samples in the fifth that chooses them.
        weights: likelihood ratios of the samples under covariate shift, see `likelihood_ratios`; the sets then take
            `weights=` of the samples they are applied to.
        allow_empty: whether a set may be empty; otherwise the likeliest class is always in it.
        seed: of the draws and of the fifth.
        options: those of the method; one that is None is chosen on a fifth of the predictions.

    Returns:
        `PredictionSets`: called with predictions they give `n c` booleans; `save`, and `notes` with what could not be
        promised.

    Raises:
        InputError: a coverage outside (0, 1), predictions of the test split, without labels or without all
            probabilities.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> sets = confide.sets.fit("lac", val, coverage=0.8)
        >>> sets(val)[0].tolist()
        [True, True, False]
    """
    method = SETS.get(word)
    options = {**method.options, **method.checked(options)}
    check_range(coverage, "coverage", 0, 1, low_open=True, high_open=True)
    _check_predictions(predictions)
    if weights is None:
        predictions.need_unweighted("a fit of prediction sets without weights= (likelihood ratios)")
    if weights is not None and by is not None:
        raise InputError(f"weights make no promise by group, got by='{by}' too; leave one of them out")
    if clusters is not None and by != "cluster":
        raise InputError(f"clusters= is for by='cluster', got by={by!r}; leave it out")
    groups = _sample_groups(predictions, by, bands, edges)
    choices = [name for name in method.spec.tuned if options[name] is None]
    choices += ["the clusters"] * (by == "cluster") + ["the bands"] * isinstance(groups, int)
    rows, notes, choosing = np.ones(len(predictions), dtype=bool), [], predictions
    if choices:
        unstratified = np.zeros(len(predictions))
        rows = random.folds(predictions.ids, unstratified, TUNING_FOLDS, seed=seed, purpose="prediction sets") != 0
        choosing, chosen = predictions.take(~rows), " and ".join(choices)
        notes = [f"{len(choosing):,} of {len(predictions):,} samples chose {chosen}, the others the thresholds"]
        options |= tuned(method, options, choosing, coverage, seed)
    if doubt := label_doubt(predictions):
        notes.append(doubt)
    fitted_on = predictions.take(rows) if choices else predictions
    score = SetScore(method, options, seed)
    scores = score.of_labels(fitted_on, fitted_on.labels)
    unfilled = PredictionSets(
        word,
        float(coverage),
        predictions.num_classes,
        len(fitted_on),
        groups=(),
        by=by,
        options=options,
        allow_empty=bool(allow_empty),
        seed=seed,
        class_names=predictions.class_names,
    )
    if weights is not None:
        return _weighted(unfilled, scores, checked_weights(weights, len(predictions))[rows], notes)
    if isinstance(groups, int):
        groups = grouping(choosing, str(by), groups)
    class_groups: NDArray[np.int64] | None = None
    if by == "class":
        words, class_groups = class_words(predictions), np.arange(predictions.num_classes)
    elif by == "cluster":
        marks, class_groups = np.unique(cluster_classes(score, choosing, coverage, clusters), return_inverse=True)
        words = [f"cluster {k}" if k else "rare classes" for k in marks]
    elif groups is not None:
        words = np.unique(groups.names(fitted_on)).tolist()
    else:
        words = ["all"]
    if class_groups is not None:
        place = class_groups[fitted_on.labels.cpu().numpy()]
    elif groups is not None:
        place = np.searchsorted(words, groups.names(fitted_on))
    else:
        place = np.zeros(len(fitted_on), dtype=np.int64)
    parts = [scores[place == k] for k in range(len(words))]
    fits = [SetGroup(name, len(part), threshold_of(part, coverage)) for name, part in zip(words, parts, strict=True)]
    return replace(
        unfilled,
        groups=tuple(fits),
        class_groups=None if class_groups is None else tuple(class_groups.tolist()),
        edges=None if groups is None else groups.edges,
        notes=(*notes, *_unreachable(fits, coverage)),
    )


def load(path: str | Path) -> PredictionSets:
    """The prediction sets that `save` wrote.

    Args:
        path: a .json or .safetensors file.

    Returns:
        The `PredictionSets` as they were fitted.

    Raises:
        InputError: the file is missing, damaged, of another kind, or of a newer confide.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> confide.sets.fit("lac", val, coverage=0.8).save("sets.json")
        >>> confide.sets.load("sets.json")(val)[0].tolist()
        [True, True, False]
    """
    return load_fitted(path, formats.SETS, sets_from_state)


def _check_predictions(predictions: Predictions) -> None:
    """Labelled samples with all probabilities, not of the test split."""
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"prediction sets are fitted on Predictions, got {type(predictions).__name__}; "
            "wrap logits and labels: Predictions(logits, labels, split='val')"
        )
    predictions.need_not_test("prediction sets")
    predictions.need_labels("fitting prediction sets")
    predictions.need_drawn_singly("the coverage of prediction sets")
    class_values(predictions, PURPOSE)
    if not len(predictions):
        raise InputError("prediction sets need at least one prediction, got none; pass those on 'val'")


def _sample_groups(
    predictions: Predictions, by: str | None, bands: int | None, edges: Sequence[float] | None
) -> Grouping | int | None:
    """How samples are grouped; a number of bands where their edges are still to be chosen."""
    if by is None or by in ("class", "cluster"):
        if bands is not None or edges is not None:
            raise InputError(f"bands and edges are of a column, got by={by!r}; pass by='difficulty', or leave them out")
        return None
    column_of(predictions, by)
    if edges is not None:
        cuts = np.asarray(edges, dtype=np.float64)
        if cuts.ndim != 1 or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
            raise InputError(f"edges must be finite numbers that rise, got {edges!r:.80}; sort them")
        return Grouping(by, tuple(cuts.tolist()))
    if bands is None and by == DIFFICULTY:
        bands = BANDS
    # It also refuses columns that make no groups, before anything is computed.
    groups = grouping(predictions, by, bands)
    return groups if bands is None else bands


def _unreachable(groups: Sequence[SetGroup], coverage: float) -> list[str]:
    """What is said of groups with too few samples for a threshold."""
    short = [group for group in groups if group.threshold is None]
    if not short:
        return []
    least = fewest_samples(coverage)
    if len(groups) == 1:
        return [
            f"no threshold can promise {coverage:g} from {short[0].n:,} samples, so every set holds all classes; "
            f"it takes at least {least:,}"
        ]
    shown = ", ".join(f"{group.name} ({group.n:,})" for group in short[:5]) + (", ..." if len(short) > 5 else "")
    return [
        f"{len(short)} of {len(groups)} groups have fewer than the {least:,} samples that a promise of {coverage:g} "
        f"takes, so nothing is left out there: {shown}"
    ]


# Options that are chosen: the smallest sets on a part of its own.


def tuned(method: Method[SetSpec], options: Options, predictions: Predictions, coverage: float, seed: int) -> Options:
    """Values for the options that are None: those with the smallest sets at the promised coverage."""
    labels = predictions.labels
    tuned: dict[str, float] = {}
    if "k_reg" in method.spec.tuned and options["k_reg"] is None:
        ranks = SetScore(SETS.get("top_k"), {"randomized": False}).of_labels(predictions, labels)
        tuned["k_reg"] = int(threshold_of(ranks, coverage) or predictions.num_classes)
    grids = {name: values for name, values in method.spec.tuned.items() if options[name] is None and values}
    if not grids:
        return tuned
    candidates = [{**tuned, **dict(zip(grids, values, strict=True))} for values in product(*grids.values())]
    scores = [SetScore(method, {**options, **candidate}, seed) for candidate in candidates]
    limits = [threshold_of(own, coverage) for own in label_scores(scores, predictions, labels)]
    sizes = summed_sizes(scores, predictions, [np.inf if limit is None else limit for limit in limits])
    return candidates[int(sizes.argmin())]


# Clusters of classes.


def cluster_classes(
    score: SetScore, predictions: Predictions, coverage: float, clusters: int | None
) -> NDArray[np.int64]:
    """The cluster of every class, by the quantiles of its scores; 0 holds those that are too rare to have any.

    After Ding et al. (2023, arXiv:2306.09335). Theirs gives rare classes the threshold of all samples; here they share
    one of their own, which keeps the promise for them as a group.
    """
    from scipy.cluster.vq import kmeans2

    labels = predictions.labels.cpu().numpy()
    scores = score.of_labels(predictions, predictions.labels)
    counts = np.bincount(labels, minlength=predictions.num_classes)
    levels = sorted({*CLUSTER_QUANTILES, coverage})
    often = np.flatnonzero([quantile_rank(int(n), coverage) <= n for n in counts])
    cluster_of_class = np.zeros(predictions.num_classes, dtype=np.int64)
    if not len(often):
        return cluster_of_class
    points = np.array([np.quantile(scores[labels == k], levels) for k in often])
    number = max(1, int(counts[often].mean()) // 2) if clusters is None else clusters
    check_range(number, "clusters", 1)
    number = min(number, len(often))
    # The same start for the same data: classes in order of their scores, cut into equal parts.
    parts = np.array_split(np.argsort(points.mean(axis=1), kind="stable"), number)
    start = np.array([points[part].mean(axis=0) for part in parts])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty cluster is left out below
        _, assigned = kmeans2(points, start, minit="matrix")
    cluster_of_class[often] = 1 + np.unique(assigned, return_inverse=True)[1]
    return cluster_of_class


# Covariate shift.


def _weighted(unfilled: PredictionSets, scores: Floats, weights: Floats, notes: list[str]) -> PredictionSets:
    """Sets whose threshold depends on the weight of the sample (Tibshirani et al., 2019, arXiv:1904.06019)."""
    if not weights.sum() > 0:
        raise InputError("weights must not all be 0; give likelihood ratios, high where the new samples are")
    order = np.argsort(scores, kind="stable")
    sums = np.cumsum(weights[order])
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    notes.append(f"the weights leave {effective:,.0f} effective of {len(weights):,} samples")
    # A sample without weight of its own has the lowest limit there is.
    place = int(np.searchsorted(sums, unfilled.coverage * sums[-1]))
    state = {"scores": torch.from_numpy(scores[order]), "weights": torch.from_numpy(sums)}
    group = SetGroup("all", len(scores), float(scores[order][min(place, len(sums) - 1)]))
    return replace(unfilled, groups=(group,), weighted=state, notes=tuple(notes))


@dataclass(frozen=True, eq=False)
class ShiftWeights:
    """Likelihood ratios of new to calibration samples, of mean 1 over the calibration samples."""

    calibration: Tensor
    new: Tensor


def likelihood_ratios(calibration: Any, new: Any, *, seed: int = 0) -> ShiftWeights:
    """w(x) = P(new | x) / P(calibration | x) by logistic regression of which side a sample is from, in five folds.

    Args:
        calibration: features `n d` of the samples that sets are fitted on.
        new: features `m d` of those they are applied to; no labels.
        seed: of the folds.

    Returns:
        A `ShiftWeights`: `calibration` for `fit(..., weights=)`, `new` for the call of the sets. The promise then
        holds as far as these ratios do.

    Raises:
        InputError: features of different widths, or fewer than ten samples on a side.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(100, 2))
        >>> weights = confide.sets.likelihood_ratios(rows, rows + [1.0, 0.0])
        >>> bool(weights.calibration[rows[:, 0] > 1].mean() > weights.calibration[rows[:, 0] < -1].mean())
        True
    """
    sides = [as_tensor(side, "features").double().cpu() for side in (calibration, new)]
    if any(side.ndim != 2 or len(side) < 2 * TUNING_FOLDS for side in sides) or sides[0].shape[1] != sides[1].shape[1]:
        shapes = " and ".join(str(tuple(side.shape)) for side in sides)
        raise InputError(f"features must be n x d and m x d with ten samples or more each, got {shapes}")
    rows, is_new = torch.cat(sides), torch.cat([torch.zeros(len(sides[0])), torch.ones(len(sides[1]))]).double()
    if not bool(torch.isfinite(rows).all()):
        raise InputError("features must be finite, got NaN or infinity; drop those samples")
    spread = rows.std(dim=0)
    rows = torch.cat(
        [(rows - rows.mean(dim=0)) / torch.where(spread > 0, spread, 1.0), torch.ones(len(rows), 1)], dim=1
    )
    fold = torch.from_numpy(
        random.folds(np.arange(len(rows)), is_new.numpy(), TUNING_FOLDS, seed=seed, purpose="shift weights")
    )
    odds = torch.empty(len(rows), dtype=torch.float64)
    with one_thread():
        for k in range(TUNING_FOLDS):
            odds[fold == k] = rows[fold == k] @ _logistic(rows[fold != k], is_new[fold != k])
    ratio = torch.exp(odds.clamp(-30, 30)) * (len(sides[0]) / len(sides[1]))
    ratio = ratio / ratio[: len(sides[0])].mean()
    return ShiftWeights(ratio[: len(sides[0])], ratio[len(sides[0]) :])


def _logistic(rows: Tensor, outcome: Tensor) -> Tensor:
    """Coefficients with the smallest mean log-loss + |b|^2 / 2n."""
    n = len(rows)

    def objective(at: Tensor) -> tuple[float, Tensor]:
        odds = rows @ at
        loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, outcome)
        slope = rows.T @ (torch.sigmoid(odds) - outcome) / n
        return float(loss + at @ at / (2 * n)), slope + at / n

    return lbfgs(objective, rows.shape[1], tolerance=1e-7, change=1e-10, idle=3, iterations=200, memory=10).at
