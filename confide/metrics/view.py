"""What metrics look at: samples of one prediction record with weights, sorted at most once per score.

A resample of the bootstrap is the same samples with other whole weights, so it needs no softmax and no sort.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.binning import mass_starts, width_edges
from confide.core.door import InputError, check_choice, check_range
from confide.core.predictions import Predictions
from confide.metrics.ordering import Floats, Ranks, Sorted, ranks_of, sort_packed, sort_with_order
from confide.metrics.scores import score_values

Key = tuple[str, int, str]


@dataclass(frozen=True, eq=False)
class BinSums:
    """Per bin of confidence, from the lowest: how many samples, their confidences, how many were correct."""

    count: Floats
    confidence: Floats
    correct: Floats


@dataclass(eq=False)
class Base:
    """The unweighted samples: per-sample facts as arrays, and each score's order once it was asked for."""

    predictions: Predictions
    resampled: bool = False  # resamples need the permutation of each sort, one evaluation does not
    rows: NDArray[np.intp] | None = None  # where these are some rows of a larger record: which
    _sorted: dict[str, Sorted] = field(default_factory=dict)
    _vectors: dict[str, NDArray[Any]] = field(default_factory=dict)
    _running: Floats | None = None
    _variance: Floats | None = None
    _held: dict[str, Any] = field(default_factory=dict)  # scores given as vectors, so that no id is used twice

    @property
    def n(self) -> int:
        return len(self.predictions)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        return np.asarray(~self.predictions.facts.correct.cpu().numpy(), dtype=np.bool_)

    def vector(self, name: str) -> NDArray[Any]:
        """A fact of every sample."""
        if name not in self._vectors:
            facts = self.predictions.facts
            values = facts.sureness() if name == "sureness" else facts.need(name).cpu().numpy()
            # Sums are in float64 either way; resamples multiply by float64 weights, which wants equal types.
            self._vectors[name] = values.astype(np.float64) if self.resampled else values
        return self._vectors[name]

    def ordered(self, score: Any) -> Sorted:
        """Samples sorted by that score."""
        key = self.key(score)
        if key not in self._sorted:
            sort = sort_with_order if self.resampled else sort_packed
            if key == "msp" and not self.resampled and self.predictions.facts.doubt is not None:
                ordered = sort(np.negative(self.predictions.facts.unsureness()), self.wrong)
                self._sorted[key] = replace(ordered, values=1.0 + ordered.values.astype(np.float64))
            else:
                self._sorted[key] = sort(score_values(self.predictions, self.cut(score)), self.wrong)
        return self._sorted[key]

    def cut(self, values: Any) -> Any:
        """What was given for every sample of the larger record, for these rows; words stay words."""
        if self.rows is None or isinstance(values, str):
            return values
        return (values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values))[self.rows]

    def key(self, score: Any) -> str:
        """A name for the score that stays its own as long as these samples live."""
        if isinstance(score, str):
            return score
        key = f"given {id(score)}"
        self._held[key] = score
        return key

    def running(self) -> Floats:
        """Sums of confidence from the most confident on."""
        if self._running is None:
            self._running = np.cumsum(self.ordered("msp").values, dtype=np.float64)
        return self._running

    def running_variance(self) -> Floats:
        """Sums of c (1 - c) from the most confident on."""
        if self._variance is None:
            spread = np.subtract(1.0, self.ordered("msp").values, dtype=np.float64)
            spread *= self.ordered("msp").values
            self._variance = np.cumsum(spread, out=spread)
        return self._variance

    def positions(self, binning: str, bins: int, closed: str) -> NDArray[np.intp]:
        """How many samples lie in the bins above each edge, from 1 down to 0: positions in the sorted order."""
        if binning == "mass":
            return self.n - mass_starts(self.n, bins)[::-1]
        values = self.ordered("msp").values
        # Confidences computed in float32 are compared in float64; those given in float32 with float32 edges.
        facts = self.predictions.facts
        edges = width_edges(bins)[1:-1]
        if facts.doubt is None:
            edges = edges.astype(facts.confidence.cpu().numpy().dtype).astype(np.float64)
        rising = values[::-1]
        below = np.searchsorted(rising, edges, side="right" if closed == "right" else "left")
        return np.concatenate(([0], (self.n - below)[::-1], [self.n]))


