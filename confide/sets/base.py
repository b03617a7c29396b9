"""What prediction sets are: the registry of scores, the exact quantile, and the frozen `PredictionSets` of a fit.

A method gives every class of a sample a score, low for likely classes. A class is in the set if its score is at most
the threshold; the threshold is the k-th smallest score of the labels of n calibration samples, k = ceil((n + 1)
coverage). Rows are scored in blocks that stay in cache, and each row by itself: a sample gets the same set whichever
samples stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import random
from confide.calibrators.groups import Grouping
from confide.checks import MOST_CLASSES, InputError, as_tensor, check_range, check_record
from confide.files import formats
from confide.files.fitted import FittedState, save_fitted
from confide.numerics.blocks import places_of, row_counts
from confide.predictions import Predictions, class_values, probability_blocks
from confide.registry import Method, OptionSpec, Registry
from confide.types import Flags, Floats, Options

PURPOSE = "a prediction set"
BANDS = 5
"""Bands of difficulty where neither edges nor a number are given."""
"""Who needs all probabilities, in the words of a message."""


# The registry, and what a method is given.


@dataclass(frozen=True, kw_only=True)
class SetSpec(OptionSpec):
    """What is said of a score: whether it needs the classes `ordered` by falling probability, or falls with a class's
    own probability and looks at nothing else; for each option that is `tuned` where it is None the values to try;
    whether without draws it is the rank `alone`.
    """

    ordered: bool = True
    alone: bool = False
    tuned: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


SETS = Registry("prediction sets", SetSpec)


@dataclass(frozen=True, eq=False)
class ClassRows:
    """A block of samples: `probs` `n c`, in falling order where the method needs it, and one draw `u` a sample."""

    probs: Floats
    """Perhaps the user's own: not to be written to."""
    draws: Floats
    """n 1, uniform in [0, 1)."""

    @cached_property
    def before(self) -> Floats:
        """The summed probability of all classes in front."""
        sums: Floats = torch.from_numpy(self.probs).cumsum(dim=1).numpy()
        sums[:, 1:] = sums[:, :-1]
        sums[:, 0] = 0.0
        return sums

    @property
    def rank(self) -> Floats:
        """1, 2, ..., c."""
        return np.arange(1.0, self.probs.shape[1] + 1)

    def u(self, randomized: bool) -> Floats | float:
        """The draw of every sample, or 1: the whole of a class counts."""
        return self.draws if randomized else 1.0


# The exact quantile.


def quantile_rank(n: int, coverage: float) -> int:
    """k = ceil((n + 1) coverage), of the decimal that was written: 0.55 of 100 is 55, though floats say 56.

    Args:
        n: calibration samples.
        coverage: the promise.

    Returns:
        The rank from 1 on; above n no threshold can keep the promise.

    Example:
        >>> import math
        >>> confide.sets.quantile_rank(99, 0.55), math.ceil(100 * 0.55)
        (55, 56)
    """
    return math.ceil((n + 1) * Fraction(str(float(coverage))))


def fewest_samples(coverage: float) -> int:
    """The smallest n whose rank is at most n: ceil((n + 1) coverage) <= n, so n >= coverage / (1 - coverage)."""
    share = Fraction(str(float(coverage)))
    return max(1, math.ceil(share / (1 - share)))


def threshold_of(scores: Floats, coverage: float) -> float | None:
    """The k-th smallest score; None, for all classes, where k is above n."""
    k = quantile_rank(len(scores), coverage)
    return None if k > len(scores) else float(np.partition(scores, k - 1)[k - 1])


# Scores of rows, in blocks.


