"""What metrics look at: samples of one prediction record with weights, sorted at most once per confidence score.

A resample of the bootstrap is the same samples with other whole weights, so it needs no softmax and no sort. Ties are
one step: whoever accepts a score accepts all samples that have it. Neighbours that are not tied but alike (all correct,
or all wrong) are one segment too, because every ranking metric has a closed form over such a run. Where the samples
themselves are weighted there are no runs: every score is a step. Their weights have mean 1, so that only ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from confide.block_sizes import SEGMENTS
from confide.checks import InputError, as_tensor, check_choice, check_finite, check_range, did_you_mean
from confide.facts import SELDOM
from confide.numerics.arrays import (
    after_zero,
    as_numpy,
    dot,
    doubles,
    namespace,
    searched,
    taken,
    true_places,
)
from confide.numerics.binning import BinSums, mass_starts, width_edges
from confide.predictions import Predictions, class_values, probability_blocks
from confide.types import AnyArray, Flags, Floating, Floats, Indices

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Sorted:
    """Samples from the safest to the least safe, in segments: `reached` are those up to the end of each, `tied` says
    which kind it is.

    A tied segment holds all samples of one score; the others hold a run of distinct scores, all right or all wrong.
    `stored` are the scores or, `less_one`, in float32 what lacks them to 1, below 0: half the memory of many samples.
    """

    stored: AnyArray
    wrong: AnyArray
    reached: AnyArray
    tied: AnyArray
    order: AnyArray = None
    less_one: bool = False

    def __len__(self) -> int:
        return len(self.wrong)

    @cached_property
    def on_host(self) -> Sorted:
        """The same as arrays of the host."""
        if not isinstance(self.stored, torch.Tensor):
            return self
        stored, wrong, reached, tied = map(as_numpy, (self.stored, self.wrong, self.reached, self.tied))
        order = None if self.order is None else as_numpy(self.order)
        return Sorted(stored, wrong, reached, tied, order, self.less_one)

    @property
    def values(self) -> AnyArray:
        """The scores of all."""
        return self.at(slice(None))

    def at(self, places: Any) -> AnyArray:
        """The scores at a slice, where they live, or at an array of positions."""
        stored = self.stored[places] if isinstance(places, slice) else taken(self.stored, places)
        return 1.0 + doubles(stored) if self.less_one else stored

    @cached_property
    def _rising(self) -> AnyArray:
        return self.stored.flip(0) if isinstance(self.stored, torch.Tensor) else self.stored[::-1]

    def below(self, edges: Floats, *, closed: bool) -> Indices:
        """How many scores lie below each edge or, if closed, on it."""
        if not self.less_one:
            return searched(self._rising, edges, "right" if closed else "left")
        least, most = np.zeros(len(edges), dtype=np.intp), np.full(len(edges), len(self))
        while (least < most).any():
            middle = (least + most) // 2
            score = self.at(np.maximum(len(self) - 1 - middle, 0))
            under = (least < most) & ((score <= edges) if closed else (score < edges))
            least, most = np.where(under, middle + 1, least), np.where(under, most, middle)
        return least

    @property
    def ends(self) -> AnyArray:
        """The last position of each segment."""
        return self.reached - 1

    @cached_property
    def has_ties(self) -> bool:
        """Whether some samples have equal scores."""
        return bool(self.tied.any())


@dataclass(frozen=True, eq=False)
class RankPart:
    """Some segments of `Ranks` in a row: `reached` and `missed` are accepted and errors before, between and after."""

    reached: AnyArray
    missed: AnyArray
    tied: AnyArray
    whole: bool
    n: float

    @property
    def before(self) -> AnyArray:
        """Accepted before each segment."""
        return self.reached[:-1]

    @property
    def accepted(self) -> AnyArray:
        """Accepted up to the end of each."""
        return self.reached[1:]

    @property
    def errors_before(self) -> AnyArray:
        """Errors accepted before each segment."""
        return self.missed[:-1]

    @property
    def errors(self) -> AnyArray:
        """Errors up to the end of each."""
        return self.missed[1:]

    @cached_property
    def size(self) -> AnyArray:
        """Samples of each segment."""
        return self.accepted - self.before

    @cached_property
    def new_errors(self) -> AnyArray:
        """Errors of each segment."""
        return self.errors - self.errors_before

    @cached_property
    def rise(self) -> AnyArray:
        """Sum of 1 / k over the ranks k of each segment; between whole numbers as the digamma function has it."""
        sums = harmonic_at(self.reached, int(self.n)) if self.whole else harmonic_between(self.reached)
        if self.reached[0] == 0:
            sums[0] = 0.0
        return sums[1:] - sums[:-1]


@dataclass(frozen=True, eq=False)
class Ranks:
    """At every segment's end, from the safest: samples accepted so far and errors among them."""

    accepted: AnyArray
    errors: AnyArray
    tied: AnyArray
    whole: bool = True  # whether these are whole numbers

    @classmethod
    def counted(cls, ordered: Sorted) -> Ranks:
        """Of samples that count alike, in as few bits as hold them."""
        errors = ordered.wrong.cumsum(0, dtype=ordered.reached.dtype)
        return cls(ordered.reached, errors[ordered.ends], ordered.tied)

    @property
    def n(self) -> float:
        return float(self.accepted[-1])

    @property
    def wrong(self) -> float:
        return float(self.errors[-1])

    def errors_at(self, accepted: AnyArray) -> Floats:
        """Errors among so many accepted, rising evenly within a segment."""
        known: tuple[AnyArray, AnyArray] = (self.accepted, self.errors)
        if len(self.accepted) > SEGMENTS or isinstance(self.accepted, torch.Tensor):
            # Only those around: as numbers in double precision all would take more memory than the samples do.
            place = searched(self.accepted, accepted)
            held = np.unique(np.clip(np.concatenate((place - 1, place, place + 1)), 0, len(self.accepted) - 1))
            known = taken(self.accepted, held), taken(self.errors, held)
        counts, errors = (np.append(0.0, v) for v in known)
        return np.asarray(np.interp(accepted, counts, errors), dtype=np.float64)

    @property
    def _at_once(self) -> bool:
        return len(self.accepted) <= SEGMENTS or isinstance(self.accepted, torch.Tensor)

    def parts(self) -> Iterable[RankPart]:
        """All segments, some at a time; few, or those on a device, are kept with what follows from them, which several
        metrics ask for.
        """
        if self._at_once:
            return (self._whole,)
        return (self._part(slice(first, first + SEGMENTS)) for first in range(0, len(self.accepted), SEGMENTS))

    @cached_property
    def _whole(self) -> RankPart:
        return self._part(slice(0, len(self.accepted)))

    def _part(self, part: slice) -> RankPart:
        held = slice(max(part.start - 1, 0), part.stop)
        reached, missed = (doubles(v[held]) for v in (self.accepted, self.errors))
        if part.start == 0:
            reached, missed = after_zero(reached), after_zero(missed)
        return RankPart(reached, missed, self.tied[part], self.whole, self.n)

    @cached_property
    def area(self) -> float:
        """Mean over k of the error rate among the k safest, averaged over all orders of tied samples.

        Within a tie the expected errors rise linearly, within a run they do anyway, so the risks of a segment of m
        samples with e errors sum to e + (E - A e / m)(1 / (A + 1) + ... + 1 / (A + m)).
        """
        total = self.wrong
        for part in self.parts():
            share = part.new_errors / namespace(part.size).where(part.size > 0, part.size, 1.0)
            share *= part.before
            share -= part.errors_before
            total -= dot(share, part.rise)
        return total / self.n


