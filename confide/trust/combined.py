"""A calibrated probability of being right from several signals, with the contribution of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from confide.checks import SEEDS, InputError, check_choice
from confide.numerics.logistic import Logistic, fit_logistic, platt_targets
from confide.predictions import Predictions
from confide.records import Features, Ids
from confide.registry import Interval
from confide.trust.base import TRUST, Scorer, ScorerState
from confide.trust.cross_fitting import Folds, stratified_folds
from confide.trust.distances import NeighbourDistance, class_index, relative_mahalanobis
from confide.trust.oracles import OracleScorer, energy_of, logit_of_confidence
from confide.types import FeatureRows, Flags, Floats, Indices, JsonObject, PerSample

# Gradient-boosted trees of being right on a few signals: histograms, complete trees of one depth, logistic loss.


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees as arrays `rounds nodes`: node i has children 2i+1 (signal <= threshold) and 2i+2, and each a value."""

    base: float
    signal: Indices
    threshold: Floats
    value: Floats

    def contributions(self, signals: Floats) -> tuple[Floats, float]:
        """What every signal adds to the logit, `n j`: the change of a node's value goes to the signal that split it."""
        parts = np.zeros(signals.shape)
        rows = np.arange(len(signals))
        for signal, threshold, value in zip(self.signal, self.threshold, self.value, strict=True):
            node = np.zeros(len(signals), dtype=np.int64)
            for _ in range(len(value).bit_length() - 1):  # a tree of depth k has 2^(k+1) - 1 nodes
                chosen = signal[node]
                child = 2 * node + 1 + (signals[rows, chosen] > threshold[node])
                parts[rows, chosen] += value[child] - value[node]
                node = child
        return parts, self.base

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Arrays that hold all of it."""
        return {
            "base": np.array([self.base]),
            "signal": self.signal.astype(np.float64),
            "threshold": self.threshold,
            "value": self.value,
        }

    @classmethod
    def restored(cls, arrays: dict[str, Floats]) -> Boosted:
        """The trees of a state."""
        return cls(float(arrays["base"][0]), arrays["signal"].astype(np.int64), arrays["threshold"], arrays["value"])


BOOSTED_ROUNDS = 60
BOOSTED_RATE = 0.1
BOOSTED_BINS = 64


def fit_boosted(signals: Floats, correct: Flags, penalty: float = 1.0, *, depth: int = 2) -> Boosted:
    """Newton boosting of the logistic loss with Platt targets.

    Args:
        penalty: added to the curvature of every leaf: pseudo-counts against large values.
    """
    targets = platt_targets(correct)
    mean = float(targets.mean())
    base = float(np.log(mean / (1 - mean)))
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, BOOSTED_BINS + 1)[1:-1])) for column in signals.T]
    binned = np.stack([np.searchsorted(e, c, side="left") for e, c in zip(edges, signals.T, strict=True)], axis=1)
    shape = (BOOSTED_ROUNDS, 2 ** (depth + 1) - 1)
    trees = Boosted(base, np.zeros(shape, np.int64), np.full(shape, np.inf), np.zeros(shape))
    logit = np.full(len(signals), base)
    for tree in range(BOOSTED_ROUNDS):
        probability = expit(logit)
        pull, curve = targets - probability, probability * (1 - probability)
        leaf = _grow(trees, tree, depth, binned, edges, pull, curve, penalty)
        logit += trees.value[tree, leaf]
    return trees


def _grow(
    trees: Boosted,
    tree: int,
    depth: int,
    binned: Indices,
    edges: list[Floats],
    pull: Floats,
    curve: Floats,
    penalty: float,
) -> Indices:
    """Fill one tree level by level; the leaf of every sample."""
    node = np.zeros(len(binned), dtype=np.int64)
    for level in range(depth):
        for parent in range(2**level - 1, 2 ** (level + 1) - 1):
            rows = np.flatnonzero(node == parent)
            signal, cut = _best_split(binned[rows], pull[rows], curve[rows], penalty, edges)
            trees.signal[tree, parent] = signal
            if cut >= 0:
                trees.threshold[tree, parent] = edges[signal][cut]
            right = binned[rows, signal] > cut if cut >= 0 else np.zeros(len(rows), dtype=bool)
            node[rows] = 2 * parent + 1 + right
            for child, inside in ((2 * parent + 1, rows[~right]), (2 * parent + 2, rows[right])):
                # A node without samples keeps its parent's value.
                step = BOOSTED_RATE * pull[inside].sum() / (curve[inside].sum() + penalty)
                trees.value[tree, child] = step if len(inside) else trees.value[tree, parent]
    return node


def _best_split(binned: Indices, pull: Floats, curve: Floats, penalty: float, edges: list[Floats]) -> tuple[int, int]:
    """(signal, last bin that goes left) of largest gain, bin -1 where no split helps."""
    best, split = 1e-9, (0, -1)
    for signal, cuts in enumerate(edges):
        left_pull = np.bincount(binned[:, signal], pull, BOOSTED_BINS)[: len(cuts)].cumsum()
        left_curve = np.bincount(binned[:, signal], curve, BOOSTED_BINS)[: len(cuts)].cumsum()
        right_pull, right_curve = pull.sum() - left_pull, curve.sum() - left_curve
        gain = (
            left_pull**2 / (left_curve + penalty)
            + right_pull**2 / (right_curve + penalty)
            - pull.sum() ** 2 / (curve.sum() + penalty)
        )
        if len(gain) and gain.max() > best:
            best, split = float(gain.max()), (signal, int(gain.argmax()))
    return split


COMPARED_SAMPLES = 200


def shared_samples(ids: Ids, rows: Any, other_ids: Ids, other_rows: Any) -> int:
    """How many samples have an id on the other side too, 0 unless most of those looked at have the same row there.

    Ids alone tell little where they count places: sample 3 of one split is not sample 3 of another.
    """
    if ids.dtype.kind != other_ids.dtype.kind:
        ids, other_ids = ids.astype(np.str_), other_ids.astype(np.str_)
    shared, here, there = np.intersect1d(ids, other_ids, return_indices=True)
    if not len(shared):
        return 0
    chosen = np.linspace(0, len(shared) - 1, min(COMPARED_SAMPLES, len(shared))).astype(np.intp)
    first, second = (
        np.asarray(values[np.sort(at[chosen])], dtype=np.float64)[np.argsort(np.argsort(at[chosen]))]
        for values, at in ((rows, here), (other_rows, there))
    )
    if first.shape[1:] != second.shape[1:]:
        return 0
    # Files may hold rows in half precision.
    same = np.isclose(first, second, rtol=1e-2, atol=1e-3 * max(float(np.abs(first).mean()), 1e-30)).all(axis=1)
    return len(shared) if same.mean() > 0.5 else 0


# The signals of the combined predictor: one column each, high = safe, with what had to be learned for them.

SIGNAL_NEIGHBOURS = 10
FACT_SIGNALS = ("confidence", "entropy", "margin", "energy")
SECOND_PREFIX = "second_"
"""Names of signals of the second opinion, in the space of another extractor, begin so."""
LEARNED_SIGNALS = {"oracle": "steep_slope", "rmd": "rmd", "trust_score": "trust_score", "neighbours": "knn"}
"""Learned signal -> the trust predictor that restores it from its state; all oracles are restored alike."""


Space = tuple[Tensor | None, Features | None, str]
"""Rows of the samples, the labelled rows to compare them with (None: the other folds), the prefix of the signals."""


@dataclass(frozen=True, eq=False)
class Signals:
    """Which columns there are: facts of the softmax, learned scorers by name, and columns of the predictions."""

    facts: tuple[str, ...]
    learned: dict[str, Scorer] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.facts, *self.learned, *self.columns)

    def __call__(self, predictions: Predictions, features: Tensor | None, second: Tensor | None) -> Floats:
        """All signals of some samples, `n j`."""
        parts = [fact_signal(name, predictions) for name in self.facts]
        for name, scorer in self.learned.items():
            rows = second if name.startswith(SECOND_PREFIX) else features
            parts.append(learned_signal(name, scorer(predictions, rows)))
        parts += [column_signal(name, predictions) for name in self.columns]
        return checked_signals(np.stack(parts, axis=1), self.names)


def fact_names(predictions: Predictions) -> tuple[str, ...]:
    """Facts that these predictions can give: energy only from real logits, all but the first only from all classes."""
    if not predictions.outputs.all_classes:
        return FACT_SIGNALS[:1]
    return FACT_SIGNALS[:3] if predictions.from_probabilities else FACT_SIGNALS


def fact_signal(name: str, predictions: Predictions) -> Floats:
    """A fact of the softmax as a signal; the confidence enters as its logit."""
    if name == "confidence":
        return logit_of_confidence(predictions).cpu().numpy()
    if name == "energy":
        return energy_of(predictions).to(torch.float64).cpu().numpy()
    values = predictions.facts.need(name).to(torch.float64).cpu().numpy()
    return -values if name == "entropy" else values


def learned_signal(name: str, values: Tensor) -> Floats:
    """A learned score as a signal: TrustScore, a ratio, enters as its logarithm."""
    column: Floats = values.to(torch.float64).cpu().numpy()
    if name.removeprefix(SECOND_PREFIX) != "trust_score":
        return column
    # Ratios beyond e^10 say no more than "on top of a training sample".
    return np.clip(np.log(np.maximum(column, 1e-12)), -10, 10)


def column_signal(name: str, predictions: Predictions) -> Floats:
    """A column of the predictions that is high where a sample is hard, turned round."""
    if name not in predictions.columns:
        raise InputError(f"the combined predictor needs the column '{name}'; add it to the predictions")
    return -np.asarray(predictions.columns[name], dtype=np.float64)


def checked_signals(values: Floats, names: tuple[str, ...]) -> Floats:
    """Refuse NaN and infinity, naming the signal."""
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"signal '{names[column]}' must be finite, got {values[row, column]} at sample {row}; leave it out"
        )
    return values


def reference_scorers(rows: Tensor, labels: NDArray[np.int64], num_classes: int, prefix: str) -> dict[str, Scorer]:
    """RMD of the predicted class, TrustScore and, of the classifier's own space, distance to neighbours."""
    scorers: dict[str, Scorer] = {
        f"{prefix}rmd": relative_mahalanobis(rows, labels, num_classes),
        f"{prefix}trust_score": class_index(rows.numpy(), labels, num_classes),
    }
    return scorers if prefix else {**scorers, "neighbours": NeighbourDistance(rows, min(SIGNAL_NEIGHBOURS, len(rows)))}