@dataclass(frozen=True, eq=False)
class SetScore:
    """A method with its options: the scores of predictions."""

    method: Method[SetSpec]
    options: Options
    seed: int = 0

    @property
    def rank_alone(self) -> bool:
        """Whether the rank alone decides."""
        return self.method.spec.alone and not self.options.get("randomized", False)

    def _ranked(self, probs: NDArray[np.floating]) -> Floats:
        """The score of every rank, where that alone decides."""
        ranked: Floats = self._scores(probs[:1], np.zeros((1, 1)))[0]
        return ranked

    def of_labels(self, predictions: Predictions, labels: Tensor) -> Floats:
        """The score of every sample's label."""
        scores: Floats = label_scores([self], predictions, labels)[0]
        return scores

    def admitted(
        self, predictions: Predictions, limits: Floats, top: bool, out: Flags | None = None
    ) -> Iterator[tuple[slice, Flags]]:
        """(rows, which classes have a score within the limit) by blocks; limits are `n 1`, or `1 c` by class.

        Args:
            top: whether the likeliest class is always admitted.
            out: `n c`, where the blocks are written.
        """
        by_class, early = limits.shape[0] == 1 and limits.shape[1] > 1, 1.0
        least: NDArray[np.floating] | None = None
        for rows, probs, draws in self._blocks(predictions):
            own = limits if len(limits) == 1 else limits[rows]
            inside = np.empty(probs.shape, dtype=bool) if out is None else out[rows]
            if not self.method.spec.ordered:
                least = self._least_probabilities(limits, probs.dtype) if least is None else least
                np.greater_equal(probs, least if len(least) == 1 else least[rows], out=inside)
            elif by_class:
                early = self._by_class(probs, draws, own[0], early >= 0.5, inside)
            elif self.rank_alone:
                self._by_rank(probs, np.broadcast_to(own, (len(probs), 1))[:, 0], inside)
            else:
                self._first_classes(probs, draws, np.broadcast_to(own, (len(probs), 1)), inside)
            if top:
                # With one limit for all classes the likeliest is missing from empty sets alone.
                lacking = np.arange(len(inside)) if by_class else np.flatnonzero(~inside.any(axis=1))
                inside[lacking, probs[lacking].argmax(axis=1)] = True
            yield rows, inside

    def _least_probabilities(self, limits: Floats, dtype: np.dtype[Any]) -> NDArray[np.floating]:
        """The smallest numbers whose score is within the limits, exactly: comparing them saves scoring every class.

        Halving over the bits of floats, which have the order of the floats themselves.
        """
        bits = np.dtype(f"u{dtype.itemsize}").type
        values, places = np.unique(limits, return_inverse=True)
        low = np.zeros(len(values), dtype=bits)
        high = np.full(len(values), np.array(np.inf, dtype=dtype).view(bits))
        for _ in range(8 * dtype.itemsize):
            middle = (low + high) // bits(2)
            within = self._scores(middle.view(dtype)[:, None], np.zeros((1, 1)))[:, 0] <= values
            low, high = np.where(within, low, middle + bits(1)), np.where(within, middle, high)
            low = np.minimum(low, high)
        return np.asarray(high.view(dtype)[places.reshape(limits.shape)])

    def _blocks(self, predictions: Predictions) -> Iterator[tuple[slice, NDArray[np.floating], Floats]]:
        """(rows, their probabilities, a draw each) by blocks of rows; zeros where nothing is drawn."""
        drawn = self.options.get("randomized", False)
        draws = sample_draws(predictions, self.seed) if drawn else np.zeros(len(predictions))
        for rows, probs in probability_blocks(predictions, PURPOSE):
            yield rows, probs, draws[rows, None]

    def _first_classes(self, probs: NDArray[np.floating], draws: Floats, limits: Floats, inside: Flags) -> None:
        """Scores rise along the order, so that a set is its first classes: mostly few, which need no sorted row."""
        size, last = np.zeros(len(probs), dtype=np.int64), np.zeros((len(probs), 1), dtype=probs.dtype)
        unseen = np.ones(len(probs), dtype=bool)
        for order in _orders(probs, unseen):
            size[order.rows] = count = order.within(self._scores(order.probs, draws[order.rows]), limits[order.rows])
            last[order.rows] = np.take_along_axis(order.probs, np.maximum(count - 1, 0)[:, None], axis=1)
            unseen[order.rows[count < order.count]] = False
        _first(probs, last, size, inside)

    def _by_rank(self, probs: NDArray[np.floating], limits: Floats, inside: Flags) -> None:
        """Where the rank alone decides: as many of the likeliest classes as have a score within the limit."""
        sizes = np.searchsorted(self._ranked(probs), limits, side="right")
        # Half the bytes; what float32 rounds to equals is looked at again.
        narrow = probs.astype(np.float32, copy=False)
        np.greater_equal(narrow, _at_rank(narrow, sizes), out=inside)
        again = np.flatnonzero(row_counts(inside) != sizes)
        if len(again):
            own, size = probs[again], sizes[again]
            inside[again] = _first(own, _at_rank(own, size), size, np.empty(own.shape, dtype=bool))

    def _by_class(
        self, probs: NDArray[np.floating], draws: Floats, limits: Floats, likely_first: bool, inside: Flags
    ) -> float:
        """Every class against a limit of its own; those behind the first that passes the largest limit are out.

        Args:
            likely_first: whether to look at the likely classes of every row first, and at all of them only where sets
                do not end among these.

        Returns:
            Of how many rows the sets end among the likely classes.
        """
        inside[:] = np.isinf(limits)
        largest = limits[np.isfinite(limits)].max(initial=-np.inf)

        def look(order: ClassOrder) -> NDArray[np.bool_]:
            """Note which classes are in; whether scores pass the largest limit before the order ends."""
            assert order.classes is not None
            scores = self._scores(order.probs, draws[order.rows])
            within = (scores <= limits.take(order.classes)) & (np.arange(scores.shape[1]) < order.count[:, None])
            if within.shape[1] == probs.shape[1]:
                # In a fifth of the time of numpy's put_along_axis.
                whole = torch.empty(within.shape, dtype=torch.bool)
                whole.scatter_(1, torch.from_numpy(order.classes), torch.from_numpy(within))
                inside[order.rows] = whole.numpy()
            else:
                row, rank = np.nonzero(within)
                inside[order.rows[row], order.classes[row, rank]] = True
            last = np.take_along_axis(scores, np.maximum(order.count - 1, 0)[:, None], axis=1)[:, 0]
            return np.asarray((last > largest) & (order.count > 0))

        unseen = np.ones(len(probs), dtype=bool)
        if likely_first:
            few = _likely(probs, np.arange(len(probs)), *STAGES[0], classes=True)
            unseen[few.rows[look(few)]] = False
        look(_whole(probs, np.flatnonzero(unseen), classes=True))
        return float(1 - unseen.mean())

    def _scores(self, probs: NDArray[np.floating], draws: Floats) -> Floats:
        return self._of(ClassRows(probs.astype(np.float64, copy=False), draws))

    def _of(self, rows: ClassRows) -> Floats:
        scores: Floats = self.method.function(rows, **self.options)
        return scores