def ranks_of(ordered: Sorted, weights: Floats | None = None, whole: bool = True) -> Ranks:
    """Running counts of sorted samples; weights, such as how often a resample drew each, in sorted order."""
    if weights is None:
        return Ranks.counted(ordered)
    accepted, errors = np.cumsum(weights), np.cumsum(weights * ordered.wrong)
    return Ranks(accepted[ordered.ends], errors[ordered.ends], ordered.tied, whole)


def segments(same: AnyArray, wrong: AnyArray) -> tuple[AnyArray, AnyArray]:
    """How many samples lie up to the end of each segment, and its kind; `same[i]`: i and i + 1 have one score."""
    cut = wrong[1:] != wrong[:-1]
    if not same.any():
        reached = places_before(cut)
        return reached, reached < 0
    beside = cut ^ cut
    beside[1:] |= same[:-1]
    beside[:-1] |= same[1:]
    cut |= beside
    cut &= ~same
    reached = places_before(cut)
    tied = reached < 0
    tied[reached > 1] = same[reached[reached > 1] - 2]
    return reached, tied


def places_before(cut: AnyArray) -> AnyArray:
    """How many lie before each cut, and how many there are; cuts are between neighbours."""
    if isinstance(cut, torch.Tensor):
        ends = torch.cat((cut, cut.new_ones(1)))
        return true_places(ends) + 1
    kind = np.int32 if len(cut) + 1 < 1 << 31 else np.int64
    places: Indices = np.empty(np.count_nonzero(cut) + 1, dtype=kind)
    filled = 0
    for first in range(0, len(cut), MANY_SAMPLES):
        inner = np.flatnonzero(cut[first : first + MANY_SAMPLES])
        places[filled : filled + len(inner)] = inner + (first + 1)
        filled += len(inner)
    places[filled] = len(cut) + 1
    return places


