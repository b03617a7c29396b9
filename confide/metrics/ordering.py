"""Samples in the order of a score, and how many are accepted and wrong as the threshold falls.

Ties are one step: whoever accepts a score accepts all samples that have it. Neighbours that are not tied but alike
(all correct, or all wrong) are one segment too, because every ranking metric has a closed form over such a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Values = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Sorted:
    """Samples from the safest to the least safe, in segments: `ends` are their last positions, `tied` says which kind.

    A tied segment holds all samples of one score; the others hold a run of distinct scores, all right or all wrong.
    """

    values: Values
    wrong: Flags
    ends: Indices
    tied: Flags
    order: Indices | None = None

    def __len__(self) -> int:
        return len(self.wrong)


@dataclass(frozen=True, eq=False)
class Ranks:
    """At every segment's end, from the safest: samples accepted so far and errors among them."""

    accepted: Floats
    errors: Floats
    tied: Flags

    @property
    def n(self) -> float:
        return float(self.accepted[-1])

    @property
    def wrong(self) -> float:
        return float(self.errors[-1])

    @cached_property
    def before(self) -> Floats:
        """Accepted before each segment."""
        return np.concatenate(([0.0], self.accepted[:-1]))

    @cached_property
    def errors_before(self) -> Floats:
        """Errors accepted before each segment."""
        return np.concatenate(([0.0], self.errors[:-1]))

    @cached_property
    def size(self) -> Floats:
        """Samples of each segment."""
        return self.accepted - self.before

    @cached_property
    def new_errors(self) -> Floats:
        """Errors of each segment."""
        return self.errors - self.errors_before

    @cached_property
    def rise(self) -> Floats:
        """Sum of 1 / k over the ranks k of each segment."""
        return np.diff(harmonic(int(self.n))[self.accepted.astype(np.intp)], prepend=0.0)

    @cached_property
    def area(self) -> float:
        """Mean over k of the error rate among the k safest, averaged over all orders of tied samples.

        Within a tie the expected errors rise linearly, within a run they do anyway, so the risks of a segment of m
        samples with e errors sum to e + (E - A e / m)(1 / (A + 1) + ... + 1 / (A + m)).
        """
        share = self.new_errors / np.maximum(self.size, 1)
        share *= self.before
        np.subtract(self.errors_before, share, out=share)
        return float((self.wrong + share @ self.rise) / self.n)


def ranks_of(ordered: Sorted, weights: Floats | None = None) -> Ranks:
    """Running counts of sorted samples; weights are how often a resample drew each, in sorted order."""
    if weights is None:
        errors = np.cumsum(ordered.wrong, dtype=np.int32)[ordered.ends].astype(np.float64)
        return Ranks((ordered.ends + 1).astype(np.float64), errors, ordered.tied)
    accepted, errors = np.cumsum(weights), np.cumsum(weights * ordered.wrong)
    return Ranks(accepted[ordered.ends], errors[ordered.ends], ordered.tied)


def segments(same: Flags, wrong: Flags) -> tuple[Indices, Flags]:
    """Ends and kinds of the segments; `same[i]` says that samples i and i + 1 have one score."""
    cut = wrong[1:] != wrong[:-1]
    if not same.any():
        ends = np.append(np.flatnonzero(cut), len(wrong) - 1)
        return ends, np.zeros(len(ends), dtype=bool)
    beside = np.zeros(len(same), dtype=bool)
    beside[1:] |= same[:-1]
    beside[:-1] |= same[1:]
    cut = (cut | beside) & ~same
    ends = np.append(np.flatnonzero(cut), len(wrong) - 1)
    tied = np.zeros(len(ends), dtype=bool)
    tied[ends > 0] = same[ends[ends > 0] - 1]
    return ends, tied


def sort_with_order(values: Values, wrong: Flags) -> Sorted:
    """Sorted samples with the permutation that sorts others alike: the reverse of a stable ascending sort."""
    order = np.argsort(values, kind="stable")[::-1]
    ordered, flags = values[order], wrong[order]
    ends, tied = segments(ordered[1:] == ordered[:-1], flags)
    return Sorted(ordered, flags, ends, tied, order)


def sort_packed(values: Values, wrong: Flags) -> Sorted:
    """The same without the permutation, at the price of np.sort: the bit `wrong` rides in the sort key.

    The bits of floats of one sign are in their order and leave one bit free. Within ties the order is not that of the
    input.
    """
    falling = float(values.max()) <= 0
    if not falling and float(values.min()) < 0:
        return sort_with_order(values, wrong)  # both signs need all bits
    kind: Any = np.uint32 if values.dtype == np.float32 else np.uint64
    keys: NDArray[Any] = (np.negative(values) if falling else values.copy()).view(kind)
    keys <<= kind(1)  # the sign falls off, so that -0 is 0
    keys |= wrong.view(np.uint8)
    keys.sort()
    if not falling:
        keys = keys[::-1]
    flags = (keys & kind(1)).astype(bool)
    keys = keys >> kind(1)
    ends, tied = segments(keys[1:] == keys[:-1], flags)
    ordered = keys.view(values.dtype)
    return Sorted(np.negative(ordered, out=ordered) if falling else ordered, flags, ends, tied)


@lru_cache(maxsize=4)
def harmonic(n: int) -> Floats:
    """Sums of 1/1 + ... + 1/k for k = 0..n."""
    table = np.arange(n + 1, dtype=np.float64)
    np.divide(1.0, table[1:], out=table[1:])
    return np.cumsum(table, out=table)