def label_scores(scores: Sequence[SetScore], predictions: Predictions, labels: Tensor) -> Floats:
    """The score of every sample's label by each of several options of one method, which share the order of classes."""
    first, classes = scores[0], labels.cpu().numpy()
    of_labels = np.empty((len(scores), len(predictions)))
    for rows, probs, draws in first._blocks(predictions):
        own = classes[rows][:, None]
        if not first.method.spec.ordered:
            likelihoods = np.take_along_axis(probs, own, axis=1)
            of_labels[:, rows] = [score._scores(likelihoods, draws)[:, 0] for score in scores]
            continue
        place = _rank_of(probs, own)
        if first.rank_alone:
            of_labels[:, rows] = [score._ranked(probs)[place[:, 0]] for score in scores]
            continue
        block, unseen = of_labels[:, rows], np.ones(len(probs), dtype=bool)
        for order in _orders(probs, unseen):
            held = order.take(order.count > place[order.rows, 0])
            ordered = held.with_draws(draws)
            for k, score in enumerate(scores):
                block[k, held.rows] = np.take_along_axis(score._of(ordered), place[held.rows], axis=1)[:, 0]
            unseen[held.rows] = False
    return of_labels


def summed_sizes(scores: Sequence[SetScore], predictions: Predictions, limits: Sequence[float]) -> NDArray[np.int64]:
    """The summed sizes of the sets by each of several options of an ordered method; none is empty."""
    sums = np.zeros(len(scores), dtype=np.int64)
    for _, probs, draws in scores[0]._blocks(predictions):
        unended = np.ones((len(scores), len(probs)), dtype=bool)
        unseen = np.ones(len(probs), dtype=bool)
        for order in _orders(probs, unseen):
            ordered = order.with_draws(draws)
            for k, (score, limit) in enumerate(zip(scores, limits, strict=True)):
                count = order.within(score._of(ordered), limit)
                ends = unended[k, order.rows] & ((count < order.count) | (order.count == probs.shape[1]))
                sums[k] += np.maximum(count[ends], 1).sum()
                unended[k, order.rows[ends]] = False
            unseen[:] = unended.any(axis=0)
    return sums


