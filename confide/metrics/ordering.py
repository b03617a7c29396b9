"""Samples in the order of a score, and how many are accepted and wrong as the threshold falls.

Ties are one step: whoever accepts a score accepts all samples that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Sorted:
    """Samples from the safest to the least safe. `ends` are the last positions of tied groups, None without ties."""

    values: NDArray[np.floating]
    wrong: Flags
    ends: Indices | None
    order: Indices | None = None

    def __len__(self) -> int:
        return len(self.wrong)


@dataclass(frozen=True, eq=False)
class Ranks:
    """At every distinct score, from the safest: samples accepted so far and errors among them."""

    accepted: Floats
    errors: Floats
    single: bool  # every step accepts exactly one sample

    @property
    def n(self) -> float:
        return float(self.accepted[-1])

    @property
    def wrong(self) -> float:
        return float(self.errors[-1])

    @cached_property
    def steps(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Accepted and errors before each step, and by how much each step adds to them."""
        before = np.concatenate(([0.0], self.accepted[:-1]))
        errors_before = np.concatenate(([0.0], self.errors[:-1]))
        return before, errors_before, self.accepted - before, self.errors - errors_before


def ranks_of(ordered: Sorted, weights: Floats | None = None) -> Ranks:
    """Running counts of sorted samples; weights are how often a resample drew each, in sorted order."""
    if weights is None:
        errors = np.cumsum(ordered.wrong, dtype=np.float64)
        if ordered.ends is None:
            return Ranks(np.arange(1.0, len(ordered) + 1), errors, True)
        return Ranks((ordered.ends + 1).astype(np.float64), errors[ordered.ends], False)
    accepted, errors = np.cumsum(weights), np.cumsum(weights * ordered.wrong)
    if ordered.ends is not None:
        accepted, errors = accepted[ordered.ends], errors[ordered.ends]
    return Ranks(accepted, errors, False)


def sort_with_order(values: NDArray[np.floating], wrong: Flags) -> Sorted:
    """Sorted samples with the permutation that sorts others alike: the reverse of a stable ascending sort."""
    order = np.argsort(values, kind="stable")[::-1]
    ordered = values[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return Sorted(ordered, wrong[order], None if len(ends) == len(values) else ends, order)


def sort_packed(values: NDArray[np.floating], wrong: Flags) -> Sorted:
    """The same without the permutation, at the price of np.sort: the bit `wrong` rides in the sort key.

    Within ties the order is not that of the input.
    """
    falling = bool(len(values)) and values.dtype == np.float64 and float(values.max()) <= 0
    if values.dtype == np.float64 and not falling and float(values.min(initial=0.0)) < 0:
        return sort_with_order(values, wrong)  # signed float64 needs all 64 bits
    keys = _keys(-values if falling else values)
    keys <<= np.uint64(1)
    keys |= wrong.view(np.uint8) if wrong.flags.c_contiguous else wrong.astype(np.uint8)
    keys.sort()
    if not falling:
        keys = keys[::-1]
    changes = np.flatnonzero((keys[1:] ^ keys[:-1]) > np.uint64(1))
    ends = None if len(changes) == len(keys) - 1 else np.append(changes, len(keys) - 1)
    ordered_wrong = (keys & np.uint64(1)).astype(bool)
    keys = keys >> np.uint64(1)
    ordered = _values(keys, values.dtype)
    return Sorted(np.negative(ordered) if falling else ordered, ordered_wrong, ends)


_SIGN = np.uint32(1 << 31)


def _keys(values: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Unsigned integers in the order of the values; adding 0 makes -0 and 0 one."""
    if values.dtype == np.float64:
        return (values + 0.0).view(np.uint64)
    bits = (values + np.float32(0)).view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)


def _values(keys: NDArray[np.uint64], kind: np.dtype[np.floating]) -> NDArray[np.floating]:
    if kind == np.float64:
        return keys.view(np.float64)
    short = keys.astype(np.uint32)
    return np.where(short & _SIGN, short & ~_SIGN, ~short).view(np.float32)


@lru_cache(maxsize=4)
def harmonic(n: int) -> Floats:
    """Sums of 1/1 + ... + 1/k for k = 0..n."""
    table = np.zeros(n + 1)
    np.cumsum(1.0 / np.arange(1, n + 1), out=table[1:])
    return table