def learn_signals(
    predictions: Predictions, folds: Folds, oracle: OracleScorer | None, spaces: list[Space], columns: tuple[str, ...]
) -> tuple[Signals, Floats]:
    """Signals fitted on everything, and their honest values here: none was fitted with the fold it scores."""
    learned: dict[str, Scorer] = {}
    honest: dict[str, Floats] = {}
    if oracle is not None and oracle.out_of_fold is not None:
        # An oracle's member m was trained without fold m, and nothing was selected: its values there are honest.
        learned["oracle"], honest["oracle"] = oracle, learned_signal("oracle", oracle.out_of_fold)
    for rows, reference, prefix in spaces:
        if rows is not None:
            scorers, values = _near_signals(predictions, rows.cpu(), folds, reference, prefix)
            learned |= scorers
            honest |= values
    signals = Signals(fact_names(predictions), learned, columns)
    parts = [fact_signal(name, predictions) for name in signals.facts]
    parts += [honest[name] for name in learned]
    parts += [column_signal(name, predictions) for name in columns]
    return signals, checked_signals(np.stack(parts, axis=1), signals.names)


def _near_signals(
    predictions: Predictions, features: Tensor, folds: Folds, reference: Features | None, prefix: str
) -> tuple[dict[str, Scorer], dict[str, Floats]]:
    classes, labels = predictions.num_classes, predictions.labels.cpu().numpy()
    if reference is not None:
        # The reference holds other samples, so that nothing here was fitted with what it scores.
        rows = torch.as_tensor(np.asarray(reference.values[:]), dtype=features.dtype)
        scorers = reference_scorers(rows, np.asarray(reference.labels), classes, prefix)
        return scorers, {name: learned_signal(name, s(predictions, features)) for name, s in scorers.items()}
    honest: dict[str, Floats] = {}
    for fold in np.unique(folds):
        outside, inside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        parts = reference_scorers(features[outside], labels[outside], classes, prefix)
        for name, scorer in parts.items():
            column = honest.setdefault(name, np.empty(len(labels)))
            column[inside] = learned_signal(name, scorer(predictions.take(inside), features[inside]))
    return reference_scorers(features, labels, classes, prefix), honest