def _first(probs: NDArray[np.floating], last: NDArray[np.floating], size: NDArray[np.int64], inside: Flags) -> Flags:
    """Into `inside` the `size` likeliest classes of every row, the last of which has the probability `last` `n 1`."""
    np.greater_equal(probs, last, out=inside)
    inside[size == 0] = False
    # Of equals the lower class comes first.
    for row in np.flatnonzero(row_counts(inside) != size):
        inside[row] = False
        inside[row, np.argsort(-probs[row], kind="stable")[: size[row]]] = True
    return inside


def _at_rank(probs: NDArray[np.floating], sizes: NDArray[np.int64]) -> NDArray[np.floating]:
    """The probability `n 1` of the `size`-th likeliest class of every row; infinite for none and for all."""
    num_classes = probs.shape[1]
    last = np.where(sizes == 0, np.inf, -np.inf).astype(probs.dtype)
    for size in np.unique(sizes[(sizes > 0) & (sizes < num_classes)]):
        rows = np.flatnonzero(sizes == size)
        # Numbers from 0 on have the order of their bits, and whole numbers are partitioned in half the time.
        bits = np.array(probs if len(rows) == len(probs) else probs[rows]).view(f"i{probs.itemsize}")
        bits.partition(num_classes - size, axis=1)
        last[rows] = bits[:, num_classes - size].copy().view(probs.dtype)
    return last[:, None]


def sample_draws(predictions: Predictions, seed: int) -> Floats:
    """A uniform number a sample, keyed by seed, id and the outputs: a second call draws the same again.

    The outputs belong to the key so that samples of other data that are numbered alike draw anew.
    """
    keys = random.sample_keys(predictions.ids)
    values = class_values(predictions, PURPOSE)
    for column in (values[:, 0], values[:, -1]):
        keys = random.bits(seed, keys ^ column.double().cpu().numpy().view(np.uint64), "prediction sets")
    return random.uniform(seed, keys, "prediction sets")


@dataclass(frozen=True, eq=False)
class ClassOrder:
    """Rows of a block with their `count` largest probabilities, the largest first, and zeros behind."""

    rows: NDArray[np.int64]
    probs: NDArray[np.floating]
    count: NDArray[np.int64]
    classes: NDArray[np.int64] | None = None
    """Whose the probabilities are, where that was asked for: places sort in three times the time of values."""

    def take(self, which: NDArray[np.bool_]) -> ClassOrder:
        """These rows alone; without the classes."""
        return ClassOrder(self.rows[which], self.probs[which], self.count[which])

    def with_draws(self, draws: Floats) -> ClassRows:
        """What a method is given, with the draws of the whole block."""
        return ClassRows(self.probs.astype(np.float64, copy=False), draws[self.rows])

    def within(self, scores: Floats, limits: Floats | float) -> NDArray[np.int64]:
        """How many classes of the order have a score within the limit."""
        inside = scores <= limits
        inside &= np.arange(inside.shape[1]) < self.count[:, None]
        return row_counts(inside)


STAGES = ((1.0, 8), (0.25, 3))
"""Classes above this multiple of the average probability, of rows where at most one in so many classes is."""


def _orders(probs: NDArray[np.floating], unseen: NDArray[np.bool_]) -> Iterator[ClassOrder]:
    """The likely classes of the rows, more of those that are `unseen` still, and at last all: few rows are sorted."""
    for share, one_in in STAGES:
        rows = np.flatnonzero(unseen)
        yield _likely(probs, rows, share, one_in)
    yield _whole(probs, np.flatnonzero(unseen))