def sort_with_order(values: Floating, wrong: Flags) -> Sorted:
    """Sorted samples with the permutation that sorts others alike: the reverse of a stable ascending sort."""
    order = np.argsort(values, kind="stable")[::-1]
    ordered, flags = values[order], wrong[order]
    reached, tied = segments(ordered[1:] == ordered[:-1], flags)
    return Sorted(ordered, flags, reached, tied, order)


def steps_only(ordered: Sorted) -> Sorted:
    """The same with one segment a score: weighted samples have no runs."""
    reached = np.append(np.flatnonzero(ordered.values[1:] != ordered.values[:-1]) + 1, len(ordered))
    return replace(ordered, reached=reached, tied=np.ones(len(reached), dtype=bool))


def sort_packed(values: Floating, wrong: Flags, *, own: bool = False) -> Sorted:
    """The same without the permutation, at the price of np.sort: the bit `wrong` rides in the sort key.

    The bits of floats of one sign are in their order and leave one bit free. Within ties the order is not that of the
    input. With `own` the keys take the place of the values.
    """
    falling = float(values.max()) <= 0
    if not falling and float(values.min()) < 0:
        return sort_with_order(values, wrong)  # both signs need all bits
    kind: Any = np.uint32 if values.dtype == np.float32 else np.uint64
    keys: NDArray[Any] = values if own else values.copy()
    keys = (np.negative(keys, out=keys) if falling else keys).view(kind)
    keys <<= kind(1)  # the sign falls off, so that -0 is 0
    keys |= wrong.view(np.uint8)
    keys.sort()
    if not falling:
        keys = keys[::-1]
    flags = (keys & kind(1)).astype(bool)
    keys >>= kind(1)
    reached, tied = segments(keys[1:] == keys[:-1], flags)
    ordered = keys.view(values.dtype)
    return Sorted(np.negative(ordered, out=ordered) if falling else ordered, flags, reached, tied)


FIRST_BIT, OTHER_BITS = -(1 << 63), (1 << 63) - 1


def sort_there(values: torch.Tensor, wrong: torch.Tensor) -> Sorted:
    """The same of tensors, on the device where they live; torch has no unsigned keys."""
    falling = float(values.max()) <= 0
    if not falling and float(values.min()) < 0:
        order = values.argsort(stable=True).flip(0)
        ordered, flags = values[order], wrong[order]
        return Sorted(ordered, flags, *segments(ordered[1:] == ordered[:-1], flags), order)
    narrow = values.dtype == torch.float32
    bits = values.abs().view(torch.int32).long() if narrow else values.abs().view(torch.int64)
    # With the first bit turned signed numbers are in the order of unsigned ones.
    keys = (((bits << 1) | wrong) ^ FIRST_BIT).sort().values ^ FIRST_BIT
    keys = keys if falling else keys.flip(0)
    bits = (keys >> 1) & OTHER_BITS
    ordered = bits.to(torch.int32).view(torch.float32) if narrow else bits.view(torch.float64)
    flags = (keys & 1).bool()
    return Sorted(-ordered if falling else ordered, flags, *segments(bits[1:] == bits[:-1], flags))


@lru_cache(maxsize=4)
def harmonic(n: int) -> Floats:
    """Sums of 1/1 + ... + 1/k for k = 0..n."""
    table = np.arange(n + 1, dtype=np.float64)
    np.divide(1.0, table[1:], out=table[1:])
    return np.cumsum(table, out=table)


MANY_SAMPLES = 1 << 18
"""Samples from which on metrics have threads of their own, and what each sample needs is made of some at a time."""
FROM_SERIES = 32


def harmonic_at(counts: AnyArray, n: int) -> AnyArray:
    """Sums of 1/1 + ... + 1/k at whole numbers k up to n: from a table of all, or for many by their series."""
    if isinstance(counts, torch.Tensor):
        return harmonic_between(counts)
    if n < MANY_SAMPLES:
        return harmonic(n)[counts.astype(np.intp)]
    inverse = 1 / np.maximum(counts, FROM_SERIES)
    squared = inverse * inverse
    sums = inverse / 2 - squared * (1 / 12 - squared * (1 / 120 - squared / 252)) - np.log(inverse) + np.euler_gamma
    few = np.flatnonzero(counts < FROM_SERIES)
    sums[few] = harmonic(FROM_SERIES)[counts[few].astype(np.intp)]
    return np.asarray(sums)


def harmonic_between(values: AnyArray) -> AnyArray:
    """The same at any number k of 0 or more, also between whole ones."""
    if isinstance(values, torch.Tensor):
        return torch.digamma(values + 1) + np.euler_gamma
    return np.asarray(torch.digamma(torch.from_numpy(values + 1)).numpy() + np.euler_gamma)


# Which confidence score a ranking metric sorts by: a word, the trust of the predictions, or a vector.

SCORE_WORDS = ("msp", "entropy", "margin", "max_logit", "energy", "trust")