# A calibrated probability of being right from several signals, with the contribution of each.

Regression = Logistic | Boosted
REGRESSIONS: dict[str, Callable[..., Regression]] = {"logistic": fit_logistic, "boosted": fit_boosted}
REGRESSION_KINDS: dict[str, type[Logistic | Boosted]] = {"logistic": Logistic, "boosted": Boosted}
ORACLES = ("steep_slope", "tcp", "binary_cross_entropy", "binary_focal", "class_balanced", "none")


@dataclass(frozen=True, eq=False)
class Combined:
    """Signals, and the regression over them. `loss` holds the out-of-fold NLL with all signals and without each."""

    signals: Signals
    regression: Regression
    model: str
    loss: dict[str, float]
    out_of_fold: Tensor | None = field(default=None, repr=False)

    def __call__(self, predictions: Predictions, features: Tensor | None, second: Tensor | None = None) -> PerSample:
        parts, base = self.regression.contributions(self.signals(predictions, features, second))
        return torch.from_numpy(expit(parts.sum(axis=1) + base))

    def contributions(
        self, predictions: Predictions, features: Tensor | None, second: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What every signal adds to the logit of the probability of being right, sample by sample."""
        parts, base = self.regression.contributions(self.signals(predictions, features, second))
        columns = {name: torch.from_numpy(parts[:, j].copy()) for j, name in enumerate(self.signals.names)}
        return {**columns, "base": torch.full((len(parts),), base, dtype=torch.float64)}

    def state(self) -> ScorerState:
        numbers: JsonObject = {
            "model": self.model,
            "facts": list(self.signals.facts),
            "columns": list(self.signals.columns),
            "loss": self.loss,
            "learned": {},
        }
        tensors = {f"regression.{k}": torch.from_numpy(v) for k, v in self.regression.state().items()}
        for name, scorer in self.signals.learned.items():
            numbers["learned"][name], own = scorer.state()
            tensors |= {f"{name}.{k}": v for k, v in own.items()}
        return numbers, tensors


def restore_combined(numbers: JsonObject, tensors: dict[str, Tensor]) -> Combined:
    """The predictor of a saved state."""

    def under(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}

    for name in numbers["facts"]:
        check_choice(name, FACT_SIGNALS, "facts of a combined predictor")
    learned = {
        name: TRUST.get(LEARNED_SIGNALS[name.removeprefix(SECOND_PREFIX)]).spec.restore(own, under(name))
        for name, own in numbers["learned"].items()
    }
    signals = Signals(tuple(numbers["facts"]), learned, tuple(numbers["columns"]))
    arrays = {k: v.numpy() for k, v in under("regression").items()}
    return Combined(signals, REGRESSION_KINDS[numbers["model"]].restored(arrays), numbers["model"], numbers["loss"])


@TRUST.add(
    "combined",
    paper="Platt, 1999; stacking: Wolpert, 1992, doi:10.1016/S0893-6080(05)80023-1",
    corners=({"model": "boosted"}, {"oracle": "none"}, {"penalty": 100.0}),
    ranges={"penalty": Interval(0.0, low_open=True, high_open=True), "folds": Interval(2), "seed": (-SEEDS, SEEDS)},
    choices={"model": tuple(REGRESSIONS), "oracle": ORACLES},
    from_code=("reference", "second", "second_reference"),
    trained=True,
    wants="features if given",
    scale="probability",
    threshold=0.5,
    learns_errors=True,
    restore=restore_combined,
)
def combined(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    model: str = "logistic",
    oracle: str = "steep_slope",
    penalty: float = 1.0,
    folds: int = 5,
    seed: int = 0,
    columns: str = "",
    reference: Features | None = None,
    second: Any = None,
    second_reference: Features | None = None,
) -> Combined:
    """Probability of being right, sigmoid(w . s + b), s: confidence, entropy, margin, energy, oracle, RMD, neighbours.

    When: features of a pre-trained network are at hand: clearly ahead of max-softmax on CIFAR-10.
    When not: there are only logits: hardly ahead of max-softmax.

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, only the outputs are combined.
        model: `logistic` regression, or `boosted` trees, which need more errors to learn from.
        oracle: the trained oracle among the signals, or `none`.
        penalty: pseudo-counts against large weights (logistic) or leaf values (boosted).
        folds: parts for cross-fitting: no signal or weight is fitted with the fold it scores.
        seed: of the folds and the oracle.
        columns: names, with commas, of columns of the predictions that are high where a sample is hard.
        reference: features and labels of the training split for RMD, TrustScore and neighbours; without it they are
            fitted on these predictions' own features, fold by fold.
        second: features of the same samples by another extractor, one that never saw the task: RMD and TrustScore of
            the predicted class in that space join the signals as `second_rmd` and `second_trust_score`.
        second_reference: that extractor's features and labels of the training split, as `reference` is.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`:
        a probability of being right, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("combined", val, rows, oracle="none", folds=2)
        >>> values = trust(val, rows)
        >>> bool(values[val.facts.correct].mean() > values[~val.facts.correct].mean())
        True
        >>> sorted(trust.contributions(val, rows))[:3]
        ['base', 'confidence', 'energy']
    """
    _check_reference(reference, features, predictions, "reference", "features")
    _check_reference(second_reference, second, predictions, "second_reference", "second features")
    fold = stratified_folds(predictions, folds, seed)
    fitted = None if oracle == "none" else TRUST.get(oracle).function(predictions, features, folds=folds, seed=seed)
    spaces: list[Space] = [(features, reference, ""), (second, second_reference, SECOND_PREFIX)]
    column_names = tuple(name.strip() for name in columns.split(",") if name.strip())
    signals, values = learn_signals(predictions, fold, fitted, spaces, column_names)
    correct = predictions.facts.correct.cpu().numpy()
    honest = cross_fitted(values, correct, fold, model, penalty)
    loss = _losses(values, correct, fold, (model, penalty), honest, signals.names)
    regression = REGRESSIONS[model](values, correct, penalty)
    return Combined(signals, regression, model, loss, torch.from_numpy(honest))


def cross_fitted(values: Floats, correct: Flags, folds: Folds, model: str, penalty: float) -> Floats:
    """Probability of being right of every sample, by a regression fitted without its fold."""
    honest = np.empty(len(values))
    for fold in np.unique(folds):
        inside = folds == fold
        parts, base = REGRESSIONS[model](values[~inside], correct[~inside], penalty).contributions(values[inside])
        honest[inside] = expit(parts.sum(axis=1) + base)
    return honest


def negative_log_likelihood(probability: Floats, correct: Flags) -> float:
    """Mean -log of the probability given to what happened."""
    return float(-np.log(np.maximum(np.where(correct, probability, 1 - probability), 1e-300)).mean())


def _losses(
    values: Floats, correct: Flags, folds: Folds, how: tuple[str, float], honest: Floats, names: tuple[str, ...]
) -> dict[str, float]:
    """Out-of-fold NLL with all signals, and without each: what a signal is worth beside the others."""
    losses = {"all": negative_log_likelihood(honest, correct)}
    if len(names) > 1:
        for j, name in enumerate(names):
            others = np.delete(values, j, axis=1)
            losses[name] = negative_log_likelihood(cross_fitted(others, correct, folds, *how), correct)
    return losses


def _check_reference(
    reference: Features | None, features: Tensor | None, predictions: Predictions, name: str, beside: str
) -> None:
    if reference is None:
        return
    if not isinstance(reference, Features):
        raise InputError(f"{name} must be a Features record with labels, got {type(reference).__name__}")
    if features is None or reference.dim != features.shape[1]:
        got = f"no {beside}" if features is None else f"{features.shape[1]} {beside}"
        raise InputError(f"{name} has {reference.dim} features a sample, but the predictions come with {got}")
    if reference.split == "test":
        raise InputError(f"{name} must not be the test split; pass the features of 'train'")
    labels, num_classes = np.asarray(reference.labels), predictions.num_classes
    shared = shared_samples(predictions.ids, features.cpu().numpy(), reference.ids, reference.values)
    if shared:
        # A sample lies at distance 0 of itself, in the class of its label: that would give the answer away.
        raise InputError(
            f"{name} must hold other samples than the predictions, but {shared} are in both; pass the training split, "
            "or leave it out: then each fold is scored by the others"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        wrong = int(labels.min() if labels.min() < 0 else labels.max())
        raise InputError(f"{name} has label {wrong}, but there are {num_classes} classes")