def _whole(probs: NDArray[np.floating], rows: NDArray[np.int64], *, classes: bool = False) -> ClassOrder:
    """All classes of these rows."""
    count = np.full(len(rows), probs.shape[1])
    if classes and probs.dtype == np.float32:
        # Value and class in one number: the bits of floats that are not negative have their order.
        keys = (~probs[rows].view(np.uint32)).astype(np.uint64) << np.uint64(32) | np.arange(
            probs.shape[1], dtype=np.uint64
        )
        keys.sort(axis=1)
        values = (~(keys >> np.uint64(32)).astype(np.uint32)).view(np.float32)
        return ClassOrder(rows, values, count, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64))
    if classes:
        own = probs[rows]
        places = np.argsort(-own, axis=1)
        ordered = np.take_along_axis(own, places, axis=1)
        # Of equals the lower class comes first; the stable sort takes twice as long, so only where there are some.
        tied = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        places[tied] = np.argsort(-own[tied], axis=1, kind="stable")
        return ClassOrder(rows, ordered, count, places)
    values = np.sort(-probs[rows], axis=1)
    return ClassOrder(rows, np.negative(values, out=values), count)


def _likely(
    probs: NDArray[np.floating], rows: NDArray[np.int64], share: float, one_in: int, *, classes: bool = False
) -> ClassOrder:
    """The classes above so much of the average probability, of those of the rows that have few: most sets end there."""
    num_classes = probs.shape[1]
    own = probs if len(rows) == len(probs) else probs[rows]
    likely = own > own.dtype.type(share / num_classes)
    count = row_counts(likely)
    many = count > max(num_classes // one_in, 2)
    likely[many] = False
    rows, count = rows[~many], count[~many]
    cells = places_of(likely)
    filled = np.arange(int(count.max(initial=1))) < count[:, None]
    values = np.zeros(filled.shape, dtype=probs.dtype)
    values[filled] = -own.reshape(-1)[cells]
    if not classes:
        values.sort(axis=1)
        return ClassOrder(rows, np.negative(values, out=values), count)
    names = np.zeros(values.shape, dtype=np.int64)
    names[filled] = cells % num_classes
    # Stable: of equals the lower class stays first.
    places = np.argsort(values, axis=1, kind="stable")
    ordered = -np.take_along_axis(values, places, axis=1)
    return ClassOrder(rows, ordered, count, np.take_along_axis(names, places, axis=1))


def _rank_of(probs: NDArray[np.floating], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of a class in the falling order, from 0 on; of equals the lower class comes first."""
    own = np.take_along_axis(probs, classes, axis=1)
    ahead = row_counts(probs > own)
    tied = np.flatnonzero(row_counts(probs >= own) > ahead + 1)
    before = np.arange(probs.shape[1]) < classes[tied]
    ahead[tied] += row_counts((probs[tied] == own[tied]) & before)
    return np.asarray(ahead)[:, None]


# What a fit returns.

LISTS = ("class_groups", "edges", "class_names")
"""Fields that are tuples or None, lists in a file."""


@dataclass(frozen=True)
class SetGroup:
    """Samples or classes that share a threshold, None where they are too few for one: then every class is admitted."""

    name: str
    n: int
    threshold: float | None


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """Fitted prediction sets: `sets(predictions)` tells for every sample which classes are in its set.

    `groups` hold a threshold each: one for all, one a class or cluster of classes (`class_groups` then says which is
    whose), or one a value or band of the column `by`. `notes` are what a person should know.
    """

    word: str
    coverage: float
    num_classes: int
    n: int
    groups: tuple[SetGroup, ...]
    by: str | None = None
    class_groups: tuple[int, ...] | None = None
    edges: tuple[float, ...] | None = None
    options: Options = field(default_factory=dict)
    allow_empty: bool = False
    seed: int = 0
    class_names: tuple[str, ...] | None = None
    weighted: Mapping[str, Tensor] = field(default_factory=dict)
    """Sorted `scores` and summed `weights` of the calibration samples, where these were weighted."""
    notes: tuple[str, ...] = ()

    @property
    def promises(self) -> bool:
        """Whether there is a threshold at all; without one every set holds all classes."""
        return any(group.threshold is not None for group in self.groups)

    @property
    def score(self) -> SetScore:
        """The method with its options."""
        return SetScore(SETS.get(self.word), self.options, self.seed)

    def __call__(self, predictions: Predictions, weights: Any = None) -> Tensor:
        inside = np.empty((len(predictions), self.num_classes), dtype=bool)
        for _ in self.blocks(predictions, weights, inside):
            pass
        return torch.from_numpy(inside).to(class_values(predictions, PURPOSE).device)

    def blocks(
        self, predictions: Predictions, weights: Any = None, out: Flags | None = None
    ) -> Iterator[tuple[slice, Flags]]:
        """(rows, their sets) by blocks, where all sets together would not fit into memory; or written into `out`."""
        class_values(predictions, PURPOSE)
        predictions.need_classes(f"the prediction sets '{self.word}'", self.num_classes, self.class_names)
        return self.score.admitted(predictions, self.limits(predictions, weights), not self.allow_empty, out)

    def limits(self, predictions: Predictions, weights: Any = None) -> Floats:
        """The threshold of every sample, `n 1`, or of every class, `1 c`; infinite where all classes are admitted."""
        if bool(self.weighted) != (weights is not None):
            lacking = "need" if self.weighted else "take no"
            raise InputError(
                f"these prediction sets were fitted with{'' if self.weighted else 'out'} weights and {lacking} "
                "weights= of the samples they are applied to"
            )
        own = np.array([np.inf if group.threshold is None else group.threshold for group in self.groups])
        if weights is not None:
            return self._weighted_limits(checked_weights(weights, len(predictions)))[:, None]
        if self.class_groups is not None:
            return own[list(self.class_groups)][None]
        if self.by is None:
            return own[None]
        places = self.places(predictions)
        # A group that the fit has not seen is promised nothing but all classes.
        return np.append(own, np.inf)[places][:, None]

    def places(self, predictions: Predictions) -> NDArray[np.int64]:
        """The group of every sample, -1 where the fit has not seen it."""
        names = Grouping(str(self.by), self.edges).names(predictions)
        known = {group.name: place for place, group in enumerate(self.groups)}
        values, back = np.unique(names, return_inverse=True)
        return np.array([known.get(str(value), -1) for value in values], dtype=np.int64)[back]

    def _weighted_limits(self, weights: Floats) -> Floats:
        """The smallest score with summed weights of at least coverage (all weights + the sample's own)."""
        scores, sums = (self.weighted[name].numpy() for name in ("scores", "weights"))
        place = np.searchsorted(sums, self.coverage * (sums[-1] + weights))
        limits: Floats = np.append(scores, np.inf)[place]
        return limits

    def save(self, path: str | Path) -> None:
        """Write as .json or .safetensors, atomically."""
        save_fitted(path, formats.SETS, self.state())

    def state(self) -> FittedState:
        """Everything as plain data and tensors, for a file."""
        names = ("word", "coverage", "num_classes", "n", "by", "allow_empty", "seed")
        record = {name: getattr(self, name) for name in names}
        record |= {"groups": [vars(group) for group in self.groups], "options": dict(self.options)}
        record |= {name: None if (v := getattr(self, name)) is None else list(v) for name in LISTS}
        return FittedState({**record, "notes": list(self.notes)}, self.weighted)


def sets_from_state(state: FittedState) -> PredictionSets:
    """The prediction sets of a saved state."""
    record = dict(state.record)
    method = SETS.get(record["word"])
    groups = tuple(check_record(SetGroup(**group)) for group in record.pop("groups"))
    listed = {name: None if (v := record.pop(name, None)) is None else tuple(v) for name in LISTS}
    fitted = check_record(
        PredictionSets(**record | listed | {"groups": groups, "notes": tuple(record["notes"])}, weighted=state.tensors)
    )
    method.checked(fitted.options)
    check_range(fitted.num_classes, "num_classes", 2, MOST_CLASSES)
    places = fitted.class_groups
    by_class = places is not None and (len(places) != fitted.num_classes or not set(places) <= set(range(len(groups))))
    if not groups or by_class or (fitted.by is None and len(groups) != 1):
        raise ValueError(f"{len(groups)} groups do not fit {fitted.num_classes} classes")
    if fitted.weighted and fitted.weighted["scores"].shape != fitted.weighted["weights"].shape:
        raise ValueError("scores and weights are of different lengths")
    return fitted


def checked_weights(weights: Any, n: int) -> Floats:
    """n finite numbers of 0 or more."""
    values: Floats = as_tensor(weights, "weights").double().cpu().numpy()
    if values.shape != (n,) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"weights must be {n} finite numbers of 0 or more, got shape {values.shape}; give one each")
    return values
