"""Counter-based draws keyed by (seed, sample id, purpose): the same whatever the order, batch, process or device.

Each sample has its own SplitMix64 stream (Steele et al., 2014): a key mixed from seed, purpose and id, and draw j of
it is mix(key + j * GAMMA). Nothing is stored, so a resumed or distributed run draws what an unbroken one draws.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

GAMMA = np.uint64(0x9E3779B97F4A7C15)
Bits = NDArray[np.uint64]


def _mix(values: Bits) -> Bits:
    # The finaliser of SplitMix64; wrapping multiplication is meant.
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sample_keys(ids: Any) -> Bits:
    """One 64-bit key per id: integers as they are, strings by a hash of their characters."""
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        return array.astype(np.int64).view(np.uint64) if array.dtype.kind == "i" else array.astype(np.uint64)
    text = np.ascontiguousarray(array.astype(np.str_))
    characters = text.view(np.uint32).reshape(len(text), -1) if text.size else np.zeros((0, 1), dtype=np.uint32)
    keys = np.full(len(text), 0xCBF29CE484222325, dtype=np.uint64)
    for column in characters.T:
        # Padding zeros must not count: the key of a text may not depend on the longest one beside it.
        keys = np.where(column != 0, _mix(keys ^ column.astype(np.uint64)), keys)
    return keys


def stream(seed: int, purpose: str, counter: int = 0) -> np.uint64:
    """One 64-bit number for (seed, purpose, counter), the root of all streams of that purpose."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{counter}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def bits(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> Bits:
    """64 random bits: n of them, or n x draws when several are asked for.

    Args:
        keys: from `sample_keys`.
        counter: a second index of the purpose, such as the epoch.
    """
    keys = np.asarray(keys, dtype=np.uint64)
    start = _mix(_mix(keys + GAMMA) ^ stream(seed, purpose, counter))
    if draws == 1:
        return _mix(start + GAMMA)
    steps = np.arange(1, draws + 1, dtype=np.uint64) * GAMMA
    return _mix(start[:, None] + steps[None, :])


def uniform(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 53 bits."""
    raw = bits(seed, keys, purpose, counter=counter, draws=draws)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(seed: int, keys: Bits, purpose: str, high: int, *, counter: int = 0, draws: int = 1) -> NDArray[np.int64]:
    """Whole numbers in [0, high)."""
    return (uniform(seed, keys, purpose, counter=counter, draws=draws) * high).astype(np.int64)


def normal(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> NDArray[np.float64]:
    """Standard normal numbers (Box and Muller, 1958)."""
    pairs = uniform(seed, keys, purpose, counter=counter, draws=2 * draws)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, :draws]))
    values: NDArray[np.float64] = radius * np.cos(2.0 * np.pi * pairs[:, draws:])
    return values[:, 0] if draws == 1 else values


def order(seed: int, keys: Bits, purpose: str, *, counter: int = 0) -> NDArray[np.intp]:
    """A permutation of the samples: rows sorted by a draw of their own."""
    return np.argsort(bits(seed, keys, purpose, counter=counter), kind="stable")