class View:
    """Samples with weights; every shared quantity is computed once however many metrics ask for it."""

    def __init__(self, base: Base, weights: Floats | None = None, wrong: NDArray[np.bool_] | None = None) -> None:
        """Weights in the order of the samples; `wrong` replaces the errors, from the most confident on."""
        self.base, self.weights, self.wrong = base, weights, wrong
        self.n = float(base.n if weights is None else weights.sum())
        self._ranks: dict[str, Ranks] = {}
        self._running: tuple[Floats | None, NDArray[Any], Floats] | None = None

    @property
    def predictions(self) -> Predictions:
        return self.base.predictions

    def mean(self, name: str) -> float:
        """Mean of a fact."""
        values = self.base.vector(name)
        # Not a BLAS product: its own threads would fight with those of the bootstrap.
        return float(
            values.mean(dtype=np.float64) if self.weights is None else np.einsum("i,i->", self.weights, values) / self.n
        )

    def ranks(self, score: Any) -> Ranks:
        """Accepted and wrong as the threshold on that score falls."""
        key = self.base.key(score)
        if key not in self._ranks:
            ordered = self.base.ordered(score)
            self._ranks[key] = ranks_of(ordered, self.in_order(ordered))
        return self._ranks[key]

    def in_order(self, ordered: Sorted) -> Floats | None:
        """The weights in the order of a score."""
        if self.weights is None:
            return None
        assert ordered.order is not None
        return np.asarray(self.weights[ordered.order])

    def bins(self, binning: str = "width", bins: int = 15, closed: str = "right") -> BinSums:
        """Sums per bin of confidence; equal-mass bins hold ranks floor(i * bins / n), ties in the order given."""
        check_choice(binning, ("width", "mass"), "binning")
        check_choice(closed, ("right", "left"), "closed")
        check_range(bins, "bins", 1)
        if binning == "mass" and self.weights is not None:
            return self._mass_of_resample(bins)
        at = self.base.positions(binning, bins, closed)
        weights, *others = self._cumulative()
        count = at.astype(np.float64) if weights is None else np.where(at > 0, weights[at - 1], 0.0)
        errors, confidence = (np.where(at > 0, v[at - 1], 0.0) for v in others)
        if binning == "mass":
            self._split_ties(at, errors)
        total, wrong, sure = (np.diff(v)[::-1] for v in (count, errors, confidence))
        return BinSums(total, sure, total - wrong)

    def weighted_top(self) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Confidence, error and weight of every sample, from the most confident on."""
        ordered = self.base.ordered("msp")
        weights = self.in_order(ordered)
        wrong = ordered.wrong if self.wrong is None else self.wrong
        return ordered.values.astype(np.float64), wrong, np.ones(len(wrong)) if weights is None else weights

    def top(self) -> tuple[Floats, Floats]:
        """Confidence and correctness of every sample, copies of a resample included, from the least confident on."""
        sure, wrong, weights = self.weighted_top()
        hit = (~wrong).astype(np.float64)
        if self.weights is not None:
            times = weights.astype(np.intp)
            sure, hit = np.repeat(sure, times), np.repeat(hit, times)
        return sure[::-1], hit[::-1]

    def class_columns(self) -> Iterator[tuple[Floats, Floats]]:
        """Probability and correctness of every class in turn."""
        self.predictions.need_logits("class-wise calibration")
        if self.weights is not None or self.wrong is not None:
            raise InputError("class-wise calibration of resamples is not defined here; ask for the value alone")
        probs, labels = self.predictions.probabilities(), self.predictions.labels
        for k in range(self.predictions.num_classes):
            yield probs[:, k].double().cpu().numpy(), (labels == k).double().cpu().numpy()

    def above(self, score: Any, threshold: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats]:
        """Which samples reach the threshold, which are wrong, and their weights."""
        ordered = self.base.ordered(score)
        weights = self.in_order(ordered)
        return ordered.values >= threshold, ordered.wrong, np.ones(len(ordered)) if weights is None else weights

    def moments(self, score: Any) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and unbiased variance of the scores of correct and of wrong samples; NaN with fewer than two."""
        ordered = self.base.ordered(score)
        given = self.in_order(ordered)
        weights = np.ones(len(ordered)) if given is None else given
        values = ordered.values.astype(np.float64)
        return _moments(values, weights * ~ordered.wrong), _moments(values, weights * ordered.wrong)

    def _cumulative(self) -> tuple[Floats | None, NDArray[Any], Floats]:
        """Running weights (None where all are 1), errors and confidences from the most confident on."""
        if self._running is None:
            ordered = self.base.ordered("msp")
            weights = self.in_order(ordered)
            wrong = ordered.wrong if self.wrong is None else self.wrong
            if weights is None:
                self._running = (None, np.cumsum(wrong, dtype=np.int32), self.base.running())
            else:
                sure = np.cumsum(weights * ordered.values)
                self._running = (np.cumsum(weights), np.cumsum(weights * wrong), sure)
        return self._running

    def _split_ties(self, at: NDArray[np.intp], errors: Floats) -> None:
        """Where an edge cuts through equal confidences, the later of the input go to the upper bin."""
        ordered = self.base.ordered("msp")
        if ordered.order is not None or self.wrong is not None or not ordered.tied.any():
            return
        cumulative = self._cumulative()[1]
        for k, position in enumerate(at):
            if 0 < position < self.base.n and ordered.values[position - 1] == ordered.values[position]:
                group = int(np.searchsorted(ordered.ends, position))
                begin = int(ordered.ends[group - 1]) + 1 if group else 0
                same = score_values(self.predictions, "msp") == ordered.values[position]
                flags = self.base.wrong[same]
                upper = int(flags[len(flags) - (position - begin) :].sum())
                errors[k] = (cumulative[begin - 1] if begin else 0.0) + upper

    def _mass_of_resample(self, bins: int) -> BinSums:
        """A sample drawn several times may be cut by an edge: its copies are equal, so it is shared out."""
        weights, *others = self._cumulative()
        assert weights is not None
        count, errors, confidence = (np.concatenate(([0.0], v)) for v in (weights, *others))
        at = self.n - mass_starts(int(self.n), bins)[::-1].astype(np.float64)
        total = np.diff(at)[::-1]
        wrong = np.diff(np.interp(at, count, errors))[::-1]
        sure = np.diff(np.interp(at, count, confidence))[::-1]
        return BinSums(total, sure, total - wrong)


def base_of(predictions: Predictions) -> Base:
    """The samples of a record, kept with it so that several metrics sort once."""
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"metrics need confide.Predictions, got {type(predictions).__name__}; make one from logits and labels"
        )
    if not len(predictions):
        raise InputError("metrics need at least one sample, got 0; give predictions that hold some")
    base: Base = predictions.__dict__.setdefault("_base", Base(predictions))
    return base


def _moments(values: Floats, weights: Floats) -> tuple[float, float]:
    total = float(weights.sum())
    if total < 2:
        return math.nan, math.nan
    mean = float(weights @ values) / total
    return mean, float(weights @ (values - mean) ** 2) / (total - 1)