def score_name(score: Any) -> str:
    """The name that stands in the table: the word itself, `trust:<predictor>`, or `given` for a vector."""
    return score if isinstance(score, str) else "given"


def score_is(score: Any, word: str) -> bool:
    """Whether a score is that word, and no vector."""
    return isinstance(score, str) and score == word


def score_values(predictions: Predictions, score: Any) -> Floating:
    """One value per sample, high = safe.

    Args:
        score: `msp` (largest probability), `entropy` (negated), `margin` (largest minus second largest probability),
            `max_logit`, `energy`, `trust` or `trust:<name>` (the trust the predictions carry), or n values.
    """
    if not isinstance(score, str):
        return _checked_values(score, len(predictions), "score")
    if score == "trust" or score.startswith("trust:"):
        if predictions.trust is None:
            raise InputError(f"score '{score}' needs predictions with trust; pass trust= or the values as score=")
        return _checked_values(predictions.trust, len(predictions), "trust")
    facts = predictions.facts if score in SELDOM else predictions.core_facts
    if score in ("max_logit", "energy"):
        if predictions.from_probabilities:
            raise InputError(f"score '{score}' needs real logits, but these predictions came from probabilities")
        return _as_array(facts.need(score))
    if score == "msp":
        return facts.sureness()
    if score == "entropy":
        return np.negative(_as_array(facts.need("entropy")))
    if score == "margin":
        return _as_array(facts.need("margin"))
    raise InputError(f"no score named '{score}'; {did_you_mean(score, SCORE_WORDS)}")


def _as_array(values: torch.Tensor) -> Floating:
    return np.asarray(values.detach().cpu().numpy())


def _checked_values(score: Any, n: int, name: str) -> Floating:
    values = as_tensor(score, name)
    if values.ndim != 1 or len(values) != n:
        raise InputError(f"{name} must be {n} values, one per sample, got shape {tuple(values.shape)}")
    check_finite(values, name)
    return _as_array(values if values.dtype in (torch.float32, torch.float64) else values.double())


# The samples with their weights.

BESIDE = 256
"""Samples of a block of `RunningSums`."""


class RunningSums:
    """Sums of the values before any position; of many they are kept for one in 256, for all would take their memory."""

    def __init__(self, values: Callable[[Any], AnyArray], n: int, *, on_device: bool = False) -> None:
        """`values` gives those of a slice, or of an array of positions."""
        self.values, self.n, self.all_kept = values, n, on_device or n < MANY_SAMPLES
        self.before_block: AnyArray
        if self.all_kept:
            self.before_block = after_zero(values(slice(0, n)).cumsum(0))
            return
        whole = n // BESIDE * BESIDE
        parts = (values(slice(k, min(k + MANY_SAMPLES, whole))) for k in range(0, whole, MANY_SAMPLES))
        blocks = [part.reshape(-1, BESIDE).sum(axis=1) for part in parts]
        self.before_block = np.concatenate(([0.0], *blocks)).cumsum()

    def at(self, positions: Indices) -> Floats:
        """The sum before each position."""
        if self.all_kept:
            return taken(self.before_block, positions)
        places = positions // BESIDE * BESIDE
        inner = places[:, None] + np.arange(BESIDE)
        rest = np.where(inner < positions[:, None], self.values(np.minimum(inner, self.n - 1)), 0.0)
        return np.asarray(self.before_block[positions // BESIDE] + rest.sum(axis=1))


SURENESS_KEPT = 1 << 17
"""Samples whose sureness is kept in float64 beside the confidence; of more it is made again where it is asked for."""


@dataclass(frozen=True, eq=False)
class BinaryOutcomes:
    """Probabilities of a yes or no, which it was, and weights (None where all count alike)."""

    probs: Floats
    hits: Floats
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class Design:
    """How the samples were drawn: independently, unless weights, strata or clusters say otherwise.

    `weights`: how much each sample counts, of mean 1 over all. `strata`: parts whose sizes were fixed. `clusters`: what
    was drawn as one.
    """

    weights: Floats | None = None
    strata: Indices | None = None
    clusters: Indices | None = None

    @property
    def plain(self) -> bool:
        """Whether the samples were drawn independently and count alike."""
        return self.weights is None and self.strata is None and self.clusters is None

    def take(self, rows: Indices) -> Design:
        """The design of some samples."""
        strata, clusters = (None if v is None else v[rows] for v in (self.strata, self.clusters))
        if clusters is not None and len(np.unique(clusters)) == len(clusters):
            clusters = None  # each of these was drawn by itself
        return Design(None if self.weights is None else self.weights[rows], strata, clusters)

    @property
    def single(self) -> bool:
        """Whether all samples were drawn as one, which tells nothing of how far another draw lies."""
        return self.clusters is not None and bool((self.clusters == self.clusters[0]).all())

    def unit_sums(self, psi: Floats) -> tuple[Floats, Indices]:
        """What each unit that was drawn adds to the mean of psi, and its stratum."""
        share = psi / len(psi) if self.weights is None else psi * self.weights / self.weights.sum()
        strata = np.zeros(len(psi), dtype=np.intp) if self.strata is None else self.strata
        if self.clusters is None:
            return share, strata
        _, first, unit = np.unique(self.clusters, return_index=True, return_inverse=True)
        return np.bincount(unit.reshape(-1), share).astype(np.float64), strata[first]

    @property
    def effective_units(self) -> float:
        """How many independent units of equal weight the samples are worth."""
        if self.weights is None:
            return math.inf if self.clusters is None else float(len(np.unique(self.clusters)))
        units = self.weights
        if self.clusters is not None:
            cluster = np.unique(self.clusters, return_inverse=True)[1].reshape(-1)
            units = np.bincount(cluster, units).astype(np.float64)
        return float(units.sum() ** 2 / dot(units, units))


@dataclass(eq=False)
class MetricSamples:
    """The samples: per-sample facts as arrays, and each score's order once it was asked for."""

    predictions: Predictions
    resampled: bool = False  # resamples need the permutation of each sort, one evaluation does not
    rows: NDArray[np.intp] | None = None  # where these are some rows of a larger record: which
    design: Design = field(default_factory=Design)
    _sorted: dict[str | int, Sorted] = field(default_factory=dict)
    _vectors: dict[str, NDArray[Any]] = field(default_factory=dict)
    _of_class: dict[int, MetricSamples] = field(default_factory=dict)
    _scores: list[Any] = field(default_factory=list)  # given as values: a score's key is its place here

    @cached_property
    def n(self) -> int:
        return len(self.predictions)

    @cached_property
    def effective_n(self) -> float:
        """How many samples of equal weight they are worth (Kish, 1965)."""
        weights = self.design.weights
        return float(self.n if weights is None else weights.sum() ** 2 / dot(weights, weights))

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        return np.asarray(~self.predictions.core_facts.correct.cpu().numpy(), dtype=np.bool_)

    def vector(self, name: str) -> NDArray[Any]:
        """A fact of every sample."""
        if name in self._vectors:
            return self._vectors[name]
        facts = self.predictions.core_facts
        values = facts.sureness() if name == "sureness" else facts.need(name).cpu().numpy()
        # Sums are in float64 either way; resamples multiply by float64 weights, which wants equal types.
        values = values.astype(np.float64) if self.resampled else values
        if self.resampled or name != "sureness" or self.n <= SURENESS_KEPT:
            self._vectors[name] = values
        return values

    def sureness(self, rows: slice) -> Floats:
        """The confidence of some samples in float64."""
        known = self.resampled or self.n <= SURENESS_KEPT
        return np.asarray(self.vector("sureness")[rows] if known else self.predictions.core_facts.sureness(rows))

    @cached_property
    def on_device(self) -> bool:
        """Whether rankings, bins and curves are made where the outputs live."""
        device = self.predictions.core_facts.confidence.device
        return device.type != "cpu" and self.design.plain and not self.resampled

    def there(self, values: NDArray[Any]) -> AnyArray:
        """Values of the host, where rankings, bins and curves are made."""
        if not self.on_device:
            return values
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.predictions.core_facts.confidence.device)

    def parts(self) -> Iterator[slice]:
        """All samples, on the host some at a time."""
        size = self.n if self.on_device else MANY_SAMPLES
        return (slice(first, min(first + size, self.n)) for first in range(0, self.n, size))

    def ordered(self, score: Any) -> Sorted:
        """Samples sorted by that score, as arrays of the host."""
        return self.sorted_there(score).on_host

    def sorted_there(self, score: Any) -> Sorted:
        """Samples sorted by that score, where they live."""
        key = self.key(score)
        if key not in self._sorted:
            self._sorted[key] = self._sort_on_device(score) if self.on_device else self._sort(score)
        return self._sorted[key]

    def _sort(self, score: Any) -> Sorted:
        facts = self.predictions.core_facts
        from_doubt = score_is(score, "msp") and not self.resampled and facts.doubt is not None
        # Made for the sort alone: they need not be kept.
        own = from_doubt or score_is(score, "entropy")
        sort = sort_with_order if self.resampled else partial(sort_packed, own=own)
        if from_doubt:
            unsure = facts.unsureness()
            ordered = replace(sort(np.negative(unsure, out=unsure), self.wrong), less_one=True)
            if self.n <= SURENESS_KEPT or ordered.stored.dtype == np.float64:
                ordered = replace(ordered, stored=ordered.values, less_one=False)
            return ordered
        ordered = sort(score_values(self.predictions, self.rows_of(score)), self.wrong)
        return ordered if self.design.weights is None else steps_only(ordered)

    def _sort_on_device(self, score: Any) -> Sorted:
        facts = self.predictions.core_facts
        wrong = ~facts.correct
        if score_is(score, "msp") and facts.doubt is not None:
            unsure = 1.0 - self.sureness_there
            ordered = sort_there(-(unsure.float() if facts.doubt.dtype == torch.float32 else unsure), wrong)
            return replace(ordered, stored=1.0 + ordered.stored.double())
        if score_is(score, "entropy"):
            return sort_there(-facts.need("entropy"), wrong)
        values = torch.from_numpy(np.array(score_values(self.predictions, self.rows_of(score))))
        return sort_there(values.to(wrong.device), wrong)

    @property
    def sureness_there(self) -> torch.Tensor:
        """The confidence in float64, where the outputs live."""
        facts = self.predictions.core_facts
        return facts.confidence.double() if facts.doubt is None else 1.0 - facts.doubt.double()

    def rows_of(self, values: Any) -> Any:
        """What was given for every sample of the larger record, for these rows; words stay words."""
        if self.rows is None or isinstance(values, str):
            return values
        return (values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values))[self.rows]

    def key(self, score: Any) -> str | int:
        """A word is its own key; values have the place at which they were first given."""
        if isinstance(score, str):
            return score
        for place, values in enumerate(self._scores):
            if values is score:
                return place
        self._scores.append(score)
        return len(self._scores) - 1

    def of_class(self, positive: int) -> MetricSamples:
        """The same samples as a question of yes or no: the probability of one class, and whether it is the label."""
        if positive not in self._of_class:
            predictions, label = self.predictions, positive
            class_values(predictions, "a metric of one class")
            if not 0 <= positive < predictions.num_classes:
                raise InputError(
                    f"positive must be a class from 0 to {predictions.num_classes - 1}, got {positive}; name another"
                )
            blocks = probability_blocks(predictions, "a metric of one class")
            probs = np.concatenate([block[:, label].copy() for _, block in blocks])
            pairs = Predictions.from_pairs(predictions.labels.cpu() == label, probs.clip(0.0, 1.0))
            self._of_class[positive] = MetricSamples(pairs, self.resampled, design=self.design)
        return self._of_class[positive]

    @cached_property
    def running(self) -> Floats:
        """Sums of confidence from the most confident on."""
        return np.cumsum(self.ordered("msp").values, dtype=np.float64)

    @cached_property
    def _sums(self) -> dict[str, RunningSums]:
        return {}

    def sums_of(self, name: str, at: Indices) -> Floats:
        """Sums of `confidence`, `errors` or the `variance` c (1 - c) before positions, from the most confident on."""
        if name not in self._sums:
            ordered = self.sorted_there("msp")

            def values(places: Any) -> AnyArray:
                if name == "errors":
                    return doubles(ordered.wrong[places])
                sure = doubles(ordered.at(places))
                return sure if name == "confidence" else (1.0 - sure) * sure

            self._sums[name] = RunningSums(values, self.n, on_device=self.on_device)
        return self._sums[name].at(at)

    def positions(self, binning: str, bins: int, closed: str) -> NDArray[np.intp]:
        """How many samples lie in the bins above each edge, from 1 down to 0: positions in the sorted order."""
        if binning == "mass":
            return self.n - mass_starts(self.n, bins)[::-1]
        # Confidences computed in float32 are compared in float64; those given in float32 with float32 edges.
        facts = self.predictions.core_facts
        edges = width_edges(bins)[1:-1]
        if facts.doubt is None:
            edges = torch.from_numpy(edges).to(facts.confidence.dtype).double().numpy()
        below = self.sorted_there("msp").below(edges, closed=closed == "right")
        return np.concatenate(([0], (self.n - below)[::-1], [self.n]))

    def _sure_and_wrong(self, part: slice) -> tuple[AnyArray, AnyArray]:
        if self.on_device:
            return self.sureness_there[part], ~self.predictions.core_facts.correct[part]
        return self.sureness(part), self.wrong[part]

    def parted_ties(self, at: Indices) -> Iterator[tuple[int, Flags]]:
        """Runs of equal confidence that a position cuts: where each begins, and its errors, last of the input first.

        That is the order of the sort that keeps the permutation; of the other, errors come last.
        """
        ordered = self.sorted_there("msp")
        if ordered.order is not None or not ordered.has_ties:
            return
        inside = at[(at > 0) & (at < self.n)]
        cut = inside[ordered.at(inside - 1) == ordered.at(inside)]
        groups = np.unique(searched(ordered.reached, cut, "right"))
        begins = [int(ordered.reached[group - 1]) if group else 0 for group in groups]
        values = ordered.at(np.array(begins, dtype=np.intp)).tolist()
        flags: list[list[Flags]] = [[] for _ in begins]
        for part in self.parts() if begins else ():
            sure, wrong = self._sure_and_wrong(part)
            for value, own in zip(values, flags, strict=True):
                own.append(as_numpy(wrong[sure == value]))
        for begin, own in zip(begins, flags, strict=True):
            yield begin, np.concatenate(own)[::-1]


class View:
    """Samples with weights; every shared quantity is computed once however many metrics ask for it."""

    def __init__(
        self, base: MetricSamples, weights: Floats | None = None, wrong: NDArray[np.bool_] | None = None
    ) -> None:
        """Weights of a resample in the order of the samples, by default those of the samples themselves; `wrong`
        replaces the errors, from the most confident on.
        """
        self.base, self.weights, self.wrong = base, base.design.weights if weights is None else weights, wrong
        self.n = float(base.n if self.weights is None else self.weights.sum())
        self._ranks: dict[str | int, Ranks] = {}
        self._derived: dict[Hashable, Any] = {}

    def derived(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What several metrics ask for, computed when it is first asked for."""
        if key not in self._derived:
            self._derived[key] = compute()
        value: T = self._derived[key]
        return value

    @classmethod
    def of_ranks(cls, ranks: Ranks) -> View:
        """A view that knows how samples rank by confidence, and nothing else of them."""
        view = cls(metric_samples(Predictions.from_pairs([1], [0.5])))
        view.n, view._ranks["msp"] = ranks.n, ranks
        return view

    @property
    def predictions(self) -> Predictions:
        return self.base.predictions

    @property
    def whole(self) -> bool:
        """Whether every weight is a whole number: how often a sample is there."""
        return self.base.design.weights is None

    def weighted_mean(self, values: Floats, order: Indices | None = None) -> float:
        """Mean of values that stand in the order of the samples, or in that order."""
        if self.weights is None:
            return float(values.mean())
        weights = self.weights if order is None else self.weights[order]
        return dot(weights, values) / self.n

    def mean(self, name: str) -> float:
        """Mean of a fact."""
        if self.base.on_device:
            facts = self.predictions.core_facts
            return float((self.base.sureness_there if name == "sureness" else facts.need(name).double()).mean())
        if name == "sureness" and self.weights is None and self.base.n > SURENESS_KEPT:
            return sum(float(self.base.sureness(part).sum()) for part in self.base.parts()) / self.n
        values = self.base.vector(name)
        return float(values.mean(dtype=np.float64)) if self.weights is None else dot(self.weights, values) / self.n

    def ranks(self, score: Any) -> Ranks:
        """Accepted and wrong as the threshold on that score falls."""
        key = self.base.key(score)
        if key not in self._ranks:
            ordered = self.base.sorted_there(score)
            self._ranks[key] = ranks_of(ordered, self.in_order(ordered), self.whole)
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
        return self.derived(("bins", binning, bins, closed), lambda: self._bins(binning, bins, closed))

    def _bins(self, binning: str, bins: int, closed: str) -> BinSums:
        if binning == "mass" and self.weights is not None:
            return self._mass_of_resample(bins)
        at = self.base.positions(binning, bins, closed)
        count, errors, confidence = self.sums_before(at)
        if binning == "mass":
            self._split_ties(at, errors)
        total, wrong, sure = (np.diff(v)[::-1] for v in (count, errors, confidence))
        return BinSums(total, sure, total - wrong)

    def sums_before(self, at: Indices) -> tuple[Floats, Floats, Floats]:
        """Weight, errors and confidence of the samples before each position, from the most confident on."""
        if self.weights is None and self.wrong is None:
            return at.astype(np.float64), self.base.sums_of("errors", at), self.base.sums_of("confidence", at)
        weights, *others = self._cumulative
        count = at.astype(np.float64) if weights is None else np.where(at > 0, weights[at - 1], 0.0)
        errors, confidence = (np.where(at > 0, v[at - 1], 0.0) for v in others)
        return count, errors, confidence

    def weighted_top(self) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Confidence, error and weight of every sample, from the most confident on."""
        ordered = self.base.ordered("msp")
        weights = self.in_order(ordered)
        wrong = ordered.wrong if self.wrong is None else self.wrong
        sure = ordered.values.astype(np.float64, copy=False)
        return sure, wrong, np.ones(len(wrong)) if weights is None else weights

    def top(self) -> BinaryOutcomes:
        """Confidence and correctness of every sample, copies of a resample included, from the least confident on."""
        sure, wrong, weights = self.weighted_top()
        hit = (~wrong).astype(np.float64)
        if self.weights is None:
            return BinaryOutcomes(sure[::-1], hit[::-1])
        if self.whole:
            times = weights.astype(np.intp)
            return BinaryOutcomes(np.repeat(sure, times)[::-1], np.repeat(hit, times)[::-1])
        there = weights[::-1] > 0
        return BinaryOutcomes(sure[::-1][there], hit[::-1][there], weights[::-1][there])

    def class_columns(self) -> Iterator[BinaryOutcomes]:
        """Probability and correctness of every class in turn."""
        self.predictions.need_logits("class-wise calibration")
        if self.weights is not self.base.design.weights or self.wrong is not None:
            raise InputError("class-wise calibration of resamples is not defined here; ask for the value alone")
        probs, labels = self.predictions.probabilities(), self.predictions.labels
        for k in range(self.predictions.num_classes):
            column, hit = probs[:, k].double().cpu().numpy(), (labels == k).double().cpu().numpy()
            yield BinaryOutcomes(column, hit, self.weights)

    def accepted(self, score: Any, threshold: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats]:
        """Which samples reach the threshold, which are wrong, and their weights."""
        ordered = self.base.ordered(score)
        weights = self.in_order(ordered)
        return ordered.values >= threshold, ordered.wrong, np.ones(len(ordered)) if weights is None else weights

    def moments(self, score: Any) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and unbiased variance of the scores of correct and of wrong samples; NaN with fewer than two."""
        ordered = self.base.ordered(score)
        in_order = self.in_order(ordered)
        weights = np.ones(len(ordered)) if in_order is None else in_order
        values, sides = ordered.values.astype(np.float64), (~ordered.wrong, ordered.wrong)
        first, second = (_moments(values, weights * side, self.whole) for side in sides)
        return first, second

    @cached_property
    def _cumulative(self) -> tuple[Floats | None, NDArray[Any], Floats]:
        """Running weights (None where all are 1), errors and confidences from the most confident on."""
        ordered = self.base.ordered("msp")
        weights = self.in_order(ordered)
        wrong = ordered.wrong if self.wrong is None else self.wrong
        if weights is None:
            return None, np.cumsum(wrong, dtype=np.int32), self.base.running
        return np.cumsum(weights), np.cumsum(weights * wrong), np.cumsum(weights * ordered.values)

    def _split_ties(self, at: NDArray[np.intp], errors: Floats) -> None:
        """Where an edge cuts through equal confidences, the later of the input go to the upper bin."""
        if self.wrong is not None:
            return
        for begin, flags in self.base.parted_ties(at):
            before = self.sums_before(np.array([begin]))[1][0]
            for k in np.flatnonzero((at > begin) & (at < begin + len(flags))):
                errors[k] = before + np.count_nonzero(flags[: at[k] - begin])

    def _mass_of_resample(self, bins: int) -> BinSums:
        """A sample that counts more than once may be cut by an edge: it is shared out, as equal copies would be."""
        weights, *others = self._cumulative
        assert weights is not None
        count, errors, confidence = (np.concatenate(([0.0], v)) for v in (weights, *others))
        size = self.base.n if not self.whole else round(self.n)
        at = self.n - mass_starts(size, bins)[::-1] * (self.n / size)
        total = np.diff(at)[::-1]
        wrong = np.diff(np.interp(at, count, errors))[::-1]
        sure = np.diff(np.interp(at, count, confidence))[::-1]
        return BinSums(total, sure, total - wrong)


def metric_samples(
    predictions: Predictions, *, class_table: bool = False, design: Design | None = None
) -> MetricSamples:
    """The samples of a record, kept with it so that several metrics sort once, unless a design comes with them.

    Without a design samples of one `unit` count as drawn together, others independently. The record's weights belong to
    any design; samples of weight 0 are left out.

    With `class_table` the pass over the logits that gives the facts also gives the sums of classes, kept likewise.
    """
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"metrics need confide.Predictions, got {type(predictions).__name__}; make one from logits and labels"
        )
    if not len(predictions):
        raise InputError("metrics need at least one sample, got 0; give predictions that hold some")
    if predictions.outputs.all_classes:
        predictions.need_labels("a metric")
        if class_table:
            predictions.class_table()

    def samples() -> MetricSamples:
        rows = predictions.weighted_rows
        known = Design(clusters=predictions.clusters) if design is None else design
        record = predictions if rows is None else predictions.take(rows)
        known = replace(known if rows is None else known.take(rows), weights=record.relative_weights)
        return MetricSamples(record, resampled=not known.plain, rows=rows, design=known)

    if design is not None and not design.plain:
        return samples()
    return predictions.derived((MetricSamples, design is None), samples)


def _moments(values: Floats, weights: Floats, whole: bool) -> tuple[float, float]:
    """Mean and unbiased variance; weights that are no counts leave as much freedom as their squares say."""
    there = weights > 0
    total = float(weights.sum())
    if (total if whole else there.sum()) < 2:
        return math.nan, math.nan
    # Counted from one of the values, so that equal ones have a variance of exactly 0 on every processor.
    start = float(values[np.argmax(there)])
    apart = values - start
    mean = dot(weights, apart) / total
    lost = 1.0 if whole else dot(weights, weights) / total
    return start + mean, dot(weights, (apart - mean) ** 2) / (total - lost)
